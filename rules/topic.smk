# How one-layer transformers learn topics: corpora, trainings, measurements, figures.
TOPIC = SETTINGS.topic
TOPIC_SEEDS = TOPIC.seeds
TOPIC_CORPORA = TOPIC.present_corpora
TOPIC_VARIANTS = TOPIC.present_variants
TOPIC_GRIDS = TOPIC.present_grids
TOPIC_SWEEP = TOPIC.present_sweep
TOPIC_RUNS = [
    (corpus, name) for name, variant in TOPIC_VARIANTS.items() for corpus in variant.corpora
]
# A compact model trains in seconds, so one job trains all seeds; a BERT is a job a seed.
TOPIC_BERTS = [name for name, v in TOPIC_VARIANTS.items() if v.model.kind == "bert"]
TOPIC_COMPACTS = [name for name in TOPIC_VARIANTS if name not in TOPIC_BERTS]


def one_of(names):
    """A wildcard constraint: one of these names and nothing else."""
    return "|".join(names) or "NONE"


def topic_of_seeds(pattern):
    """The pattern for every seed, other wildcards left alone."""
    return expand(pattern, seed=TOPIC_SEEDS, allow_missing=True)


def topic_of_runs(artifact):
    """An artifact of every training: of each corpus, variant and seed."""
    return [
        f"results/topic/{corpus}/{variant}/seed{seed}/{artifact}"
        for corpus, variant in TOPIC_RUNS
        for seed in TOPIC_SEEDS
    ]


def topic_of_figure(figure, artifact, *, seeds=None):
    """An artifact of the variants that a figure shows, on the first of each one's corpora."""
    return [
        f"results/topic/{TOPIC_VARIANTS[name].corpora[0]}/{name}/seed{seed}/{artifact}"
        for name in TOPIC.shown(figure)
        for seed in seeds or TOPIC_SEEDS
    ]


def topic_training(wildcards):
    """What a training is, apart from its corpora and its seeds."""
    return plain(TOPIC_VARIANTS[wildcards.variant], exclude={"corpora"})


TOPIC_FIGURES = [
    *(name for name in TOPIC.figures.model_fields if TOPIC.shown(name)),
    *(["column_products"] if TOPIC.shown("values") else []),
    *(["key_query"] if TOPIC.shown("sentences") else []),
    *(["theory"] if TOPIC_GRIDS else []),
    "sweep",
    "topics_per_document",
    "attention_table",
]


rule topic:
    input:
        expand("results/topic/figures/{figure}.png", figure=TOPIC_FIGURES),
        "results/topic/runs.csv",
        topic_of_runs("metrics.json"),


rule topic_corpus:
    output:
        topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    log:
        "logs/topic/{corpus}/corpus.log",
    benchmark:
        "logs/topic/{corpus}/corpus.tsv"
    conda:
        CONDA
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
    threads: 1
    resources:
        mem_mb=1000,
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
        mem_mb=1000,
        runtime=10,
    params:
        corpora={name: plain(corpus) for name, corpus in TOPIC_CORPORA.items()},
        code=code("topic/theory.py"),
    message:
        "Closed forms of the three theorems"
    script:
        "../scripts/topic/theory.py"


rule topic_reference:
    input:
        corpus=topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    output:
        topic_of_seeds("results/topic/{corpus}/seed{seed}/reference.json"),
    log:
        "logs/topic/{corpus}/reference.log",
    benchmark:
        "logs/topic/{corpus}/reference.tsv"
    conda:
        CONDA
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
    threads: 1
    resources:
        mem_mb=1500,
        runtime=10,
    params:
        seeds=TOPIC_SEEDS,
        alpha=lambda wildcards: getattr(TOPIC_CORPORA[wildcards.corpus], "alpha", None),
        code=code("topic/reference.py"),
    message:
        "Statistics, loss floor and best block matrices of the corpus {wildcards.corpus}"
    script:
        "../scripts/topic/reference.py"


rule topic_train:
    input:
        corpus=topic_of_seeds("results/topic/{corpus}/seed{seed}/corpus.safetensors"),
    output:
        weights=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"),
        checkpoints=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"),
        history=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/history.csv"),
        run=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/run.json"),
    log:
        "logs/topic/{corpus}/{variant}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/train.tsv"
    conda:
        CONDA
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_COMPACTS),
    threads: 1
    resources:
        mem_mb=1500,
        runtime=60,
        gpu=1,
    params:
        seeds=TOPIC_SEEDS,
        variant=topic_training,
        code=code("topic/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.corpus}, all seeds"
    script:
        "../scripts/topic/train.py"


rule topic_train_bert:
    input:
        corpus=["results/topic/{corpus}/seed{seed}/corpus.safetensors"],
    output:
        weights=["results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"],
        checkpoints=["results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"],
        history=["results/topic/{corpus}/{variant}/seed{seed}/history.csv"],
        run=["results/topic/{corpus}/{variant}/seed{seed}/run.json"],
    log:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.tsv"
    conda:
        CONDA
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_BERTS),
    threads: 1
    resources:
        mem_mb=2000,
        runtime=120,
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
        weights=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/weights.safetensors"),
        checkpoints=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/checkpoints.safetensors"),
        history=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/history.csv"),
        run=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/run.json"),
    output:
        metrics=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/metrics.json"),
        dynamics=topic_of_seeds("results/topic/{corpus}/{variant}/seed{seed}/dynamics.csv"),
    log:
        "logs/topic/{corpus}/{variant}/measure.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/measure.tsv"
    conda:
        CONDA
    wildcard_constraints:
        corpus=one_of(TOPIC_CORPORA),
        variant=one_of(TOPIC_VARIANTS),
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
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
    log:
        "logs/topic/grid/{grid}.log",
    benchmark:
        "logs/topic/grid/{grid}.tsv"
    conda:
        CONDA
    wildcard_constraints:
        grid=one_of(TOPIC_GRIDS),
    threads: 1
    resources:
        mem_mb=1500,
        runtime=120,
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
        corpus=expand("results/topic/{corpus}/seed{seed}/corpus.safetensors", corpus=TOPIC.sweep.corpus, seed=TOPIC_SEEDS),
    output:
        points="results/topic/sweep/points.csv",
    log:
        "logs/topic/sweep.log",
    benchmark:
        "logs/topic/sweep.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=1500,
        runtime=120,
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
        mem_mb=1000,
        runtime=10,
    params:
        code=code("topic/runs.py"),
    message:
        "One row per run of the topic study"
    script:
        "../scripts/topic/runs.py"
