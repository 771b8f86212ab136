# What the embedding study's rules are made of: names from the configuration, and paths.
EMBEDDING = SETTINGS.embedding
EMBEDDING_READINGS = EMBEDDING.present_readings
EMBEDDING_FOLDER = f"results/embedding/{{model}}/{EMBEDDING.reading}"


def embedding_of_models(artifact):
    """An artifact of every model under the reading of experiments and figures."""
    return expand(f"{EMBEDDING_FOLDER}/{artifact}", model=EMBEDDING.models)


# Alignment: pairs of models, and seeds of a variant of the pretraining study
ALIGNED_PAIRS = EMBEDDING.alignment.present_pairs
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
LABELLED = EMBEDDING.finetuning.present_labelled
FINETUNED = EMBEDDING.finetuning.present_runs
ADAPTERS = EMBEDDING.finetuning.present_adapters
CHANGES = [*FINETUNED, *ADAPTERS]
FINETUNING_SEEDS = EMBEDDING.finetuning_seeds
TRANSLATED = EMBEDDING.translation.present_pairs


def finetuned_seeds(run, artifact):
    """An artifact of a fine-tuning, all seeds."""
    return [
        f"results/embedding/finetuning/{run}/seed{seed}/{artifact}"
        for seed in FINETUNING_SEEDS
    ]


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
