# Language models pretrained with heads of other kinds: text, tuning, trainings, cost, figures.
rule pretraining:
    input:
        expand("results/pretraining/figures/{figure}.png", figure=PRETRAINING_FIGURES),
        "results/pretraining/runs.csv",
        PRETRAINING_ARTIFACTS,


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
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(30, paper=720),
    params:
        tokenizer=plain(PRETRAINING.tokenizer),
        corpus=PRETRAINING_CORPUS if PRETRAINING.tokenizer.model is None else None,
        code=code("pretraining/tokenizer.py"),
    message:
        "Make the tokenizer for {wildcards.corpus}"
    script:
        "../scripts/pretraining/tokenizer.py"


rule pretraining_data:
    input:
        text_corpus_files,
        tokenizer="results/pretraining/{corpus}/tokenizer/tokenizer.json",
        names="results/pretraining/{corpus}/tokenizer/tokenizer_config.json",
    output:
        **PRETRAINING_DATA,
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
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(30, paper=1440),
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
        **PRETRAINING_DATA,
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
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=60,
    params:
        masking=plain(PRETRAINING.masking),
        rows=PRETRAINING.evaluation.rows,
        code=code("pretraining/baseline.py"),
    message:
        "What a masked token of {wildcards.corpus} is without its context"
    script:
        "../scripts/pretraining/baseline.py"


rule pretraining_tune:
    input:
        **PRETRAINING_DATA,
    output:
        table="results/pretraining/{corpus}/{variant}/tuning/rates.csv",
        best="results/pretraining/{corpus}/{variant}/tuning/best.json",
    log:
        "logs/pretraining/{corpus}/{variant}/tune.log",
    benchmark:
        "logs/pretraining/{corpus}/{variant}/tune.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
        variant=one_of(PRETRAINING.tuned),
    priority: 1
    group:
        trainings("pretraining")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=2880),
        gpu=1,
    params:
        variant=lambda wildcards: pretraining_variant(wildcards.variant),
        model=plain(PRETRAINING.model),
        masking=plain(PRETRAINING.masking),
        optimisation=pretraining_optimisation("learning_rates", "tuning_steps"),
        rows=PRETRAINING.evaluation.rows,
        seed=PRETRAINING_SEEDS[0],
        code=code("pretraining/tune.py"),
    message:
        "Find the learning rate of {wildcards.variant}"
    script:
        "../scripts/pretraining/tune.py"


rule pretraining_train:
    input:
        **PRETRAINING_DATA,
        baseline="results/pretraining/{corpus}/baseline.json",
        rate=pretraining_rate,
    output:
        weights="results/pretraining/{corpus}/{variant}/seed{seed}/model/model.safetensors",
        config="results/pretraining/{corpus}/{variant}/seed{seed}/model/config.json",
        checkpoints="results/pretraining/{corpus}/{variant}/seed{seed}/checkpoints.safetensors",
        history="results/pretraining/{corpus}/{variant}/seed{seed}/history.csv",
        metrics="results/pretraining/{corpus}/{variant}/seed{seed}/metrics.json",
        run="results/pretraining/{corpus}/{variant}/seed{seed}/run.json",
    log:
        "logs/pretraining/{corpus}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/pretraining/{corpus}/{variant}/seed{seed}/train.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
        variant=one_of(PRETRAINING_VARIANTS),
        seed=one_of(map(str, PRETRAINING_SEEDS)),
    priority: 1
    group:
        trainings("pretraining")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=2880),
        gpu=1,
    params:
        variant=lambda wildcards: pretraining_variant(wildcards.variant),
        flops_of=lambda wildcards: pretraining_variant(
            PRETRAINING_VARIANTS[wildcards.variant].flops_of
        ),
        model=plain(PRETRAINING.model),
        masking=plain(PRETRAINING.masking),
        optimisation=pretraining_optimisation("steps"),
        evaluation=plain(PRETRAINING.evaluation, exclude={"validation"}),
        code=code("pretraining/train.py"),
    message:
        "Pretrain {wildcards.variant} on {wildcards.corpus}, seed {wildcards.seed}"
    script:
        "../scripts/pretraining/train.py"


rule pretraining_compare:
    input:
        of=lambda wildcards: pretraining_of_variants(
            [PRETRAINING_COMPARISONS[wildcards.comparison].variant], "metrics.json"
        ),
        over=lambda wildcards: pretraining_of_variants(
            [PRETRAINING_COMPARISONS[wildcards.comparison].baseline], "metrics.json"
        ),
    output:
        "results/pretraining/{corpus}/comparisons/{comparison}.json",
    log:
        "logs/pretraining/{corpus}/comparisons/{comparison}.log",
    benchmark:
        "logs/pretraining/{corpus}/comparisons/{comparison}.tsv"
    wildcard_constraints:
        corpus=PRETRAINING.corpus,
        comparison=one_of(PRETRAINING_COMPARISONS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        metric=lambda wildcards: PRETRAINING_COMPARISONS[wildcards.comparison].metric,
        towards=None,
        code=code("lego/compare.py"),
    message:
        "Compare pretrained variants: {wildcards.comparison}"
    script:
        "../scripts/lego/compare.py"


rule pretraining_runs:
    input:
        run=pretraining_of_variants(PRETRAINING_VARIANTS, "run.json"),
        metrics=pretraining_of_variants(PRETRAINING_VARIANTS, "metrics.json"),
    output:
        "results/pretraining/runs.csv",
    log:
        "logs/pretraining/runs.log",
    benchmark:
        "logs/pretraining/runs.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("report/study.py"),
    message:
        "Gather the runs of the pretraining study"
    script:
        "../scripts/report/study.py"


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
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=60,
        gpu=1,
    params:
        cost=plain(PRETRAINING.cost),
        model=plain(PRETRAINING.model),
        d_vocab=PRETRAINING.tokenizer.d_vocab,
        variants={name: pretraining_variant(name) for name in PRETRAINING.tuned},
        code=code("pretraining/cost.py"),
    message:
        "Measure what heads of each kind cost"
    script:
        "../scripts/pretraining/cost.py"


rule pretraining_time:
    input:
        **PRETRAINING_DATA,
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
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=60,
        gpu=1,
    params:
        variants={name: pretraining_variant(name) for name in PRETRAINING_VARIANTS},
        model=plain(PRETRAINING.model),
        masking=plain(PRETRAINING.masking),
        optimisation=pretraining_optimisation(),
        rounds=PRETRAINING.cost.repeats,
        code=code("pretraining/time_steps.py"),
    message:
        "Time a step of every variant on {wildcards.corpus}"
    script:
        "../scripts/pretraining/time_steps.py"


rule pretraining_plot_curves:
    input:
        history=pretraining_of_variants(PRETRAINING_VARIANTS, "history.csv"),
        seconds=f"results/pretraining/{PRETRAINING.corpus}/seconds.json",
        baseline=f"results/pretraining/{PRETRAINING.corpus}/baseline.json",
    output:
        png=report(
            "results/pretraining/figures/curves.png",
            caption="../report/pretraining/curves.rst",
            category="Pretraining",
            subcategory="Learning",
            labels={"figure": "curves"},
        ),
        svg="results/pretraining/figures/curves.svg",
    log:
        "logs/pretraining/figures/curves.log",
    benchmark:
        "logs/pretraining/figures/curves.tsv"
    group:
        "pretraining_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=list(PRETRAINING_VARIANTS),
        code=code("pretraining/plot_curves.py"),
    message:
        "Draw the loss against steps, operations and time"
    script:
        "../scripts/pretraining/plot_curves.py"


rule pretraining_plot_losses:
    input:
        metrics=pretraining_of_variants(PRETRAINING_VARIANTS, "metrics.json"),
    output:
        png=report(
            "results/pretraining/figures/losses.png",
            caption="../report/pretraining/losses.rst",
            category="Pretraining",
            subcategory="Learning",
            labels={"figure": "losses"},
        ),
        svg="results/pretraining/figures/losses.svg",
    log:
        "logs/pretraining/figures/losses.log",
    benchmark:
        "logs/pretraining/figures/losses.tsv"
    group:
        "pretraining_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants={
            name: variant.heads.split for name, variant in PRETRAINING_VARIANTS.items()
        },
        code=code("pretraining/plot_losses.py"),
    message:
        "Draw final losses against those of base"
    script:
        "../scripts/pretraining/plot_losses.py"


rule pretraining_plot_cost:
    input:
        csv="results/pretraining/cost.csv",
    output:
        png=report(
            "results/pretraining/figures/cost.png",
            caption="../report/pretraining/cost.rst",
            category="Pretraining",
            subcategory="Cost",
            labels={"figure": "cost"},
        ),
        svg="results/pretraining/figures/cost.svg",
    log:
        "logs/pretraining/figures/cost.log",
    benchmark:
        "logs/pretraining/figures/cost.tsv"
    group:
        "pretraining_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("pretraining/plot_cost.py"),
    message:
        "Draw what heads of each kind cost"
    script:
        "../scripts/pretraining/plot_cost.py"


rule pretraining_plot_module:
    output:
        png=report(
            "results/pretraining/figures/module.png",
            caption="../report/pretraining/module.rst",
            category="Pretraining",
            subcategory="Module",
            labels={"figure": "module"},
        ),
        svg="results/pretraining/figures/module.svg",
    log:
        "logs/pretraining/figures/module.log",
    benchmark:
        "logs/pretraining/figures/module.tsv"
    group:
        "pretraining_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("pretraining/plot_module.py"),
    message:
        "Draw the module"
    script:
        "../scripts/pretraining/plot_module.py"
