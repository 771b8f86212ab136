# Language models pretrained with heads of other kinds: text, tuning, trainings, cost, figures.
rule pretraining_tokenizer:
    input:
        unpack(pretraining_tokenizer_source),
    output:
        tokenizer="results/pretraining/{corpus}/tokenizer/tokenizer.json",
        names="results/pretraining/{corpus}/tokenizer/tokenizer_config.json",
    log:
        "logs/pretraining/{corpus}/tokenizer.log",
    benchmark:
        "logs/pretraining/{corpus}/tokenizer.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
    group:
        "pretraining_data"
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=runtime(30, paper=720),
    params:
        tokenizer=as_params(PRETRAINING.tokenizer),
        corpus=PRETRAINING_CORPUS if PRETRAINING.tokenizer.model is None else None,
        code=code("pretraining/tokenizer.py"),
    message:
        "Make the tokenizer for {wildcards.corpus}"
    script:
        "../scripts/pretraining/tokenizer.py"


rule pretraining_data:
    input:
        text_corpus_files,
        **named(rules.pretraining_tokenizer.output),
    output:
        train="results/pretraining/{corpus}/data/train.npy",
        validation="results/pretraining/{corpus}/data/validation.npy",
        info="results/pretraining/{corpus}/data/data.json",
    log:
        "logs/pretraining/{corpus}/data.log",
    benchmark:
        "logs/pretraining/{corpus}/data.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
    group:
        "pretraining_data"
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=runtime(30, paper=1440),
    params:
        corpus=PRETRAINING_CORPUS,
        length=PRETRAINING.length,
        d_vocab=PRETRAINING.tokenizer.d_vocab,
        validation=PRETRAINING.evaluation.validation,
        code=code("pretraining/data.py"),
    message:
        "Cut {wildcards.corpus} into rows of tokens"
    script:
        "../scripts/pretraining/data.py"


rule pretraining_baseline:
    input:
        **named(rules.pretraining_data.output),
    output:
        "results/pretraining/{corpus}/baseline.json",
    log:
        "logs/pretraining/{corpus}/baseline.log",
    benchmark:
        "logs/pretraining/{corpus}/baseline.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
    group:
        "pretraining_data"
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=60,
    params:
        masking=as_params(PRETRAINING.masking),
        rows=PRETRAINING.evaluation.rows,
        code=code("pretraining/baseline.py"),
    message:
        "Loss without context on {wildcards.corpus}"
    script:
        "../scripts/pretraining/baseline.py"


rule pretraining_tune:
    input:
        **named(rules.pretraining_data.output),
    output:
        table="results/pretraining/{corpus}/{variant}/tuning/rates.csv",
        best="results/pretraining/{corpus}/{variant}/tuning/best.json",
    log:
        "logs/pretraining/{corpus}/{variant}/tune.log",
    benchmark:
        "logs/pretraining/{corpus}/{variant}/tune.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
        variant=any_of(PRETRAINING.tuned),
    priority: 1
    group:
        trainings("pretraining")
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=2880),
        gpu=1,
    params:
        variant=lambda wildcards: pretraining_variant(wildcards.variant),
        model=as_params(PRETRAINING.model),
        masking=as_params(PRETRAINING.masking),
        optimisation=pretraining_optimisation("learning_rates", "tuning_steps"),
        rows=PRETRAINING.evaluation.rows,
        seed=PRETRAINING.seeds[0],
        code=code("pretraining/tune.py"),
    message:
        "Find the learning rate of {wildcards.variant}"
    script:
        "../scripts/pretraining/tune.py"


rule pretraining_train:
    input:
        **named(rules.pretraining_data.output),
        baseline=rules.pretraining_baseline.output[0],
        rate=pretraining_rate,
    output:
        weights=f"{PRETRAINING_RUN}/model/model.safetensors",
        config=f"{PRETRAINING_RUN}/model/config.json",
        checkpoints=f"{PRETRAINING_RUN}/checkpoints.safetensors",
        history=f"{PRETRAINING_RUN}/history.csv",
        metrics=f"{PRETRAINING_RUN}/metrics.json",
        run=f"{PRETRAINING_RUN}/run.json",
    log:
        "logs/pretraining/{corpus}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/pretraining/{corpus}/{variant}/seed{seed}/train.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
        variant=any_of(PRETRAINING.variants),
        seed=seed_of(PRETRAINING),
    priority: 1
    group:
        trainings("pretraining")
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=2880),
        gpu=1,
    params:
        variant=lambda wildcards: pretraining_variant(wildcards.variant),
        flops_of=lambda wildcards: pretraining_variant(
            PRETRAINING.variants[wildcards.variant].flops_of
        ),
        model=as_params(PRETRAINING.model),
        masking=as_params(PRETRAINING.masking),
        optimisation=pretraining_optimisation("steps"),
        evaluation=as_params(PRETRAINING.evaluation, exclude={"validation"}),
        code=code("pretraining/train.py"),
    message:
        "Pretrain {wildcards.variant} on {wildcards.corpus}, seed {wildcards.seed}"
    script:
        "../scripts/pretraining/train.py"


rule pretraining_cost:
    output:
        csv="results/pretraining/cost.csv",
        json="results/pretraining/cost.json",
    log:
        "logs/pretraining/cost.log",
    benchmark:
        "logs/pretraining/cost.tsv"
    group:
        "pretraining_times"
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=60,
        gpu=1,
    params:
        cost=as_params(PRETRAINING.cost),
        model=as_params(PRETRAINING.model),
        d_vocab=PRETRAINING.tokenizer.d_vocab,
        variants={name: pretraining_variant(name) for name in PRETRAINING.tuned},
        code=code("pretraining/cost.py"),
    message:
        "Measure what heads of each kind cost"
    script:
        "../scripts/pretraining/cost.py"


rule pretraining_time:
    input:
        **named(rules.pretraining_data.output),
    output:
        "results/pretraining/{corpus}/seconds.json",
    log:
        "logs/pretraining/{corpus}/time.log",
    benchmark:
        "logs/pretraining/{corpus}/time.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
    group:
        "pretraining_times"
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=60,
        gpu=1,
    params:
        variants={name: pretraining_variant(name) for name in PRETRAINING.variants},
        model=as_params(PRETRAINING.model),
        masking=as_params(PRETRAINING.masking),
        optimisation=pretraining_optimisation(),
        rounds=PRETRAINING.cost.repeats,
        code=code("pretraining/time_steps.py"),
    message:
        "Time a step of every variant on {wildcards.corpus}"
    script:
        "../scripts/pretraining/time_steps.py"


# --- figures ------------------------------------------------------------------------------------


for name, subcategory, input, params in [
    (
        "curves",
        "Learning",
        {
            "history": pretrained_variants("history.csv"),
            "seconds": of_corpus(rules.pretraining_time.output)[0],
            "baseline": of_corpus(rules.pretraining_baseline.output)[0],
        },
        {"variants": [*PRETRAINING.variants]},
    ),
    (
        "losses",
        "Learning",
        {"metrics": pretrained_variants("metrics.json")},
        {"variants": {n: v.heads.split for n, v in PRETRAINING.variants.items()}},
    ),
    ("cost", "Cost", {"csv": rules.pretraining_cost.output.csv}, {}),
    ("module", "Module", {}, {}),
]:
    figure(f"pretraining/{name}", name, subcategory, input=input, params=params)


# What claims can be measured on
PRETRAINING_ARTIFACTS = [
    *expand(
        f"results/pretraining/{PRETRAINING.corpus}/comparisons/{{name}}.json",
        name=PRETRAINING.comparisons,
    ),
    *pretrained_variants("metrics.json"),
    "results/pretraining/cost.json",
]


rule pretraining:
    input:
        figures_of("pretraining"),
        "results/pretraining/runs.csv",
        PRETRAINING_ARTIFACTS,
