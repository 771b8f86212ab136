# Every parameter read in vocabulary space: index, heads, experiments, figures, pages.
rule embedding_index:
    input:
        **stored_model("{model}"),
    output:
        index="results/embedding/{model}/{reading}/index.parquet",
        vocabulary="results/embedding/{model}/{reading}/vocabulary.parquet",
    log:
        "logs/embedding/{model}/{reading}/index.log",
    benchmark:
        "logs/embedding/{model}/{reading}/index.tsv"
    wildcard_constraints:
        model=any_of(EMBEDDING.models),
        reading=any_of(EMBEDDING.readings),
    group:
        "embedding_readings"
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=240),
        gpu=1,
    params:
        reading=lambda wildcards: as_params(EMBEDDING.readings[wildcards.reading]),
        layers=EMBEDDING.layers,
        top=EMBEDDING.top,
        directions=EMBEDDING.directions,
        code=code("embedding/index.py"),
    message:
        "Index the parameter vectors of {wildcards.model}, {wildcards.reading}"
    script:
        "../scripts/embedding/index.py"


rule embedding_heads:
    input:
        **stored_model("{model}"),
        words=local_file(EMBEDDING.pairs.words),
    output:
        heads="results/embedding/{model}/{reading}/heads.parquet",
        pairs="results/embedding/{model}/{reading}/pairs.parquet",
        rows="results/embedding/{model}/{reading}/rows.parquet",
        summary="results/embedding/{model}/{reading}/heads.json",
    log:
        "logs/embedding/{model}/{reading}/heads.log",
    benchmark:
        "logs/embedding/{model}/{reading}/heads.tsv"
    wildcard_constraints:
        model=any_of(EMBEDDING.models),
        reading=any_of(EMBEDDING.readings),
    group:
        "embedding_readings"
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=runtime(60, paper=720),
        gpu=1,
    params:
        reading=lambda wildcards: as_params(EMBEDDING.readings[wildcards.reading]),
        layers=EMBEDDING.layers,
        pairs=as_params(EMBEDDING.pairs),
        golden=lambda wildcards: {
            name: as_params(golden)
            for name, golden in EMBEDDING.golden_of(wildcards.model).items()
        },
        code=code("embedding/heads.py"),
    message:
        "Read the heads of {wildcards.model}, {wildcards.reading}"
    script:
        "../scripts/embedding/heads.py"


rule embedding_robustness:
    input:
        **stored_model("{model}"),
        documents=f"results/text/{EMBEDDING.hidden.corpus}/documents.parquet",
    output:
        table="results/embedding/{model}/{reading}/robustness.csv",
        summary="results/embedding/{model}/{reading}/robustness.json",
    log:
        "logs/embedding/{model}/{reading}/robustness.log",
    benchmark:
        "logs/embedding/{model}/{reading}/robustness.tsv"
    wildcard_constraints:
        model=any_of(EMBEDDING.models),
        reading=any_of(EMBEDDING.readings),
    group:
        "embedding_readings"
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        reading=lambda wildcards: as_params(EMBEDDING.readings[wildcards.reading]),
        seeds=EMBEDDING.seeds,
        robustness=as_params(EMBEDDING.robustness),
        max_length=EMBEDDING.hidden.max_length,
        code=code("embedding/robustness.py"),
    message:
        "Keep k coordinates in {wildcards.model}"
    script:
        "../scripts/embedding/robustness.py"


rule embedding_hidden:
    input:
        **stored_model("{model}"),
        index=rules.embedding_index.output.index,
        documents=f"results/text/{EMBEDDING.hidden.corpus}/documents.parquet",
    output:
        table="results/embedding/{model}/{reading}/hidden.csv",
        summary="results/embedding/{model}/{reading}/hidden.json",
    log:
        "logs/embedding/{model}/{reading}/hidden.log",
    benchmark:
        "logs/embedding/{model}/{reading}/hidden.tsv"
    wildcard_constraints:
        model=any_of(EMBEDDING.models),
        reading=any_of(EMBEDDING.readings),
    group:
        "embedding_readings"
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=runtime(30, paper=120),
        gpu=1,
    params:
        seeds=EMBEDDING.seeds,
        hidden=as_params(EMBEDDING.hidden, exclude={"corpus"}),
        code=code("embedding/hidden.py"),
    message:
        "Compare parameters and hidden states of {wildcards.model}"
    script:
        "../scripts/embedding/hidden.py"


rule embedding_related:
    input:
        index=rules.embedding_index.output.index,
    output:
        table="results/embedding/{model}/{reading}/related.csv",
        summary="results/embedding/{model}/{reading}/related.json",
    log:
        "logs/embedding/{model}/{reading}/related.log",
    benchmark:
        "logs/embedding/{model}/{reading}/related.tsv"
    wildcard_constraints:
        model=any_of(EMBEDDING.models),
        reading=any_of(EMBEDDING.readings),
    group:
        "embedding_readings"
    conda:
        CONDA
    resources:
        mem_mb=memory(2000),
        runtime=runtime(30, paper=120),
    params:
        seeds=EMBEDDING.seeds,
        k=EMBEDDING.related.k,
        code=code("embedding/related.py"),
    message:
        "Compare related parameters of {wildcards.model}"
    script:
        "../scripts/embedding/related.py"


# --- figures and pages --------------------------------------------------------------------------

for name, drawing, subcategory, table in [
    ("atlas", "atlas", "Heads", "heads.parquet"),
    ("robustness", "robustness", "Experiments", "robustness.csv"),
    ("hidden", "hidden", "Experiments", "hidden.csv"),
    ("hidden_last", "hidden", "Experiments", "hidden.csv"),
    ("related", "related", "Experiments", "related.csv"),
]:
    figure(
        f"embedding/{name}",
        drawing,
        subcategory,
        input={"tables": embedding_models(table)},
        params={"models": EMBEDDING.models},
    )
# The word list is no input: results that move away from the checkout would be made again
MASKED = {"masked": digest(ROOT / "scripts/anatomy/embedding/profanity.txt")}
PAGES = {"model": EMBEDDING.models, "reading": [READING]}
page(
    "embedding",
    "vectors",
    "embedding/{model}/{reading}/vectors.html",
    "vectors of {model}",
    input=named(rules.embedding_index.output),
    params=MASKED,
    constraints=PAGES,
)
page(
    "embedding",
    "heads",
    "embedding/{model}/{reading}/heads.html",
    "heads of {model}",
    input={
        "heads": rules.embedding_heads.output.heads,
        "pairs": rules.embedding_heads.output.pairs,
        "vocabulary": rules.embedding_index.output.vocabulary,
    },
    params=MASKED,
    constraints=PAGES,
)
