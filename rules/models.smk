# The pretrained models that the configuration names, each brought into a folder once.
MODELS = SETTINGS.present_models


rule model:
    output:
        folder=directory("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    log:
        "logs/models/{model}.log",
    benchmark:
        "logs/models/{model}.tsv"
    wildcard_constraints:
        model=one_of(MODELS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=2500,
        runtime=60,
    params:
        model=lambda wildcards: plain(MODELS[wildcards.model]),
        code=code("models/store.py"),
    message:
        "Fetch the model {wildcards.model}"
    script:
        "../scripts/models/store.py"
