# The pretrained models that the configuration names, each brought into a folder once. Snakemake
# knows a folder by its date alone: who reads a model takes the folder as `ancient`, and beside it
# source.json, which has a digest of what is inside.
MODELS = SETTINGS.models
OWN_MODELS = [name for name, model in MODELS.items() if model.kind == "topic"]
PRETRAINED_MODELS = [
    name for name, model in MODELS.items() if model.kind == "pretraining"
]
OTHER_MODELS = [
    name for name in MODELS if name not in [*OWN_MODELS, *PRETRAINED_MODELS]
]


rule model:
    input:
        model_files,
    output:
        folder=directory("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    log:
        "logs/models/{model}.log",
    benchmark:
        "logs/models/{model}.tsv"
    wildcard_constraints:
        model=one_of(OTHER_MODELS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2500),
        runtime=60,
    params:
        model=lambda wildcards: plain(MODELS[wildcards.model]),
        code=code("models/store.py"),
    message:
        "Fetch the model {wildcards.model}"
    script:
        "../scripts/models/store.py"


rule model_of_topic:
    input:
        weights=lambda wildcards: "results/topic/{m.corpus}/{m.variant}/seed{m.seed}/weights.safetensors".format(
            m=MODELS[wildcards.model]
        ),
        run=lambda wildcards: "results/topic/{m.corpus}/{m.variant}/seed{m.seed}/run.json".format(
            m=MODELS[wildcards.model]
        ),
    output:
        folder=directory("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    log:
        "logs/models/{model}.log",
    benchmark:
        "logs/models/{model}.tsv"
    wildcard_constraints:
        model=one_of(OWN_MODELS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        model=lambda wildcards: plain(MODELS[wildcards.model]),
        code=code("models/topic.py"),
    message:
        "Take the model {wildcards.model} from the topic study"
    script:
        "../scripts/models/topic.py"


rule model_of_pretraining:
    input:
        config=pretrained_here("model/config.json"),
        checkpoints=pretrained_here("checkpoints.safetensors"),
        tokenizer=f"results/pretraining/{SETTINGS.pretraining.corpus}/tokenizer/tokenizer.json",
        names=f"results/pretraining/{SETTINGS.pretraining.corpus}/tokenizer/tokenizer_config.json",
    output:
        folder=directory("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    log:
        "logs/models/{model}.log",
    benchmark:
        "logs/models/{model}.tsv"
    wildcard_constraints:
        model=one_of(PRETRAINED_MODELS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=10,
    params:
        model=lambda wildcards: plain(MODELS[wildcards.model]),
        code=code("models/pretraining.py"),
    message:
        "Take the model {wildcards.model} from the pretraining study"
    script:
        "../scripts/models/pretraining.py"
