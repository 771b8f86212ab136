# The pretrained models that the configuration names, each stored in a folder once.
rule model:
    input:
        unpack(model_source),
    output:
        folder=directory("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    log:
        "logs/models/{model}.log",
    benchmark:
        "logs/models/{model}.tsv"
    wildcard_constraints:
        model=any_of(MODELS),
    conda:
        CONDA
    resources:
        mem_mb=memory(2500),
        runtime=60,
    params:
        model=lambda wildcards: as_params(MODELS[wildcards.model]),
        code=code("models/store.py"),
    message:
        "Store the model {wildcards.model}"
    script:
        "../scripts/models/store.py"
