# Names, input functions and params of all studies. Snakemake's lint asks for functions and rules in
# separate files.
from scripts.anatomy.models.store import TOKENIZER, WANTED

# --- models ----------------------------------------------------------------------------------

MODELS = SETTINGS.models


def model_source(wildcards):
    """Return what a model is made from; nothing if a package or the hub has it."""
    model = MODELS[wildcards.model]
    match model.kind:
        case "topic":
            run = f"results/topic/{model.corpus}/{model.variant}/seed{model.seed}"
            return {"weights": f"{run}/weights.safetensors", "run": f"{run}/run.json"}
        case "pretraining":
            study = "results/pretraining"
            run = f"{study}/{RUNS['pretraining'](model.variant)}/seed{model.seed}"
            tokenizer = f"{study}/{SETTINGS.pretraining.corpus}/tokenizer"
            return {
                "config": f"{run}/model/config.json",
                "checkpoints": f"{run}/checkpoints.safetensors",
                "tokenizer": f"{tokenizer}/tokenizer.json",
                "names": f"{tokenizer}/tokenizer_config.json",
            }
        case "folder":
            patterns = [*WANTED, *TOKENIZER]
            files = [file for p in patterns for file in sorted(model.path.glob(p))]
            return {"files": [local(str(file)) for file in files]}
    return {}


# --- the topic study -------------------------------------------------------------------------

TOPIC = SETTINGS.topic
# Every training, as its corpus and variant
TOPIC_RUNS = [
    (corpus, name)
    for name, variant in TOPIC.variants.items()
    for corpus in variant.corpora
]
TOPIC_RUN = "results/topic/{corpus}/{variant}/seed{seed}"
TOPIC_CORPUS = "results/topic/{corpus}/seed{seed}/corpus.safetensors"


def topic_runs(artifact, runs=TOPIC_RUNS):
    """Return an artifact of every training, or of some: of each corpus, variant and seed."""
    return [
        path
        for corpus, variant in runs
        for path in each_seed(
            f"results/topic/{corpus}/{variant}/seed{{seed}}/{artifact}"
        )
    ]


def topic_corpus_files(wildcards):
    """Return the text files that a corpus is read from; none if it is sampled."""
    corpus = TOPIC.corpora[wildcards.corpus]
    files = [getattr(corpus, name, None) for name in ("train", "validation", "table")]
    return [local(str(file)) for file in files if isinstance(file, Path)]


def topic_training(wildcards):
    """Return what a training is, whatever it is trained on and by which job."""
    return as_params(
        TOPIC.variants[wildcards.variant], exclude={"corpora", "job_per_seed"}
    )


def topic_panels(variants, *artifacts):
    """Return artifacts of some variants, every seed, and under `corpus` their corpora."""
    corpora = [TOPIC.variants[name].corpora[0] for name in variants]
    files = {
        artifact.split(".")[0]: of_variants("topic", variants, artifact)
        for artifact in artifacts
    }
    paths = expand(TOPIC_CORPUS, zip, corpus=corpora, allow_missing=True)
    return {"corpus": [path for one in paths for path in each_seed(one)], **files}


# --- the study of real text ------------------------------------------------------------------

TEXT = SETTINGS.text


def text_models(artifact, corpora=TEXT.corpora):
    """Return an artifact of every model on every corpus, or on some."""
    return expand(
        f"results/text/{{corpus}}/{{model}}/{artifact}",
        corpus=corpora,
        model=TEXT.models,
    )


def text_corpus_files(wildcards):
    """Return the file that a corpus is read from; none if a package or the hub has it."""
    return local_file(getattr(TEXT.corpora[wildcards.corpus], "path", None))


# --- the embedding study ---------------------------------------------------------------------

EMBEDDING = SETTINGS.embedding
READING = EMBEDDING.reading
EMBEDDED = {"model": EMBEDDING.models, "reading": EMBEDDING.readings}


def embedding_models(artifact):
    """Return an artifact of every model under the reading of experiments and figures."""
    return expand(
        f"results/embedding/{{model}}/{READING}/{artifact}", model=EMBEDDING.models
    )


# --- alignment -------------------------------------------------------------------------------

ALIGNED = EMBEDDING.alignment.pairs
ALIGNED_TRAINING = EMBEDDING.alignment.training
ALIGNED_SEEDS = []
if ALIGNED_TRAINING is not None:
    ALIGNED_SEEDS = ALIGNED_TRAINING.seeds or SETTINGS.pretraining.seeds


def aligned_seeds(artifact):
    """Return an artifact of the aligned trainings, every seed."""
    return [
        f"results/pretraining/{RUNS['pretraining'](ALIGNED_TRAINING.variant)}/seed{seed}/{artifact}"
        for seed in ALIGNED_SEEDS
    ]


# --- fine-tuning and translation -------------------------------------------------------------

LABELLED = EMBEDDING.finetuning.labelled
FINETUNED = EMBEDDING.finetuning.runs
ADAPTERS = EMBEDDING.finetuning.adapters
CHANGES = {**FINETUNED, **ADAPTERS}
FINETUNED_SEEDS = EMBEDDING.finetuning_seeds
TRANSLATED = EMBEDDING.translation.pairs


def finetuned_seeds(run, artifact):
    """Return an artifact of a fine-tuning, every seed."""
    return [
        f"results/embedding/finetuning/{run}/seed{seed}/{artifact}"
        for seed in FINETUNED_SEEDS
    ]


def labelled_files(wildcards):
    """Return the table that labelled text is read from; none if a package or the hub has it."""
    return local_file(getattr(LABELLED[wildcards.data], "path", None))


def changed_model(wildcards):
    """Return the model that a run or an adapter changes."""
    return stored_model(CHANGES[wildcards.run].model)


def changes(wildcards):
    """Return the files of a change: trained weights of all seeds, or an adapter's."""
    if wildcards.run in FINETUNED:
        return finetuned_seeds(wildcards.run, "weights.safetensors")
    return local_file(f"{ADAPTERS[wildcards.run].path}/adapter_model.safetensors")


def adapter_config(wildcards):
    """Return the configuration of an adapter; nothing for a run."""
    if wildcards.run in FINETUNED:
        return []
    return local_file(f"{ADAPTERS[wildcards.run].path}/adapter_config.json")


def translated(wildcards):
    """Return the settings of the fine-tuned run whose upper layers a pair uses."""
    return FINETUNED[TRANSLATED[wildcards.pair].upper]


# --- the LEGO study --------------------------------------------------------------------------

LEGO = SETTINGS.lego


def lego_variant(wildcards):
    """Return what a variant trains."""
    return as_params(LEGO.variants[wildcards.variant], exclude={"probing"})


def lego_pretrained(wildcards):
    """Return the pretrained model that a variant starts from; nothing for random weights."""
    pretrained = LEGO.variants[wildcards.variant].pretrained
    return {} if pretrained is None else stored_model(pretrained.model)


# --- the pretraining study -------------------------------------------------------------------

PRETRAINING = SETTINGS.pretraining
PRETRAINING_RUN = "results/pretraining/{corpus}/{variant}/seed{seed}"
# The sample that the text study measures on is not part of the corpus
PRETRAINING_CORPUS = as_params(TEXT.corpora[PRETRAINING.corpus], exclude={"sample"})


def pretraining_variant(name):
    """Return what a variant is, but not how long or fast it learns; None of no variant."""
    return name and as_params(PRETRAINING.variants[name], include={"heads", "window"})


def pretraining_optimisation(*names):
    """Return some settings of the optimisation, and those that all runs need."""
    shared = {"batch", "warmup", "betas", "weight_decay", "clip"}
    return as_params(PRETRAINING.optimisation, include=shared | {*names})


def pretraining_rate(wildcards):
    """Return the file with the learning rate of a variant."""
    tuned = PRETRAINING.variants[wildcards.variant].rate_of or wildcards.variant
    return f"results/pretraining/{wildcards.corpus}/{tuned}/tuning/best.json"


def pretraining_tokenizer_source(wildcards):
    """Return what the tokenizer is made from: files of the corpus, or a pretrained model."""
    if PRETRAINING.tokenizer.model is None:
        return {"files": text_corpus_files(wildcards)}
    return stored_model(PRETRAINING.tokenizer.model)


def pretrained_variants(artifact):
    """Return an artifact of all variants, every seed."""
    return of_variants("pretraining", PRETRAINING.variants, artifact)


def of_corpus(output):
    """Return an output on the corpus of the study."""
    return expand(output, corpus=PRETRAINING.corpus)


# --- reports ---------------------------------------------------------------------------------

# An artifact of every run, by the studies that train variants
STUDY_RUNS = {
    "topic": topic_runs,
    "lego": lambda artifact: of_variants("lego", LEGO.variants, artifact),
    "pretraining": pretrained_variants,
}
# Where comparisons of variants are, and their study
COMPARED = {"lego": LEGO, f"pretraining/{PRETRAINING.corpus}": PRETRAINING}


def compared(wildcards):
    """Return the settings of a comparison."""
    return COMPARED[wildcards.folder].comparisons[wildcards.comparison]


def compared_metrics(wildcards):
    """Return the metrics of the variants of a comparison, every seed."""
    study, comparison = wildcards.folder.split("/")[0], compared(wildcards)
    return {
        side: of_variants(
            study, filter(None, [getattr(comparison, side)]), "metrics.json"
        )
        for side in ("variant", "baseline", "normalise_by")
    }
