# How one-layer transformers learn topics: corpora, trainings, measurements, figures.
rule topic_corpus:
    input:
        topic_corpus_files,
    output:
        each_seed(TOPIC_CORPUS),
    log:
        "logs/topic/{corpus}/corpus.log",
    benchmark:
        "logs/topic/{corpus}/corpus.tsv"
    wildcard_constraints:
        corpus=any_of(TOPIC.corpora),
    group:
        "topic_corpora"
    conda:
        CONDA
    params:
        corpus=lambda wildcards: as_params(TOPIC.corpora[wildcards.corpus]),
        seeds=TOPIC.seeds,
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
    params:
        corpora={
            name: as_params(corpus, include={"kind", "topics", "words", "tau"})
            for name, corpus in TOPIC.corpora.items()
        },
        code=code("topic/theory.py"),
    message:
        "Closed forms of the three theorems"
    script:
        "../scripts/topic/theory.py"


rule topic_baselines:
    input:
        corpus=rules.topic_corpus.output,
    output:
        each_seed("results/topic/{corpus}/seed{seed}/baselines.json"),
    log:
        "logs/topic/{corpus}/baselines.log",
    benchmark:
        "logs/topic/{corpus}/baselines.tsv"
    wildcard_constraints:
        corpus=any_of(TOPIC.corpora),
    group:
        "topic_corpora"
    conda:
        CONDA
    resources:
        mem_mb=memory(1500),
    params:
        seeds=TOPIC.seeds,
        corpus=lambda wildcards: as_params(TOPIC.corpora[wildcards.corpus]),
        code=code("topic/baselines.py"),
    message:
        "Statistics, loss floor and best block matrices of the corpus {wildcards.corpus}"
    script:
        "../scripts/topic/baselines.py"


rule topic_train:
    input:
        corpus=rules.topic_corpus.output,
    output:
        weights=each_seed(f"{TOPIC_RUN}/weights.safetensors"),
        checkpoints=each_seed(f"{TOPIC_RUN}/checkpoints.safetensors"),
        history=each_seed(f"{TOPIC_RUN}/history.csv"),
        run=each_seed(f"{TOPIC_RUN}/run.json"),
    log:
        "logs/topic/{corpus}/{variant}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/train.tsv"
    wildcard_constraints:
        corpus=any_of(TOPIC.corpora),
        variant=any_of(n for n, v in TOPIC.variants.items() if not v.job_per_seed),
    priority: 1  # trainings first, for what follows them is short
    group:
        trainings("topic")
    conda:
        CONDA
    resources:
        mem_mb=memory(1500),
        runtime=runtime(20, paper=60),
        gpu=1,
    params:
        seeds=TOPIC.seeds,
        variant=topic_training,
        code=code("topic/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.corpus}, all seeds"
    script:
        "../scripts/topic/train.py"


use rule topic_train as topic_train_seed with:
    input:
        corpus=[TOPIC_CORPUS],
    output:
        weights=[f"{TOPIC_RUN}/weights.safetensors"],
        checkpoints=[f"{TOPIC_RUN}/checkpoints.safetensors"],
        history=[f"{TOPIC_RUN}/history.csv"],
        run=[f"{TOPIC_RUN}/run.json"],
    log:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/seed{seed}/train.tsv"
    wildcard_constraints:
        corpus=any_of(TOPIC.corpora),
        variant=any_of(n for n, v in TOPIC.variants.items() if v.job_per_seed),
        seed=seed_of(TOPIC),
    resources:
        mem_mb=memory(2000),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        seeds=lambda wildcards: [int(wildcards.seed)],
        variant=topic_training,
        code=code("topic/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.corpus}, seed {wildcards.seed}"


rule topic_measure:
    input:
        corpus=rules.topic_corpus.output,
        weights=each_seed(f"{TOPIC_RUN}/weights.safetensors"),
        checkpoints=each_seed(f"{TOPIC_RUN}/checkpoints.safetensors"),
        history=each_seed(f"{TOPIC_RUN}/history.csv"),
        run=each_seed(f"{TOPIC_RUN}/run.json"),
    output:
        metrics=each_seed(f"{TOPIC_RUN}/metrics.json"),
        dynamics=each_seed(f"{TOPIC_RUN}/dynamics.csv"),
    log:
        "logs/topic/{corpus}/{variant}/measure.log",
    benchmark:
        "logs/topic/{corpus}/{variant}/measure.tsv"
    wildcard_constraints:
        corpus=any_of(TOPIC.corpora),
        variant=any_of(TOPIC.variants),
    group:
        "topic_measures"
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=runtime(20, paper=30),
    params:
        seeds=TOPIC.seeds,
        measurement=as_params(TOPIC.measurement),
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
        grid=any_of(TOPIC.grids),
    priority: 1
    group:
        trainings("topic")
    conda:
        CONDA
    resources:
        mem_mb=memory(1500),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        grid=lambda wildcards: as_params(TOPIC.grids[wildcards.grid]),
        seeds=TOPIC.seeds,
        code=code("topic/grid.py"),
    message:
        "Theory against measurement over {wildcards.grid}"
    script:
        "../scripts/topic/grid.py"


rule topic_sweep:
    input:
        corpus=each_seed(TOPIC_CORPUS.replace("{corpus}", TOPIC.sweep.corpus)),
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
    resources:
        mem_mb=memory(1500),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        sweep=as_params(TOPIC.sweep),
        measurement=as_params(TOPIC.measurement),
        seeds=TOPIC.seeds,
        code=code("topic/sweep.py"),
    message:
        "Train W_V and attention under every optimiser and learning rate"
    script:
        "../scripts/topic/sweep.py"


# --- figures ------------------------------------------------------------------------------------


SHOWN = dict(TOPIC.figures)
# Column products are drawn for the variants whose W_V is, key-query products for those whose
# attention is
for name, shown in [
    ("embeddings", SHOWN["embeddings"]),
    ("values", SHOWN["values"]),
    ("column_products", SHOWN["values"]),
    ("key_query", SHOWN["sentences"]),
]:
    if shown:
        figure(
            f"topic/{name}",
            "matrices",
            "Structure in the weights",
            input=topic_panels(
                shown, "weights.safetensors", "run.json", "metrics.json"
            ),
            params={"variants": shown},
            memory=1500,
        )
if SHOWN["sentences"]:
    figure(
        "topic/sentences",
        "sentences",
        "Attention",
        input={  # the first seed
            kind: paths[:: len(TOPIC.seeds)]
            for kind, paths in topic_panels(
                SHOWN["sentences"], "weights.safetensors", "run.json"
            ).items()
        },
        params={"variants": SHOWN["sentences"]},
        memory=1500,
    )
if SHOWN["stages"]:
    figure(
        "topic/stages",
        "stages",
        "Training",
        input={"dynamics": of_variants("topic", SHOWN["stages"], "dynamics.csv")},
        params={"variants": SHOWN["stages"]},
        memory=1500,
    )
for name in ("compensation", "architectures"):
    if SHOWN[name]:
        figure(
            f"topic/{name}",
            "components",
            "Compensation",
            input={"metrics": of_variants("topic", SHOWN[name], "metrics.json")},
            params={
                "variants": SHOWN[name],
                "reference_length": TOPIC.measurement.reference_length,
            },
            memory=1500,
        )
if TOPIC.grids:
    figure(
        "topic/theory",
        "theory",
        "Theory",
        input={"points": expand(rules.topic_grid.output.points, grid=TOPIC.grids)},
        memory=1500,
    )
ATTENDING = [
    (corpus, name)
    for corpus, name in TOPIC_RUNS
    if TOPIC.variants[name].model.attention == "trained"
]
if ATTENDING:
    figure(
        "topic/attention",
        "attention",
        "Attention",
        input={"metrics": topic_runs("metrics.json", ATTENDING)},
        params={"reference_length": TOPIC.measurement.reference_length},
        tables={"table": "results/topic/attention.csv"},
        memory=1500,
    )
figure(
    "topic/sweep",
    "sweep",
    "Training",
    input={"points": rules.topic_sweep.output.points},
    memory=1500,
)
figure(
    "topic/documents",
    "documents",
    "Corpora",
    input={"corpus": expand(TOPIC_CORPUS, corpus=TOPIC.corpora, seed=TOPIC.seeds[0])},
    params={"corpora": [*TOPIC.corpora]},
    memory=1500,
)


# What claims can be measured on. Not `rules.X.output`: in a module it has a prefix, which claims lack
TOPIC_ARTIFACTS = [
    "results/topic/theory.json",
    "results/topic/sweep/summary.json",
    *expand("results/topic/grid/{grid}/summary.json", grid=TOPIC.grids),
    *expand(
        "results/topic/{corpus}/seed{seed}/baselines.json",
        corpus=TOPIC.corpora,
        seed=TOPIC.seeds,
    ),
    *topic_runs("metrics.json"),
]


rule topic:
    input:
        figures_of("topic"),
        "results/topic/runs.csv",
        TOPIC_ARTIFACTS,
        topic_runs("weights.safetensors"),
        topic_runs("checkpoints.safetensors"),
        topic_runs("history.csv"),
        topic_runs("run.json"),
        topic_runs("dynamics.csv"),
