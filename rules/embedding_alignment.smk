# Two models side by side in vocabulary space: pairs of the models, and seeds trained here.
rule embedding_align:
    input:
        a=lambda wildcards: stored_model(ALIGNED[wildcards.pair].a)["model"],
        b=lambda wildcards: stored_model(ALIGNED[wildcards.pair].b)["model"],
        sources=lambda wildcards: [
            stored_model(name)["source"]
            for name in (ALIGNED[wildcards.pair].a, ALIGNED[wildcards.pair].b)
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
        pair=any_of(ALIGNED),
    group:
        "embedding_alignments"
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=240),
        gpu=1,
    params:
        pair=lambda wildcards: as_params(ALIGNED[wildcards.pair]),
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
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60, paper=720),
        gpu=1,
    params:
        seeds=ALIGNED_SEEDS,
        draws=EMBEDDING.alignment.draws,
        code=code("embedding/align_over_training.py"),
    message:
        "Align models of different seeds over their training"
    script:
        "../scripts/embedding/align_over_training.py"


# --- figures ------------------------------------------------------------------------------------

figure(
    "embedding/alignment/{pair}",
    "alignment",
    "Alignment",
    rule_name="alignment",
    label="alignment of {pair}",
    input={"table": rules.embedding_align.output.table},
    params={
        "models": lambda wildcards: [
            ALIGNED[wildcards.pair].a,
            ALIGNED[wildcards.pair].b,
        ]
    },
    constraints={"pair": ALIGNED},
)
if ALIGNED_SEEDS:
    figure(
        "embedding/alignment_over_training",
        "alignment_over_training",
        "Alignment",
        label="alignment over training",
        input={"table": rules.embedding_align_over_training.output.table},
    )
