# What the embedding study's rules are made of: names from the configuration, and paths.
EMBEDDING = SETTINGS.embedding
EMBEDDING_READINGS = EMBEDDING.readings
EMBEDDING_FOLDER = f"results/embedding/{{model}}/{EMBEDDING.reading}"


def embedding_of_models(artifact):
    """An artifact of every model under the reading of experiments and figures."""
    return expand(f"{EMBEDDING_FOLDER}/{artifact}", model=EMBEDDING.models)


# Alignment: pairs of models, and seeds of a variant of the pretraining study
ALIGNED_PAIRS = EMBEDDING.alignment.pairs
ALIGNED_TRAINING = EMBEDDING.alignment.training
ALIGNED_SEEDS = []
if ALIGNED_TRAINING is not None:
    ALIGNED_SEEDS = ALIGNED_TRAINING.seeds or SETTINGS.pretraining.seeds


def aligned_seeds(artifact):
    """An artifact of the aligned trainings, all seeds."""
    return [
        f"results/pretraining/{SETTINGS.pretraining.corpus}/{ALIGNED_TRAINING.variant}/seed{seed}/{artifact}"
        for seed in ALIGNED_SEEDS
    ]


# Fine-tuning, reading what it changes, and translating what it made
LABELLED = EMBEDDING.finetuning.labelled
FINETUNED = EMBEDDING.finetuning.runs
ADAPTERS = EMBEDDING.finetuning.adapters
CHANGES = [*FINETUNED, *ADAPTERS]
FINETUNING_SEEDS = EMBEDDING.finetuning_seeds
TRANSLATED = EMBEDDING.translation.pairs


def finetuned_seeds(run, artifact):
    """An artifact of a fine-tuning, all seeds."""
    return [
        f"results/embedding/finetuning/{run}/seed{seed}/{artifact}"
        for seed in FINETUNING_SEEDS
    ]


def labelled_files(wildcards):
    """The table that labelled text is read from; none when a package or the hub has it."""
    path = getattr(LABELLED[wildcards.data], "path", None)
    return [local(str(path))] if path else []


def finetuned_model(artifact):
    """What gives a file of the model that a run or an adapter is of."""
    return lambda wildcards: f"results/models/{changed(wildcards.run).model}/{artifact}"


def changed(name):
    """The settings of a run or an adapter."""
    return FINETUNED.get(name) or ADAPTERS[name]


def changes(wildcards):
    """The files that have what was changed: trained weights of all seeds, or an adapter's."""
    if wildcards.run in FINETUNED:
        return finetuned_seeds(wildcards.run, "weights.safetensors")
    return [local(f"{ADAPTERS[wildcards.run].path}/adapter_model.safetensors")]


def adapter_config(wildcards):
    """The configuration of an adapter; nothing for a run."""
    if wildcards.run in FINETUNED:
        return []
    return [local(f"{ADAPTERS[wildcards.run].path}/adapter_config.json")]


def translated(wildcards):
    """The settings of the fine-tuned run whose upper layers a pair uses."""
    return FINETUNED[TRANSLATED[wildcards.pair].upper]


EMBEDDING_FIGURES = ["atlas", "robustness", "hidden", "hidden_last", "related"]
EMBEDDING_FIGURES += expand("alignment/{pair}", pair=ALIGNED_PAIRS)
EMBEDDING_FIGURES += ["alignment_over_training"] if ALIGNED_SEEDS else []
EMBEDDING_FIGURES += ["lexicon"] if CHANGES else []
EMBEDDING_FIGURES += ["translation"] if TRANSLATED else []
EMBEDDING_PAGES = [
    *embedding_of_models("vectors.html"),
    *embedding_of_models("heads.html"),
]
# What claims can be measured on
EMBEDDING_ARTIFACTS = [
    path
    for artifact in ("robustness", "hidden", "related", "heads")
    for path in embedding_of_models(f"{artifact}.json")
]
EMBEDDING_ARTIFACTS += expand(
    "results/embedding/alignment/{pair}/alignment.json", pair=ALIGNED_PAIRS
)
EMBEDDING_ARTIFACTS += (
    ["results/embedding/alignment/over_training.json"] if ALIGNED_SEEDS else []
)
EMBEDDING_PAGES += expand(
    "results/embedding/finetuning/{run}/difference.html", run=CHANGES
)
EMBEDDING_ARTIFACTS += expand(
    "results/embedding/finetuning/{run}/accuracy.json", run=FINETUNED
)
EMBEDDING_ARTIFACTS += expand(
    "results/embedding/finetuning/{run}/lexicon.json", run=CHANGES
)
EMBEDDING_ARTIFACTS += expand(
    "results/embedding/translation/{pair}/translation.json", pair=TRANSLATED
)
