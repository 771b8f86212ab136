# Over all studies: the ledger of claims, and the table of runs.
from scripts.anatomy import claims as ledger

try:
    CLAIMS = ledger.load(ROOT / "claims.yaml")
except ValueError as error:
    sys.exit(str(error))
SEEDS = {
    "topic": TOPIC_SEEDS,
    "text": TEXT_SEEDS,
    "embedding": EMBEDDING.seeds,
    "lego": LEGO_SEEDS,
    "pretraining": PRETRAINING_SEEDS,
}
TESTABLE = ledger.testable(
    CLAIMS,
    SETTINGS.scale,
    [
        *TOPIC_ARTIFACTS,
        *TEXT_ARTIFACTS,
        *EMBEDDING_ARTIFACTS,
        *LEGO_ARTIFACTS,
        *PRETRAINING_ARTIFACTS,
    ],
    SEEDS,
)
JUDGED = sorted(
    {path for claim in TESTABLE for path in claim.paths(SEEDS[claim.study])}
)


rule claims:
    input:
        "results/claims.csv",
        "results/claims.html",


rule report_claims:
    input:
        JUDGED,
    output:
        "results/claims.csv",
    log:
        "logs/report/claims.log",
    benchmark:
        "logs/report/claims.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        claims=[plain(claim) for claim in CLAIMS],
        testable=[claim.id for claim in TESTABLE],
        artifacts=JUDGED,
        seeds=SEEDS,
        code=code("report/claims.py"),
    message:
        "Judge the claims"
    script:
        "../scripts/report/claims.py"


rule report_ledger:
    input:
        claims="results/claims.csv",
    output:
        report(
            "results/claims.html",
            caption="../report/ledger.rst",
            category="Claims",
            labels={"page": "ledger"},
        ),
    log:
        "logs/report/ledger.log",
    benchmark:
        "logs/report/ledger.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        scale=SETTINGS.scale,
        template=digest(ROOT / "report/ledger.html"),
        code=code("report/ledger.py"),
    message:
        "Lay out the ledger of claims"
    script:
        "../scripts/report/ledger.py"


rule report_runs:
    input:
        "results/topic/runs.csv",
        "results/lego/runs.csv",
        "results/pretraining/runs.csv",
    output:
        "results/runs.csv",
    log:
        "logs/report/runs.log",
    benchmark:
        "logs/report/runs.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        code=code("report/runs.py"),
    message:
        "Gather the runs of all studies"
    script:
        "../scripts/report/runs.py"
