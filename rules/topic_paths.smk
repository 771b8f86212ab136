# What the topic study's rules are made of: names from the configuration, and paths of artifacts.
TOPIC = SETTINGS.topic
TOPIC_SEEDS = TOPIC.seeds
TOPIC_CORPORA = TOPIC.corpora
TOPIC_VARIANTS = TOPIC.variants
TOPIC_GRIDS = TOPIC.grids
TOPIC_SWEEP = TOPIC.sweep
TOPIC_RUNS = [
    (corpus, name)
    for name, variant in TOPIC_VARIANTS.items()
    for corpus in variant.corpora
]
# Trainings of a job per seed, and those of one job for all seeds
TOPIC_APART = [name for name, variant in TOPIC_VARIANTS.items() if variant.job_per_seed]
TOPIC_TOGETHER = [name for name in TOPIC_VARIANTS if name not in TOPIC_APART]


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


def topic_of_figure(variants, artifact):
    """An artifact of some variants, all seeds, each on the first of its corpora."""
    return [
        f"results/topic/{TOPIC_VARIANTS[name].corpora[0]}/{name}/seed{seed}/{artifact}"
        for name in variants
        for seed in TOPIC_SEEDS
    ]


def topic_of_corpora(variants):
    """The corpora of some variants, all seeds, in the order of `topic_of_figure`."""
    return [
        f"results/topic/{TOPIC_VARIANTS[name].corpora[0]}/seed{seed}/corpus.safetensors"
        for name in variants
        for seed in TOPIC_SEEDS
    ]


def topic_of_first_seed(variants, artifact):
    """The same of the first seed only."""
    return topic_of_figure(variants, artifact)[:: len(TOPIC_SEEDS)]


def topic_corpus_files(wildcards):
    """The text files that a corpus is read from; none when it is sampled."""
    corpus = TOPIC_CORPORA[wildcards.corpus]
    files = [getattr(corpus, name, None) for name in ("train", "validation", "table")]
    return [local(str(file)) for file in files if isinstance(file, Path)]


def topic_training(wildcards):
    """What a training is, whatever it is trained on and by which job."""
    return plain(TOPIC_VARIANTS[wildcards.variant], exclude={"corpora", "job_per_seed"})


# The variants that a figure shows. Column products are drawn for the variants whose W_V is, and
# key-query products for those whose attention is.
TOPIC_PANELS = dict(TOPIC.figures)
TOPIC_PANELS["column_products"] = TOPIC_PANELS["values"]
TOPIC_PANELS["key_query"] = TOPIC_PANELS["sentences"]
TOPIC_ATTENDING = [
    (corpus, name)
    for corpus, name in TOPIC_RUNS
    if TOPIC_VARIANTS[name].model.attention == "trained"
]
TOPIC_FIGURES = [
    *(name for name, variants in TOPIC_PANELS.items() if variants),
    *(["theory"] if TOPIC_GRIDS else []),
    *(["attention"] if TOPIC_ATTENDING else []),
    "sweep",
    "documents",
]


# What claims can be measured on
TOPIC_ARTIFACTS = [
    "results/topic/theory.json",
    "results/topic/sweep/summary.json",
    *expand("results/topic/grid/{grid}/summary.json", grid=TOPIC_GRIDS),
    *expand(
        "results/topic/{corpus}/seed{seed}/baselines.json",
        corpus=TOPIC_CORPORA,
        seed=TOPIC_SEEDS,
    ),
    *topic_of_runs("metrics.json"),
]
