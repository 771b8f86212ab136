# Two models side by side in vocabulary space: pairs of the models, and seeds trained here.


rule embedding_align:
    input:
        a=lambda wildcards: ancient(
            f"results/models/{ALIGNED_PAIRS[wildcards.pair].a}/weights"
        ),
        b=lambda wildcards: ancient(
            f"results/models/{ALIGNED_PAIRS[wildcards.pair].b}/weights"
        ),
        sources=lambda wildcards: [
            f"results/models/{name}/source.json"
            for name in (
                ALIGNED_PAIRS[wildcards.pair].a,
                ALIGNED_PAIRS[wildcards.pair].b,
            )
        ],
    output:
        table="results/embedding/alignment/{pair}/assignment.csv",
        summary="results/embedding/alignment/{pair}/alignment.json",
        run="results/embedding/alignment/{pair}/run.json",
    log:
        "logs/embedding/alignment/{pair}/align.log",
    benchmark:
        "logs/embedding/alignment/{pair}/align.tsv"
    wildcard_constraints:
        pair=one_of(ALIGNED_PAIRS),
    group:
        "embedding_alignments"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=240),
        gpu=1,
    params:
        pair=lambda wildcards: plain(ALIGNED_PAIRS[wildcards.pair]),
        seeds=EMBEDDING.seeds,
        draws=EMBEDDING.alignment.draws,
        code=code("embedding/align.py"),
    message:
        "Align the models of the pair {wildcards.pair}"
    script:
        "../scripts/embedding/align.py"


rule embedding_align_over_training:
    input:
        config=aligned_seeds("model/config.json"),
        checkpoints=aligned_seeds("checkpoints.safetensors"),
    output:
        table="results/embedding/alignment/over_training.csv",
        summary="results/embedding/alignment/over_training.json",
    log:
        "logs/embedding/alignment/over_training.log",
    benchmark:
        "logs/embedding/alignment/over_training.tsv"
    group:
        "embedding_alignments"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(60, paper=720),
        gpu=1,
    params:
        seeds=ALIGNED_SEEDS,
        draws=EMBEDDING.alignment.draws,
        code=code("embedding/align_over_training.py"),
    message:
        "Align models of different seeds over their training"
    script:
        "../scripts/embedding/align_over_training.py"


rule embedding_plot_alignment:
    input:
        table="results/embedding/alignment/{pair}/assignment.csv",
    output:
        png=report(
            "results/embedding/figures/alignment/{pair}.png",
            caption="../report/embedding/alignment.rst",
            category="Embedding study",
            subcategory="Alignment",
            labels={"figure": "alignment of {pair}"},
        ),
        svg="results/embedding/figures/alignment/{pair}.svg",
    log:
        "logs/embedding/figures/alignment/{pair}.log",
    benchmark:
        "logs/embedding/figures/alignment/{pair}.tsv"
    wildcard_constraints:
        pair=one_of(ALIGNED_PAIRS),
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=lambda wildcards: [
            ALIGNED_PAIRS[wildcards.pair].a,
            ALIGNED_PAIRS[wildcards.pair].b,
        ],
        code=code("embedding/plot_alignment.py"),
    message:
        "Draw which layers of {wildcards.pair} go together"
    script:
        "../scripts/embedding/plot_alignment.py"


rule embedding_plot_over_training:
    input:
        table="results/embedding/alignment/over_training.csv",
    output:
        png=report(
            "results/embedding/figures/alignment_over_training.png",
            caption="../report/embedding/alignment_over_training.rst",
            category="Embedding study",
            subcategory="Alignment",
            labels={"figure": "alignment over training"},
        ),
        svg="results/embedding/figures/alignment_over_training.svg",
    log:
        "logs/embedding/figures/alignment_over_training.log",
    benchmark:
        "logs/embedding/figures/alignment_over_training.tsv"
    group:
        "embedding_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("embedding/plot_over_training.py"),
    message:
        "Draw when in training seeds come to be alike"
    script:
        "../scripts/embedding/plot_over_training.py"
