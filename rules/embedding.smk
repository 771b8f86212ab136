# Every parameter read in vocabulary space: index, heads, experiments, figures, pages.
rule embedding:
    input:
        expand("results/embedding/figures/{figure}.png", figure=EMBEDDING_FIGURES),
        expand(
            "results/embedding/{model}/{reading}/index.parquet",
            model=EMBEDDING.models,
            reading=EMBEDDING_READINGS,
        ),
        EMBEDDING_PAGES,
        EMBEDDING_ARTIFACTS,


rule embedding_index:
    input:
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    output:
        index="results/embedding/{model}/{reading}/index.parquet",
        vocabulary="results/embedding/{model}/{reading}/vocabulary.parquet",
    log:
        "logs/embedding/{model}/{reading}/index.log",
    benchmark:
        "logs/embedding/{model}/{reading}/index.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_readings"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=240),
        gpu=1,
    params:
        reading=lambda wildcards: plain(EMBEDDING_READINGS[wildcards.reading]),
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
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
        words=[local(str(path)) for path in [EMBEDDING.pairs.words] if path],
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
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_readings"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=minutes(60, paper=720),
        gpu=1,
    params:
        reading=lambda wildcards: plain(EMBEDDING_READINGS[wildcards.reading]),
        layers=EMBEDDING.layers,
        pairs=plain(EMBEDDING.pairs),
        golden=lambda wildcards: {
            name: plain(golden)
            for name, golden in EMBEDDING.golden_of(wildcards.model).items()
        },
        code=code("embedding/heads.py"),
    message:
        "Read the heads of {wildcards.model}, {wildcards.reading}"
    script:
        "../scripts/embedding/heads.py"


rule embedding_robustness:
    input:
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
        documents=f"results/text/{EMBEDDING.hidden.corpus}/documents.parquet",
    output:
        table="results/embedding/{model}/{reading}/robustness.csv",
        summary="results/embedding/{model}/{reading}/robustness.json",
    log:
        "logs/embedding/{model}/{reading}/robustness.log",
    benchmark:
        "logs/embedding/{model}/{reading}/robustness.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_readings"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        reading=lambda wildcards: plain(EMBEDDING_READINGS[wildcards.reading]),
        seeds=EMBEDDING.seeds,
        robustness=plain(EMBEDDING.robustness),
        max_length=EMBEDDING.hidden.max_length,
        code=code("embedding/robustness.py"),
    message:
        "Keep k coordinates in {wildcards.model}"
    script:
        "../scripts/embedding/robustness.py"


rule embedding_hidden:
    input:
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
        index="results/embedding/{model}/{reading}/index.parquet",
        documents=f"results/text/{EMBEDDING.hidden.corpus}/documents.parquet",
    output:
        table="results/embedding/{model}/{reading}/hidden.csv",
        summary="results/embedding/{model}/{reading}/hidden.json",
    log:
        "logs/embedding/{model}/{reading}/hidden.log",
    benchmark:
        "logs/embedding/{model}/{reading}/hidden.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_readings"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=minutes(30, paper=120),
        gpu=1,
    params:
        seeds=EMBEDDING.seeds,
        hidden=plain(EMBEDDING.hidden, exclude={"corpus"}),
        code=code("embedding/hidden.py"),
    message:
        "Compare parameters and hidden states of {wildcards.model}"
    script:
        "../scripts/embedding/hidden.py"


rule embedding_related:
    input:
        index="results/embedding/{model}/{reading}/index.parquet",
    output:
        table="results/embedding/{model}/{reading}/related.csv",
        summary="results/embedding/{model}/{reading}/related.json",
    log:
        "logs/embedding/{model}/{reading}/related.log",
    benchmark:
        "logs/embedding/{model}/{reading}/related.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_readings"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=minutes(30, paper=120),
    params:
        seeds=EMBEDDING.seeds,
        k=EMBEDDING.related.k,
        code=code("embedding/related.py"),
    message:
        "Compare related parameters of {wildcards.model}"
    script:
        "../scripts/embedding/related.py"


rule embedding_page_vectors:
    input:
        index="results/embedding/{model}/{reading}/index.parquet",
        vocabulary="results/embedding/{model}/{reading}/vocabulary.parquet",
    output:
        report(
            "results/embedding/{model}/{reading}/vectors.html",
            caption="../report/embedding/vectors.rst",
            category="Embedding study",
            subcategory="Pages to read",
            labels={"figure": "vectors of {model}"},
        ),
    log:
        "logs/embedding/{model}/{reading}/page_vectors.log",
    benchmark:
        "logs/embedding/{model}/{reading}/page_vectors.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        masked=digest(ROOT / "scripts/anatomy/embedding/profanity.txt"),
        code=code("embedding/page_vectors.py"),
    message:
        "Lay out the vectors of {wildcards.model} for reading"
    script:
        "../scripts/embedding/page_vectors.py"


rule embedding_page_heads:
    input:
        heads="results/embedding/{model}/{reading}/heads.parquet",
        pairs="results/embedding/{model}/{reading}/pairs.parquet",
        vocabulary="results/embedding/{model}/{reading}/vocabulary.parquet",
    output:
        report(
            "results/embedding/{model}/{reading}/heads.html",
            caption="../report/embedding/heads.rst",
            category="Embedding study",
            subcategory="Pages to read",
            labels={"figure": "heads of {model}"},
        ),
    log:
        "logs/embedding/{model}/{reading}/page_heads.log",
    benchmark:
        "logs/embedding/{model}/{reading}/page_heads.tsv"
    wildcard_constraints:
        model=one_of(EMBEDDING.models),
        reading=one_of(EMBEDDING_READINGS),
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=10,
    params:
        masked=digest(ROOT / "scripts/anatomy/embedding/profanity.txt"),
        code=code("embedding/page_heads.py"),
    message:
        "Lay out the heads of {wildcards.model} for reading"
    script:
        "../scripts/embedding/page_heads.py"


rule embedding_plot_atlas:
    input:
        tables=embedding_of_models("heads.parquet"),
    output:
        png=report(
            "results/embedding/figures/atlas.png",
            caption="../report/embedding/atlas.rst",
            category="Embedding study",
            subcategory="Heads",
            labels={"figure": "atlas"},
        ),
        svg="results/embedding/figures/atlas.svg",
    log:
        "logs/embedding/figures/atlas.log",
    benchmark:
        "logs/embedding/figures/atlas.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=EMBEDDING.models,
        code=code("embedding/plot_atlas.py"),
    message:
        "Draw the atlas of heads"
    script:
        "../scripts/embedding/plot_atlas.py"


rule embedding_plot_robustness:
    input:
        tables=embedding_of_models("robustness.csv"),
    output:
        png=report(
            "results/embedding/figures/robustness.png",
            caption="../report/embedding/robustness.rst",
            category="Embedding study",
            subcategory="Experiments",
            labels={"figure": "robustness"},
        ),
        svg="results/embedding/figures/robustness.svg",
    log:
        "logs/embedding/figures/robustness.log",
    benchmark:
        "logs/embedding/figures/robustness.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=EMBEDDING.models,
        code=code("embedding/plot_robustness.py"),
    message:
        "Draw what keeping k coordinates leaves"
    script:
        "../scripts/embedding/plot_robustness.py"


rule embedding_plot_hidden:
    input:
        tables=embedding_of_models("hidden.csv"),
    output:
        png=report(
            "results/embedding/figures/{figure}.png",
            caption="../report/embedding/hidden.rst",
            category="Embedding study",
            subcategory="Experiments",
            labels={"figure": "{figure}"},
        ),
        svg="results/embedding/figures/{figure}.svg",
    log:
        "logs/embedding/figures/{figure}.log",
    benchmark:
        "logs/embedding/figures/{figure}.tsv"
    wildcard_constraints:
        figure="hidden|hidden_last",
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=EMBEDDING.models,
        code=code("embedding/plot_hidden.py"),
    message:
        "Draw parameters against hidden states"
    script:
        "../scripts/embedding/plot_hidden.py"


rule embedding_plot_related:
    input:
        tables=embedding_of_models("related.csv"),
    output:
        png=report(
            "results/embedding/figures/related.png",
            caption="../report/embedding/related.rst",
            category="Embedding study",
            subcategory="Experiments",
            labels={"figure": "related"},
        ),
        svg="results/embedding/figures/related.svg",
    log:
        "logs/embedding/figures/related.log",
    benchmark:
        "logs/embedding/figures/related.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=EMBEDDING.models,
        code=code("embedding/plot_related.py"),
    message:
        "Draw how similar related parameters are"
    script:
        "../scripts/embedding/plot_related.py"
