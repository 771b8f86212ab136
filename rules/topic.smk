# How one-layer transformers learn topics: corpora, trainings, measurements, figures.
rule topic:
    input:
        expand("results/topic/figures/{figure}.png", figure=TOPIC_FIGURES),
        "results/topic/runs.csv",
        TOPIC_ARTIFACTS,
        topic_of_runs("weights.safetensors"),
        topic_of_runs("checkpoints.safetensors"),
        topic_of_runs("history.csv"),
        topic_of_runs("run.json"),
        topic_of_runs("dynamics.csv"),


rule topic_corpus:
    input:
        topic_corpus_files,
    output:
        topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    log:
        "logs/topic/{corpus}/corpus.log",
    benchmark:
        "logs/topic/{corpus}/corpus.tsv"
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
    group:
        "topic_corpora"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        corpus=lambda wildcards: plain(TOPIC_CORPORA[wildcards.corpus]),
        seeds=TOPIC_SEEDS,
        code=code("topic/corpus.py"),
    message:
        "Sample the corpus {wildcards.corpus}"
    script:
        "../scripts/topic/corpus.py"


rule topic_theory:
    output:
        "results/topic/theory.json",
    log:
        "logs/topic/theory.log",
    benchmark:
        "logs/topic/theory.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        corpora={
            name: plain(corpus, include={"kind", "topics", "words", "tau"})
            for name, corpus in TOPIC_CORPORA.items()
        },
        code=code("topic/theory.py"),
    message:
        "Closed forms of the three theorems"
    script:
        "../scripts/topic/theory.py"


rule topic_baselines:
    input:
        corpus=topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    output:
        topic_of_seeds("results/topic/{corpus}/seed{seed}/baselines.json"),
    log:
        "logs/topic/{corpus}/baselines.log",
    benchmark:
        "logs/topic/{corpus}/baselines.tsv"
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
    group:
        "topic_corpora"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        seeds=TOPIC_SEEDS,
        corpus=lambda wildcards: plain(TOPIC_CORPORA[wildcards.corpus]),
        code=code("topic/baselines.py"),
    message:
        "Statistics, loss floor and best block matrices of the corpus {wildcards.corpus}"
    script:
        "../scripts/topic/baselines.py"


rule topic_train:
    input:
        corpus=topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    output:
        weights=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"
        ),
        checkpoints=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"
        ),
        history=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/history.csv"
        ),
        run=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/run.json"),
    log:
        "logs/topic/{corpus}/{variant}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/train.tsv"
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_TOGETHER),
    priority: 1  # trainings first, for what follows them is short
    group:
        trainings("topic")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=minutes(20, paper=60),
        gpu=1,
    params:
        seeds=TOPIC_SEEDS,
        variant=topic_training,
        code=code("topic/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.corpus}, all seeds"
    script:
        "../scripts/topic/train.py"


rule topic_train_seed:
    input:
        corpus=["results/topic/{corpus}/seed{seed}/corpus.safetensors"],
    output:
        weights=["results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"],
        checkpoints=[
            "results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"
        ],
        history=["results/topic/{corpus}/{variant}/seed{seed}/history.csv"],
        run=["results/topic/{corpus}/{variant}/seed{seed}/run.json"],
    log:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.tsv"
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_APART),
        seed=one_of(map(str, TOPIC_SEEDS)),
    priority: 1
    group:
        trainings("topic")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        seeds=lambda wildcards: [int(wildcards.seed)],
        variant=topic_training,
        code=code("topic/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.corpus}, seed {wildcards.seed}"
    script:
        "../scripts/topic/train.py"


rule topic_measure:
    input:
        corpus=topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
        weights=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"
        ),
        checkpoints=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"
        ),
        history=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/history.csv"
        ),
        run=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/run.json"),
    output:
        metrics=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/metrics.json"
        ),
        dynamics=topic_of_seeds(
            "results/topic/{corpus}/{variant}/seed{seed}/dynamics.csv"
        ),
    log:
        "logs/topic/{corpus}/{variant}/measure.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/measure.tsv"
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_VARIANTS),
    group:
        "topic_measures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(20, paper=30),
    params:
        seeds=TOPIC_SEEDS,
        measurement=plain(TOPIC.measurement),
        code=code("topic/measure.py"),
    message:
        "Measure {wildcards.variant} on {wildcards.corpus}, all seeds"
    script:
        "../scripts/topic/measure.py"


rule topic_grid:
    output:
        points="results/topic/grid/{grid}/points.csv",
        summary="results/topic/grid/{grid}/summary.json",
    log:
        "logs/topic/grid/{grid}.log",
    benchmark:
        "logs/topic/grid/{grid}.tsv"
    wildcard_constraints:
        grid=one_of(TOPIC_GRIDS),
    priority: 1
    group:
        trainings("topic")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        grid=lambda wildcards: plain(TOPIC_GRIDS[wildcards.grid]),
        seeds=TOPIC_SEEDS,
        code=code("topic/grid.py"),
    message:
        "Theory against measurement over {wildcards.grid}"
    script:
        "../scripts/topic/grid.py"


rule topic_sweep:
    input:
        corpus=expand(
            "results/topic/{corpus}/seed{seed}/corpus.safetensors",
            corpus=TOPIC.sweep.corpus,
            seed=TOPIC_SEEDS,
        ),
    output:
        points="results/topic/sweep/points.csv",
        summary="results/topic/sweep/summary.json",
    log:
        "logs/topic/sweep.log",
    benchmark:
        "logs/topic/sweep.tsv"
    priority: 1
    group:
        trainings("topic")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        sweep=plain(TOPIC_SWEEP),
        measurement=plain(TOPIC.measurement),
        seeds=TOPIC_SEEDS,
        code=code("topic/sweep.py"),
    message:
        "Train W_V and attention under every optimiser and learning rate"
    script:
        "../scripts/topic/sweep.py"


rule topic_runs:
    input:
        run=topic_of_runs("run.json"),
        metrics=topic_of_runs("metrics.json"),
    output:
        "results/topic/runs.csv",
    log:
        "logs/topic/runs.log",
    benchmark:
        "logs/topic/runs.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("report/study.py"),
    message:
        "One row per run of the topic study"
    script:
        "../scripts/report/study.py"


rule topic_plot_matrices:
    input:
        corpus=lambda wildcards: topic_of_corpora(TOPIC_PANELS[wildcards.figure]),
        weights=lambda wildcards: topic_of_figure(
            TOPIC_PANELS[wildcards.figure], "weights.safetensors"
        ),
        run=lambda wildcards: topic_of_figure(
            TOPIC_PANELS[wildcards.figure], "run.json"
        ),
        metrics=lambda wildcards: topic_of_figure(
            TOPIC_PANELS[wildcards.figure], "metrics.json"
        ),
    output:
        png=report(
            "results/topic/figures/{figure}.png",
            caption="../report/topic/matrices.rst",
            category="Topic study",
            subcategory="Structure in the weights",
            labels={"figure": "{figure}"},
        ),
        svg="results/topic/figures/{figure}.svg",
    log:
        "logs/topic/figures/{figure}.log",
    benchmark:
        "logs/topic/figures/{figure}.tsv"
    wildcard_constraints:
        figure="embeddings|values|column_products|key_query",
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        variants=lambda wildcards: TOPIC_PANELS[wildcards.figure],
        code=code("topic/plot_matrices.py"),
    message:
        "Draw {wildcards.figure}"
    script:
        "../scripts/topic/plot_matrices.py"


rule topic_plot_sentences:
    input:
        corpus=topic_of_corpora(TOPIC_PANELS["sentences"])[:: len(TOPIC_SEEDS)],
        weights=topic_of_first_seed(TOPIC_PANELS["sentences"], "weights.safetensors"),
        run=topic_of_first_seed(TOPIC_PANELS["sentences"], "run.json"),
    output:
        png=report(
            "results/topic/figures/sentences.png",
            caption="../report/topic/sentences.rst",
            category="Topic study",
            subcategory="Attention",
            labels={"figure": "sentences"},
        ),
        svg="results/topic/figures/sentences.svg",
    log:
        "logs/topic/figures/sentences.log",
    benchmark:
        "logs/topic/figures/sentences.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        variants=TOPIC_PANELS["sentences"],
        code=code("topic/plot_sentences.py"),
    message:
        "Draw sentences"
    script:
        "../scripts/topic/plot_sentences.py"


rule topic_plot_attention:
    input:
        [
            f"results/topic/{corpus}/{name}/seed{seed}/metrics.json"
            for corpus, name in TOPIC_ATTENDING
            for seed in TOPIC_SEEDS
        ],
    output:
        png=report(
            "results/topic/figures/attention.png",
            caption="../report/topic/attention.rst",
            category="Topic study",
            subcategory="Attention",
            labels={"figure": "attention"},
        ),
        svg="results/topic/figures/attention.svg",
        table="results/topic/attention.csv",
    log:
        "logs/topic/figures/attention.log",
    benchmark:
        "logs/topic/figures/attention.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        reference_length=TOPIC.measurement.reference_length,
        code=code("topic/plot_attention.py"),
    message:
        "Draw attention"
    script:
        "../scripts/topic/plot_attention.py"


rule topic_plot_stages:
    input:
        dynamics=topic_of_figure(TOPIC_PANELS["stages"], "dynamics.csv"),
    output:
        png=report(
            "results/topic/figures/stages.png",
            caption="../report/topic/stages.rst",
            category="Topic study",
            subcategory="Training",
            labels={"figure": "stages"},
        ),
        svg="results/topic/figures/stages.svg",
    log:
        "logs/topic/figures/stages.log",
    benchmark:
        "logs/topic/figures/stages.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        variants=TOPIC_PANELS["stages"],
        code=code("topic/plot_stages.py"),
    message:
        "Draw stages"
    script:
        "../scripts/topic/plot_stages.py"


rule topic_plot_sweep:
    input:
        points="results/topic/sweep/points.csv",
    output:
        png=report(
            "results/topic/figures/sweep.png",
            caption="../report/topic/sweep.rst",
            category="Topic study",
            subcategory="Training",
            labels={"figure": "sweep"},
        ),
        svg="results/topic/figures/sweep.svg",
    log:
        "logs/topic/figures/sweep.log",
    benchmark:
        "logs/topic/figures/sweep.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        code=code("topic/plot_sweep.py"),
    message:
        "Draw sweep"
    script:
        "../scripts/topic/plot_sweep.py"


rule topic_plot_components:
    input:
        metrics=lambda wildcards: topic_of_figure(
            TOPIC_PANELS[wildcards.figure], "metrics.json"
        ),
    output:
        png=report(
            "results/topic/figures/{figure}.png",
            caption="../report/topic/components.rst",
            category="Topic study",
            subcategory="Compensation",
            labels={"figure": "{figure}"},
        ),
        svg="results/topic/figures/{figure}.svg",
    log:
        "logs/topic/figures/{figure}.log",
    benchmark:
        "logs/topic/figures/{figure}.tsv"
    wildcard_constraints:
        figure="compensation|architectures",
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        variants=lambda wildcards: TOPIC_PANELS[wildcards.figure],
        reference_length=TOPIC.measurement.reference_length,
        code=code("topic/plot_components.py"),
    message:
        "Draw {wildcards.figure}"
    script:
        "../scripts/topic/plot_components.py"


rule topic_plot_theory:
    input:
        expand("results/topic/grid/{grid}/points.csv", grid=TOPIC_GRIDS),
    output:
        png=report(
            "results/topic/figures/theory.png",
            caption="../report/topic/theory.rst",
            category="Topic study",
            subcategory="Theory",
            labels={"figure": "theory"},
        ),
        svg="results/topic/figures/theory.svg",
    log:
        "logs/topic/figures/theory.log",
    benchmark:
        "logs/topic/figures/theory.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        code=code("topic/plot_theory.py"),
    message:
        "Draw theory"
    script:
        "../scripts/topic/plot_theory.py"


rule topic_plot_documents:
    input:
        expand(
            "results/topic/{corpus}/seed{seed}/corpus.safetensors",
            corpus=TOPIC_CORPORA,
            seed=TOPIC_SEEDS[0],
        ),
    output:
        png=report(
            "results/topic/figures/documents.png",
            caption="../report/topic/documents.rst",
            category="Topic study",
            subcategory="Corpora",
            labels={"figure": "documents"},
        ),
        svg="results/topic/figures/documents.svg",
    log:
        "logs/topic/figures/documents.log",
    benchmark:
        "logs/topic/figures/documents.tsv"
    group:
        "topic_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        corpora=[*TOPIC_CORPORA],
        code=code("topic/plot_documents.py"),
    message:
        "Draw documents"
    script:
        "../scripts/topic/plot_documents.py"
