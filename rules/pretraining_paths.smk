# What the pretraining study's rules are made of: names from the configuration, and paths.
PRETRAINING = SETTINGS.pretraining
PRETRAINING_SEEDS = PRETRAINING.seeds
PRETRAINING_VARIANTS = PRETRAINING.variants
PRETRAINING_COMPARISONS = PRETRAINING.comparisons
# Settings of a model that say what it is, not how long or how fast it learns
PRETRAINING_MODEL = {"heads", "window"}


def pretraining_of_variants(variants, artifact):
    """An artifact of some variants, all seeds."""
    return [
        f"results/pretraining/{PRETRAINING.corpus}/{name}/seed{seed}/{artifact}"
        for name in variants
        for seed in PRETRAINING_SEEDS
    ]


def pretraining_variant(name):
    """What a variant is, as plain values; None of no variant."""
    return name and plain(PRETRAINING_VARIANTS[name], include=PRETRAINING_MODEL)


def pretraining_optimisation(*names):
    """Some of the settings of the optimisation, and those that all runs need."""
    shared = {"batch", "warmup", "betas", "weight_decay", "clip"}
    return plain(PRETRAINING.optimisation, include=shared | {*names})


def pretraining_rate(wildcards):
    """Where the learning rate of a variant stands."""
    of = PRETRAINING_VARIANTS[wildcards.variant].rate_of or wildcards.variant
    return f"results/pretraining/{wildcards.corpus}/{of}/tuning/best.json"


def pretraining_tokenizer_source(wildcards):
    """What the tokenizer is made from: files of the corpus, or a pretrained model."""
    if PRETRAINING.tokenizer.model is None:
        return {"files": text_corpus_files(wildcards)}
    model = f"results/models/{PRETRAINING.tokenizer.model}"
    return {"model": ancient(f"{model}/weights"), "source": f"{model}/source.json"}


# a change of the sample that the text study measures on is none of the corpus
PRETRAINING_CORPUS = plain(TEXT_CORPORA[PRETRAINING.corpus], exclude={"sample"})
PRETRAINING_DATA = {
    name: f"results/pretraining/{{corpus}}/data/{file}"
    for name, file in (
        ("train", "train.npy"),
        ("validation", "validation.npy"),
        ("info", "data.json"),
    )
}
PRETRAINING_FIGURES = ["curves", "losses", "cost", "module"]
# What claims can be measured on
PRETRAINING_ARTIFACTS = [
    *expand(
        "results/pretraining/{corpus}/comparisons/{name}.json",
        corpus=PRETRAINING.corpus,
        name=PRETRAINING_COMPARISONS,
    ),
    *pretraining_of_variants(PRETRAINING_VARIANTS, "metrics.json"),
    "results/pretraining/cost.json",
]
