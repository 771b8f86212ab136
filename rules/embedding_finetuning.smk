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
        data=one_of(LABELLED),
    group:
        trainings("embedding")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(20, paper=60),
    params:
        labelled=lambda wildcards: plain(LABELLED[wildcards.data]),
        code=code("embedding/labelled.py"),
    message:
        "Read the labelled text {wildcards.data}"
    script:
        "../scripts/embedding/labelled.py"


rule embedding_finetune:
    input:
        model=lambda wildcards: ancient(finetuned_model("weights")(wildcards)),
        source=finetuned_model("source.json"),
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
        run=one_of(FINETUNED),
        seed=one_of(map(str, FINETUNING_SEEDS)),
    priority: 1
    group:
        trainings("embedding")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=720),
        gpu=1,
    params:
        run=lambda wildcards: plain(FINETUNED[wildcards.run]),
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
        run=one_of(FINETUNED),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        code=code("embedding/finetuned.py"),
    message:
        "Gather the accuracies of {wildcards.run}"
    script:
        "../scripts/embedding/finetuned.py"


rule embedding_difference:
    input:
        adapter_config,
        [local(str(path)) for path in [EMBEDDING.finetuning.lexicon] if path],
        model=lambda wildcards: ancient(finetuned_model("weights")(wildcards)),
        source=finetuned_model("source.json"),
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
        run=one_of(CHANGES),
    group:
        trainings("embedding")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        model=lambda wildcards: changed(wildcards.run).model,
        seeds=lambda wildcards: FINETUNING_SEEDS if wildcards.run in FINETUNED else [0],
        key=lambda wildcards: "embedding.finetuning.{section}.{run}".format(
            section="runs" if wildcards.run in FINETUNED else "adapters",
            run=wildcards.run,
        ),
        lexicon=plain(EMBEDDING.finetuning, include={"lexicon"})["lexicon"],
        vectors=EMBEDDING.finetuning.vectors,
        top=EMBEDDING.finetuning.top,
        code=code("embedding/difference.py"),
    message:
        "Read what {wildcards.run} changes"
    script:
        "../scripts/embedding/difference.py"


rule embedding_page_difference:
    input:
        words="results/embedding/finetuning/{run}/words.parquet",
    output:
        report(
            "results/embedding/finetuning/{run}/difference.html",
            caption="../report/embedding/difference.rst",
            category="Embedding study",
            subcategory="Pages to read",
            labels={"figure": "changed by {run}"},
        ),
    log:
        "logs/embedding/finetuning/{run}/page_difference.log",
    benchmark:
        "logs/embedding/finetuning/{run}/page_difference.tsv"
    wildcard_constraints:
        run=one_of(CHANGES),
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        trained=lambda wildcards: wildcards.run in FINETUNED,
        seed=FINETUNING_SEEDS[0],
        masked=digest(ROOT / "scripts/anatomy/embedding/profanity.txt"),
        code=code("embedding/page_difference.py"),
    message:
        "Lay out what {wildcards.run} changes for reading"
    script:
        "../scripts/embedding/page_difference.py"


rule embedding_plot_lexicon:
    input:
        tables=expand("results/embedding/finetuning/{run}/lexicon.csv", run=CHANGES),
    output:
        png=report(
            "results/embedding/figures/lexicon.png",
            caption="../report/embedding/lexicon.rst",
            category="Embedding study",
            subcategory="Fine-tuning and translation",
            labels={"figure": "lexicon"},
        ),
        svg="results/embedding/figures/lexicon.svg",
    log:
        "logs/embedding/figures/lexicon.log",
    benchmark:
        "logs/embedding/figures/lexicon.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        runs=CHANGES,
        code=code("embedding/plot_lexicon.py"),
    message:
        "Draw the share of sentiment words in what fine-tuning changes"
    script:
        "../scripts/embedding/plot_lexicon.py"


rule embedding_translate:
    input:
        lower=lambda wildcards: ancient(
            f"results/models/{TRANSLATED[wildcards.pair].lower}/weights"
        ),
        upper=lambda wildcards: ancient(
            f"results/models/{translated(wildcards).model}/weights"
        ),
        sources=lambda wildcards: [
            f"results/models/{name}/source.json"
            for name in (
                TRANSLATED[wildcards.pair].lower,
                translated(wildcards).model,
            )
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
        pair=one_of(TRANSLATED),
    group:
        trainings("embedding")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=720),
        gpu=1,
    params:
        pair=lambda wildcards: plain(TRANSLATED[wildcards.pair]),
        run=lambda wildcards: plain(translated(wildcards)),
        translation=plain(EMBEDDING.translation, exclude={"pairs"}),
        seeds=FINETUNING_SEEDS,
        code=code("embedding/translate.py"),
    message:
        "Translate by the pair {wildcards.pair}"
    script:
        "../scripts/embedding/translate.py"


rule embedding_plot_translation:
    input:
        tables=expand(
            "results/embedding/translation/{pair}/accuracy.csv", pair=TRANSLATED
        ),
        summaries=expand(
            "results/embedding/translation/{pair}/translation.json", pair=TRANSLATED
        ),
    output:
        png=report(
            "results/embedding/figures/translation.png",
            caption="../report/embedding/translation.rst",
            category="Embedding study",
            subcategory="Fine-tuning and translation",
            labels={"figure": "translation"},
        ),
        svg="results/embedding/figures/translation.svg",
    log:
        "logs/embedding/figures/translation.log",
    benchmark:
        "logs/embedding/figures/translation.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        pairs={name: [pair.lower, pair.upper] for name, pair in TRANSLATED.items()},
        code=code("embedding/plot_translation.py"),
    message:
        "Draw how accurate translated classifiers are"
    script:
        "../scripts/embedding/plot_translation.py"
