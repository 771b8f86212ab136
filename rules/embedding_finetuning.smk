# Fine-tuning, what it changes read as tokens, and translation into another model.
rule embedding_labelled:
    input:
        labelled_files,
    output:
        texts="results/embedding/labelled/{data}/texts.parquet",
        counts="results/embedding/labelled/{data}/counts.json",
    log:
        "logs/embedding/labelled/{data}.log",
    benchmark:
        "logs/embedding/labelled/{data}.tsv"
    wildcard_constraints:
        data=any_of(LABELLED),
    group:
        trainings("embedding")
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=runtime(20, paper=60),
    params:
        labelled=lambda wildcards: as_params(LABELLED[wildcards.data]),
        code=code("embedding/labelled.py"),
    message:
        "Read the labelled text {wildcards.data}"
    script:
        "../scripts/embedding/labelled.py"


rule embedding_finetune:
    input:
        unpack(changed_model),
        texts=lambda wildcards: f"results/embedding/labelled/{FINETUNED[wildcards.run].data}/texts.parquet",
    output:
        weights="results/embedding/finetuning/{run}/seed{seed}/weights.safetensors",
        history="results/embedding/finetuning/{run}/seed{seed}/history.csv",
        run="results/embedding/finetuning/{run}/seed{seed}/run.json",
    log:
        "logs/embedding/finetuning/{run}/seed{seed}/finetune.log",
    benchmark:
        "logs/embedding/finetuning/{run}/seed{seed}/finetune.tsv"
    wildcard_constraints:
        run=any_of(FINETUNED),
        seed=any_of(map(str, FINETUNED_SEEDS)),
    priority: 1
    group:
        trainings("embedding")
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=720),
        gpu=1,
    params:
        run=lambda wildcards: as_params(FINETUNED[wildcards.run]),
        validation=EMBEDDING.finetuning.validation,
        test=EMBEDDING.finetuning.test,
        code=code("embedding/finetune.py"),
    message:
        "Fine-tune {wildcards.run}, seed {wildcards.seed}"
    script:
        "../scripts/embedding/finetune.py"


rule embedding_finetuned:
    input:
        lambda wildcards: finetuned_seeds(wildcards.run, "run.json"),
    output:
        "results/embedding/finetuning/{run}/accuracy.json",
    log:
        "logs/embedding/finetuning/{run}/finetuned.log",
    benchmark:
        "logs/embedding/finetuning/{run}/finetuned.tsv"
    wildcard_constraints:
        run=any_of(FINETUNED),
    conda:
        CONDA
    params:
        code=code("embedding/finetuned.py"),
    message:
        "Gather the accuracies of {wildcards.run}"
    script:
        "../scripts/embedding/finetuned.py"


rule embedding_difference:
    input:
        adapter_config,
        local_file(EMBEDDING.finetuning.lexicon),
        unpack(changed_model),
        changes=changes,
    output:
        table="results/embedding/finetuning/{run}/lexicon.csv",
        words="results/embedding/finetuning/{run}/words.parquet",
        summary="results/embedding/finetuning/{run}/lexicon.json",
    log:
        "logs/embedding/finetuning/{run}/difference.log",
    benchmark:
        "logs/embedding/finetuning/{run}/difference.tsv"
    wildcard_constraints:
        run=any_of(CHANGES),
    group:
        trainings("embedding")
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        model=lambda wildcards: CHANGES[wildcards.run].model,
        seeds=lambda wildcards: FINETUNED_SEEDS if wildcards.run in FINETUNED else [0],
        key=lambda wildcards: "embedding.finetuning.{section}.{run}".format(
            section="runs" if wildcards.run in FINETUNED else "adapters",
            run=wildcards.run,
        ),
        lexicon=as_params(EMBEDDING.finetuning, include={"lexicon"})["lexicon"],
        vectors=EMBEDDING.finetuning.vectors,
        top=EMBEDDING.finetuning.top,
        code=code("embedding/difference.py"),
    message:
        "Read what {wildcards.run} changes"
    script:
        "../scripts/embedding/difference.py"


rule embedding_translate:
    input:
        lower=lambda wildcards: stored_model(TRANSLATED[wildcards.pair].lower)["model"],
        upper=lambda wildcards: stored_model(translated(wildcards).model)["model"],
        sources=lambda wildcards: [
            stored_model(name)["source"]
            for name in (TRANSLATED[wildcards.pair].lower, translated(wildcards).model)
        ],
        texts=lambda wildcards: f"results/embedding/labelled/{translated(wildcards).data}/texts.parquet",
        weights=lambda wildcards: finetuned_seeds(
            TRANSLATED[wildcards.pair].upper, "weights.safetensors"
        ),
        runs=lambda wildcards: finetuned_seeds(
            TRANSLATED[wildcards.pair].upper, "run.json"
        ),
    output:
        table="results/embedding/translation/{pair}/accuracy.csv",
        summary="results/embedding/translation/{pair}/translation.json",
        run="results/embedding/translation/{pair}/run.json",
    log:
        "logs/embedding/translation/{pair}/translate.log",
    benchmark:
        "logs/embedding/translation/{pair}/translate.tsv"
    wildcard_constraints:
        pair=any_of(TRANSLATED),
    group:
        trainings("embedding")
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=720),
        gpu=1,
    params:
        pair=lambda wildcards: as_params(TRANSLATED[wildcards.pair]),
        run=lambda wildcards: as_params(translated(wildcards)),
        translation=as_params(EMBEDDING.translation, exclude={"pairs"}),
        seeds=FINETUNED_SEEDS,
        code=code("embedding/translate.py"),
    message:
        "Translate by the pair {wildcards.pair}"
    script:
        "../scripts/embedding/translate.py"


# --- figures and pages --------------------------------------------------------------------------

page(
    "embedding",
    "difference",
    "embedding/finetuning/{run}/difference.html",
    "changed by {run}",
    input={
        "words": rules.embedding_difference.output.words,
    },
    params={
        "trained": lambda wildcards: wildcards.run in FINETUNED,
        "seed": FINETUNED_SEEDS[0],
        **MASKED,
    },
    constraints={"run": CHANGES},
)
if CHANGES:
    figure(
        "embedding/lexicon",
        "lexicon",
        "Fine-tuning and translation",
        input={"tables": expand(rules.embedding_difference.output.table, run=CHANGES)},
        params={"runs": [*CHANGES]},
    )
if TRANSLATED:
    figure(
        "embedding/translation",
        "translation",
        "Fine-tuning and translation",
        input={
            "tables": expand(rules.embedding_translate.output.table, pair=TRANSLATED),
            "summaries": expand(
                rules.embedding_translate.output.summary, pair=TRANSLATED
            ),
        },
        params={
            "pairs": {
                name: [pair.lower, pair.upper] for name, pair in TRANSLATED.items()
            }
        },
    )


# What claims can be measured on
EMBEDDING_ARTIFACTS = [
    *(
        path
        for artifact in ("robustness", "hidden", "related", "heads")
        for path in embedding_models(f"{artifact}.json")
    ),
    *expand("results/embedding/alignment/{pair}/alignment.json", pair=ALIGNED),
    *(["results/embedding/alignment/over_training.json"] if ALIGNED_SEEDS else []),
    *expand("results/embedding/finetuning/{run}/accuracy.json", run=FINETUNED),
    *expand("results/embedding/finetuning/{run}/lexicon.json", run=CHANGES),
    *expand("results/embedding/translation/{pair}/translation.json", pair=TRANSLATED),
]


rule embedding:
    input:
        figures_of("embedding"),
        expand(rules.embedding_index.output.index, **EMBEDDED),
        EMBEDDING_ARTIFACTS,
