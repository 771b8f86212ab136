# Topic structure in real text and pretrained models: corpora, LDA, measurements, figures.
#
# A corpus of the size of Wikipedia, and LDA on it, take hours. Projects on one machine can share
# them: set SNAKEMAKE_OUTPUT_CACHE to a folder and add `--cache`. Snakemake allows no benchmark file
# for rules whose outputs may come from the cache.
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
        corpus=any_of(TEXT.corpora),
    cache: SHARED
    group:
        "text_corpora"
    conda:
        CONDA
    resources:
        mem_mb=memory(1500),
        runtime=runtime(30, paper=720),
    params:
        corpus=lambda wildcards: as_params(TEXT.corpora[wildcards.corpus]),
        dictionary=as_params(TEXT.dictionary),
        tfidf=TEXT.lda.tfidf,
        code=code("text/corpus.py"),
    message:
        "Read the corpus {wildcards.corpus}"
    script:
        "../scripts/text/corpus.py"


rule text_topics:
    input:
        **named(rules.text_corpus.output),
    output:
        topics="results/text/{corpus}/seed{seed}/topics.safetensors",
        mixtures="results/text/{corpus}/seed{seed}/mixtures.safetensors",
        table="results/text/{corpus}/seed{seed}/topics.csv",
        run="results/text/{corpus}/seed{seed}/run.json",
    log:
        "logs/text/{corpus}/seed{seed}/topics.log",
    wildcard_constraints:
        corpus=any_of(TEXT.corpora),
        seed=seed_of(TEXT),
    cache: SHARED
    priority: 1
    group:
        "text_corpora"
    conda:
        CONDA
    threads: TEXT.lda.workers
    resources:
        mem_mb=memory(1500),
        runtime=runtime(60, paper=720),
    params:
        lda=as_params(TEXT.lda),
        seed=lambda wildcards: int(wildcards.seed),  # the cache's key has params, not wildcards
        code=code("text/topics.py"),
    message:
        "Fit LDA to {wildcards.corpus}, seed {wildcards.seed}"
    script:
        "../scripts/text/topics.py"


rule text_structure:
    input:
        **stored_model("{model}"),
        documents=rules.text_corpus.output.documents,
        topics=each_seed("results/text/{corpus}/seed{seed}/topics.safetensors"),
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
        corpus=any_of(TEXT.corpora),
        model=any_of(TEXT.models),
    group:
        "text_structures"
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=240),
        gpu=1,
    params:
        seeds=TEXT.seeds,
        filters=as_params(TEXT.filters),
        measurement=as_params(TEXT.measurement),
        code=code("text/structure.py"),
    message:
        "Measure {wildcards.model} and its controls on {wildcards.corpus}"
    script:
        "../scripts/text/structure.py"


rule text_table:
    input:
        structure=text_models("structure.parquet"),
    output:
        "results/text/structure.csv",
    log:
        "logs/text/table.log",
    benchmark:
        "logs/text/table.tsv"
    conda:
        CONDA
    params:
        code=code("text/table.py"),
    message:
        "One table of all models, corpora and filters"
    script:
        "../scripts/text/table.py"


# --- figures ------------------------------------------------------------------------------------

FIRST_CORPUS = [*TEXT.corpora][:1]
FIRST_FIT = f"results/text/{{corpus}}/seed{TEXT.seeds[0]}"
REFERENCE = {"reference": as_params(TEXT.measurement.reference)}
TABLE = {"table": rules.text_table.output[0]}
for name, subcategory, input, params in [
    ("attention", "Attention", TABLE, REFERENCE),
    (
        "heads",
        "Attention",
        {"heads": text_models("heads.parquet", FIRST_CORPUS)},
        {"models": TEXT.models} | REFERENCE,
    ),
    ("filters", "Attention", TABLE, {}),
    (
        "embeddings",
        "Embeddings",
        {"cosines": text_models("cosines.safetensors", FIRST_CORPUS)},
        {"models": TEXT.models},
    ),
    (
        "topics",
        "Corpora",
        {"tables": expand(f"{FIRST_FIT}/topics.csv", corpus=TEXT.corpora)},
        {"corpora": [*TEXT.corpora]},
    ),
    (
        "documents",
        "Corpora",
        {"mixtures": expand(f"{FIRST_FIT}/mixtures.safetensors", corpus=TEXT.corpora)},
        {"corpora": [*TEXT.corpora]},
    ),
]:
    figure(f"text/{name}", name, subcategory, input=input, params=params)


# What claims can be measured on
TEXT_ARTIFACTS = [
    *text_models("run.json"),
    *expand(
        "results/text/{corpus}/seed{seed}/run.json",
        corpus=TEXT.corpora,
        seed=TEXT.seeds,
    ),
]


rule text:
    input:
        figures_of("text"),
        rules.text_table.output,
        TEXT_ARTIFACTS,
