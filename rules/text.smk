# Topic structure in real text and pretrained models: corpora, LDA, measurements, figures.
#
# A corpus of the size of Wikipedia, and LDA on it, take hours. They can be shared by all projects of
# a machine: set SNAKEMAKE_OUTPUT_CACHE to a folder and say `--cache`. Snakemake allows no benchmark
# file for what may come from there.
rule text:
    input:
        expand("results/text/figures/{figure}.png", figure=TEXT_FIGURES),
        "results/text/structure.csv",
        TEXT_ARTIFACTS,


rule text_corpus:
    input:
        text_corpus_files,
    output:
        documents="results/text/{corpus}/documents.parquet",
        dictionary="results/text/{corpus}/dictionary.txt",
        bags="results/text/{corpus}/bags.mm",
    log:
        "logs/text/{corpus}/corpus.log",
    wildcard_constraints:
        corpus=one_of(TEXT_CORPORA),
    cache: SHARED
    group:
        "text_corpora"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1500),
        runtime=minutes(30, paper=720),
    params:
        corpus=lambda wildcards: plain(TEXT_CORPORA[wildcards.corpus]),
        dictionary=plain(TEXT.dictionary),
        tfidf=TEXT.lda.tfidf,
        code=code("text/corpus.py"),
    message:
        "Read the corpus {wildcards.corpus}"
    script:
        "../scripts/text/corpus.py"


rule text_topics:
    input:
        documents="results/text/{corpus}/documents.parquet",
        dictionary="results/text/{corpus}/dictionary.txt",
        bags="results/text/{corpus}/bags.mm",
    output:
        topics="results/text/{corpus}/seed{seed}/topics.safetensors",
        mixtures="results/text/{corpus}/seed{seed}/mixtures.safetensors",
        table="results/text/{corpus}/seed{seed}/topics.csv",
        run="results/text/{corpus}/seed{seed}/run.json",
    log:
        "logs/text/{corpus}/seed{seed}/topics.log",
    wildcard_constraints:
        corpus=one_of(TEXT_CORPORA),
        seed=one_of(map(str, TEXT_SEEDS)),
    cache: SHARED
    priority: 1
    group:
        "text_corpora"
    conda:
        CONDA
    threads: TEXT.lda.workers
    resources:
        mem_mb=memory(1500),
        runtime=minutes(60, paper=720),
    params:
        lda=plain(TEXT.lda),
        seed=lambda wildcards: int(wildcards.seed),  # a cache knows no wildcards
        code=code("text/topics.py"),
    message:
        "Fit LDA to {wildcards.corpus}, seed {wildcards.seed}"
    script:
        "../scripts/text/topics.py"


rule text_structure:
    input:
        documents="results/text/{corpus}/documents.parquet",
        topics=text_of_seeds("results/text/{corpus}/seed{seed}/topics.safetensors"),
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    output:
        structure="results/text/{corpus}/{model}/structure.parquet",
        heads="results/text/{corpus}/{model}/heads.parquet",
        cosines="results/text/{corpus}/{model}/cosines.safetensors",
        run="results/text/{corpus}/{model}/run.json",
    log:
        "logs/text/{corpus}/{model}/structure.log",
    benchmark:
        "logs/text/{corpus}/{model}/structure.tsv"
    wildcard_constraints:
        corpus=one_of(TEXT_CORPORA),
        model=one_of(TEXT.models),
    group:
        "text_structures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=240),
        gpu=1,
    params:
        seeds=TEXT_SEEDS,
        filters=plain(TEXT.filters),
        measurement=plain(TEXT.measurement),
        code=code("text/structure.py"),
    message:
        "Measure {wildcards.model} and its controls on {wildcards.corpus}"
    script:
        "../scripts/text/structure.py"


rule text_table:
    input:
        structure=text_of_models("structure.parquet"),
    output:
        "results/text/structure.csv",
    log:
        "logs/text/table.log",
    benchmark:
        "logs/text/table.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("text/table.py"),
    message:
        "One table of all models, corpora and filters"
    script:
        "../scripts/text/table.py"


rule text_plot_attention:
    input:
        table="results/text/structure.csv",
    output:
        png=report(
            "results/text/figures/attention.png",
            caption="../report/text/attention.rst",
            category="Real text",
            subcategory="Attention",
            labels={"figure": "attention"},
        ),
        svg="results/text/figures/attention.svg",
    log:
        "logs/text/figures/attention.log",
    benchmark:
        "logs/text/figures/attention.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        reference=plain(TEXT.measurement.reference),
        code=code("text/plot_attention.py"),
    message:
        "Draw attention by topic in pretrained models"
    script:
        "../scripts/text/plot_attention.py"


rule text_plot_heads:
    input:
        heads=text_of_first_corpus("heads.parquet"),
    output:
        png=report(
            "results/text/figures/heads.png",
            caption="../report/text/heads.rst",
            category="Real text",
            subcategory="Attention",
            labels={"figure": "heads"},
        ),
        svg="results/text/figures/heads.svg",
    log:
        "logs/text/figures/heads.log",
    benchmark:
        "logs/text/figures/heads.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=TEXT.models,
        reference=plain(TEXT.measurement.reference),
        code=code("text/plot_heads.py"),
    message:
        "Draw attention by topic, head by head"
    script:
        "../scripts/text/plot_heads.py"


rule text_plot_filters:
    input:
        table="results/text/structure.csv",
    output:
        png=report(
            "results/text/figures/filters.png",
            caption="../report/text/filters.rst",
            category="Real text",
            subcategory="Attention",
            labels={"figure": "filters"},
        ),
        svg="results/text/figures/filters.svg",
    log:
        "logs/text/figures/filters.log",
    benchmark:
        "logs/text/figures/filters.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("text/plot_filters.py"),
    message:
        "Draw structure against the filter of words"
    script:
        "../scripts/text/plot_filters.py"


rule text_plot_embeddings:
    input:
        cosines=text_of_first_corpus("cosines.safetensors"),
    output:
        png=report(
            "results/text/figures/embeddings.png",
            caption="../report/text/embeddings.rst",
            category="Real text",
            subcategory="Embeddings",
            labels={"figure": "embeddings"},
        ),
        svg="results/text/figures/embeddings.svg",
    log:
        "logs/text/figures/embeddings.log",
    benchmark:
        "logs/text/figures/embeddings.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=TEXT.models,
        code=code("text/plot_embeddings.py"),
    message:
        "Draw cosines of words, by topic"
    script:
        "../scripts/text/plot_embeddings.py"


rule text_plot_topics:
    input:
        tables=text_of_corpora("topics.csv"),
    output:
        png=report(
            "results/text/figures/topics.png",
            caption="../report/text/topics.rst",
            category="Real text",
            subcategory="Corpora",
            labels={"figure": "topics"},
        ),
        svg="results/text/figures/topics.svg",
    log:
        "logs/text/figures/topics.log",
    benchmark:
        "logs/text/figures/topics.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        corpora=list(TEXT_CORPORA),
        code=code("text/plot_topics.py"),
    message:
        "Draw the topics of the corpora"
    script:
        "../scripts/text/plot_topics.py"


rule text_plot_documents:
    input:
        mixtures=text_of_corpora("mixtures.safetensors"),
    output:
        png=report(
            "results/text/figures/documents.png",
            caption="../report/text/documents.rst",
            category="Real text",
            subcategory="Corpora",
            labels={"figure": "documents"},
        ),
        svg="results/text/figures/documents.svg",
    log:
        "logs/text/figures/documents.log",
    benchmark:
        "logs/text/figures/documents.tsv"
    group:
        "text_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        corpora=list(TEXT_CORPORA),
        code=code("text/plot_documents.py"),
    message:
        "Draw how many topics documents have"
    script:
        "../scripts/text/plot_documents.py"
