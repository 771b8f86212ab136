# Over all studies: runs, comparisons, the ledger of claims.
from scripts.anatomy import claims as ledger

try:
    CLAIMS = ledger.load(ROOT / "claims.yaml")
except ValueError as error:
    sys.exit(str(error))
STUDIES = ["topic", "text", "embedding", "lego", "pretraining"]
SEEDS = {study: getattr(SETTINGS, study).seeds for study in STUDIES}
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


rule report_compare:
    input:
        unpack(compared_metrics),
    output:
        "results/{folder}/comparisons/{comparison}.json",
    log:
        "logs/{folder}/comparisons/{comparison}.log",
    benchmark:
        "logs/{folder}/comparisons/{comparison}.tsv"
    wildcard_constraints:
        folder=any_of(COMPARED),
        comparison=any_of({**LEGO.comparisons, **PRETRAINING.comparisons}),
    conda:
        CONDA
    params:
        metric=lambda wildcards: compared(wildcards).metric,
        code=code("report/compare.py"),
    message:
        "Compare variants: {wildcards.comparison}"
    script:
        "../scripts/report/compare.py"


rule report_study_runs:
    input:
        run=lambda wildcards: STUDY_RUNS[wildcards.study]("run.json"),
        metrics=lambda wildcards: STUDY_RUNS[wildcards.study]("metrics.json"),
    output:
        "results/{study}/runs.csv",
    log:
        "logs/{study}/runs.log",
    benchmark:
        "logs/{study}/runs.tsv"
    wildcard_constraints:
        study=any_of(STUDY_RUNS),
    conda:
        CONDA
    params:
        code=code("report/study_runs.py"),
    message:
        "Gather the runs of the {wildcards.study} study"
    script:
        "../scripts/report/study_runs.py"


rule report_runs:
    input:
        expand(rules.report_study_runs.output, study=STUDY_RUNS),
    output:
        "results/runs.csv",
    log:
        "logs/report/runs.log",
    benchmark:
        "logs/report/runs.tsv"
    conda:
        CONDA
    params:
        code=code("report/runs.py"),
    message:
        "Gather the runs of all studies"
    script:
        "../scripts/report/runs.py"


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
    params:
        claims=[as_params(claim) for claim in CLAIMS],
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
        claims=rules.report_claims.output[0],
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
    params:
        scale=SETTINGS.scale,
        # no input: results that move away from the checkout would be made again
        template=digest(ROOT / "report/ledger.html"),
        code=code("report/ledger.py"),
    message:
        "Lay out the ledger of claims"
    script:
        "../scripts/report/ledger.py"


rule claims:
    input:
        rules.report_claims.output,
        rules.report_ledger.output,
