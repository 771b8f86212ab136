# What the LEGO study's rules are made of: names from the configuration, and paths.
LEGO = SETTINGS.lego
LEGO_SEEDS = LEGO.seeds
LEGO_TASKS = LEGO.tasks
LEGO_VARIANTS = LEGO.variants


def lego_of_seeds(pattern):
    """The pattern for every seed, other wildcards left alone."""
    return expand(pattern, seed=LEGO_SEEDS, allow_missing=True)


def lego_of_variants(variants, artifact):
    """An artifact of some variants, all seeds."""
    return [
        f"results/lego/{LEGO_VARIANTS[name].task}/{name}/seed{seed}/{artifact}"
        for name in variants
        for seed in LEGO_SEEDS
    ]


def lego_variant(wildcards):
    """What a variant trains."""
    return plain(LEGO_VARIANTS[wildcards.variant], exclude={"probing"})


def lego_pretrained(wildcards):
    """The pretrained model that a variant starts from; nothing if it starts at random weights."""
    pretrained = LEGO_VARIANTS[wildcards.variant].pretrained
    if pretrained is None:
        return {}
    return {
        "model": ancient(f"results/models/{pretrained.model}/weights"),
        "source": f"results/models/{pretrained.model}/source.json",
    }


def lego_of_panels(artifact):
    """The same of the variants of a figure."""
    return lambda wildcards: lego_of_variants(LEGO_PANELS[wildcards.figure], artifact)


LEGO_PANELS = dict(LEGO.figures)
LEGO_FIGURES = [
    *(name for name, variants in LEGO_PANELS.items() if variants),
    "task",
    *(["patterns", "heads"] if LEGO.pretrained else []),
]
LEGO_COMPARISONS = LEGO.comparisons
# What claims can be measured on
LEGO_ARTIFACTS = [
    *expand("results/lego/comparisons/{name}.json", name=LEGO_COMPARISONS),
    *lego_of_variants(LEGO_VARIANTS, "metrics.json"),
    *expand("results/lego/heads/{model}/run.json", model=LEGO.pretrained),
]
