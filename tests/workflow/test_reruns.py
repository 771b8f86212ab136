"""Which jobs run again after a change: those that use what changed, and what follows them."""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checkouts import NOTHING, SOURCES, Checkout

LEDGER = {"report_claims", "report_ledger"}
RUNS = {"report_study_runs topic", "report_runs"}
VALUES = {"topic_plot_values", "topic_plot_column_products"}


# --- changes that rerun nothing -------------------------------------------------------------


def test_a_second_run_does_nothing(checkout: Checkout) -> None:
    """A run of finished results has no jobs."""
    assert "Nothing to be done" in checkout.snakemake()


def test_dates_rerun_nothing(checkout: Checkout) -> None:
    """Results and sources with other dates and the same content rerun nothing."""
    now = time.time()
    results = [path for path in checkout.path("").rglob("*") if path.is_file()]
    # Above this size Snakemake compares dates by default; the profile raises the limit
    assert max(path.stat().st_size for path in results) > 1e6
    # Reverse the order of dates, and make the code the newest
    for age, path in enumerate(sorted(results, key=lambda path: path.stat().st_mtime)):
        os.utime(path, (now - 100 - age, now - 100 - age))
    for name in SOURCES:
        source = checkout.source / name
        for path in [source, *source.rglob("*")]:
            os.utime(path)
    assert checkout.plan() == NOTHING


def test_comments_docstrings_and_layout_rerun_nothing(checkout: Checkout) -> None:
    """Comments, docstrings and line breaks of scripts and library do not rerun their jobs."""
    scripts = checkout.source / "scripts"
    for path in scripts.rglob("*.py"):
        path.write_text("# a remark\n" + _with_other_docstrings(path.read_text("utf-8")), "utf-8")
    before = (scripts / "anatomy/training.py").read_text("utf-8")
    formatter = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "60"]
    subprocess.run([*formatter, scripts], check=True, capture_output=True)
    assert (scripts / "anatomy/training.py").read_text("utf-8") != before
    assert checkout.plan() == NOTHING


def _with_other_docstrings(text: str) -> str:
    """Return the source of a module with another word in each docstring."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0].lineno - 1
            lines[first] = lines[first].replace('"""', '"""Really: ', 1)
    return "".join(lines)


def test_resources_and_logs_rerun_nothing(checkout: Checkout) -> None:
    """Memory, time, threads and logs of rules do not rerun their jobs, nor do comments."""
    for path in (checkout.source / "rules").glob("*.smk"):
        text = path.read_text("utf-8")
        text = re.sub(r'"logs/', '"logs/moved/', text)
        text = re.sub(r"threads: \d+", "threads: 2", text)
        text = re.sub(r"mem_mb=memory\(\d+\)", "mem_mb=3000", text)
        text = re.sub(r"runtime=\d+", "runtime=240", text)
        path.write_text(text + "# a remark\n", "utf-8")
    checkout.substitute(r"^topic:", "# a remark\ntopic:", "config.yaml")
    assert checkout.plan() == NOTHING


def test_settings_of_the_device_rerun_nothing(checkout: Checkout) -> None:
    """No key of `compute` reruns a job."""
    checkout.configure(
        compute={
            "device": "auto", "gpu_jobs_per_device": 4, "environment": "cuda",
            "autocast": False, "compile": True, "save_every": 5,
        }
    )  # fmt: skip
    assert checkout.plan("--resources", "gpu=0", "--") == NOTHING


@pytest.mark.parametrize(
    "moved", [("inputs", "results", ".snakemake"), ("inputs", "results")], ids=" and ".join
)
def test_results_can_be_moved(checkout: Checkout, tmp_path: Path, moved: tuple[str, ...]) -> None:
    """Results in another folder are finished, with or without Snakemake's records."""
    elsewhere = Checkout(checkout.source, tmp_path / "elsewhere")
    for name in moved:
        shutil.move(checkout.directory / name, elsewhere.directory / name)
    assert elsewhere.plan() == NOTHING


# --- code that changed --------------------------------------------------------------------------


def test_a_function_of_the_training_reruns_trainings_and_what_follows(checkout: Checkout) -> None:
    """A change of masking reruns trainings, measurements, their figures and tables, no corpora."""
    checkout.edit("scripts/anatomy/topic/masking.py", "mask")
    rules = checkout.plan().rules
    assert rules["topic_train"] == 3
    assert rules["topic_measure"] == 3
    assert rules["topic_sweep"] == 1
    assert {"topic_plot_values", "topic_plot_attention", "report_claims", "report_runs"} <= {*rules}
    unaffected = {"topic_corpus", "topic_theory", "topic_baselines", "topic_plot_documents"}
    assert not unaffected & {*rules}


@pytest.mark.parametrize(
    ("file", "function", "jobs"),
    [
        ("scripts/topic/plot_documents.py", "main", {"topic_plot_documents"}),
        ("scripts/anatomy/figures.py", "matrix", {*VALUES, "text_plot_embeddings"}),
        ("scripts/anatomy/topic/theory.py", "attention_ratio_limit", {"topic_theory", *LEDGER}),
        ("scripts/anatomy/claims.py", "judge", LEDGER),
        ("scripts/report/ledger.py", "main", {"report_ledger"}),
        ("scripts/text/plot_topics.py", "main", {"text_plot_topics"}),
        ("scripts/embedding/plot_atlas.py", "main", {"embedding_plot_atlas"}),
        (
            "scripts/anatomy/html_pages.py",
            "page",
            {f"embedding_page_{things} decoder plain" for things in ("vectors", "heads")}
            | {f"embedding_page_difference {change}" for change in ("mine", "lora")},
        ),
    ],
    ids=[
        *("one figure", "matrix figures", "theory", "verdicts", "ledger", "figure of text"),
        *("figure of heads", "pages"),
    ],
)
def test_a_function_reruns_only_who_uses_it(
    checkout: Checkout, file: str, function: str, jobs: set[str]
) -> None:
    """A changed function reruns the jobs whose scripts call it, and what follows them."""
    checkout.edit(file, function)
    assert checkout.plan().jobs == jobs


def test_code_that_makes_no_result_reruns_nothing(checkout: Checkout) -> None:
    """A function that no script calls reruns nothing, nor does the code of logs and devices."""
    with (checkout.source / "scripts/anatomy/topic/masking.py").open("a") as file:
        file.write("\n\ndef unused() -> int:\n    return 1\n")
    checkout.edit("scripts/anatomy/gpu_lease.py", "lease")
    checkout.edit("scripts/anatomy/provenance.py", "commit")
    checkout.edit("scripts/job.py", "_redirect")
    assert checkout.plan() == NOTHING


# --- configuration that changed -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "users"),
    [
        ("value_cross_entropy", VALUES),
        ("attention_squared", {"topic_plot_attention", *LEDGER}),
    ],
)
def test_an_edited_variant_reruns_alone(checkout: Checkout, variant: str, users: set[str]) -> None:
    """A changed variant reruns its own training and measurement, and what shows them."""
    checkout.configure(topic={"variants": {variant: {"learning_rate": 0.004}}})
    own = {f"topic_train lda {variant}", f"topic_measure lda {variant}"}
    assert checkout.plan().jobs == own | users | RUNS


def test_an_added_variant_trains_alone(checkout: Checkout) -> None:
    """A new variant runs its own training and measurement."""
    checkout.configure(topic={"variants": {"mine": {"loss": "squared"}}})
    own = {"topic_train lda mine", "topic_measure lda mine"}
    assert checkout.plan().jobs == own | RUNS


def test_a_removed_variant_trains_nothing(checkout: Checkout) -> None:
    """A variant that is null reruns the figures and tables that showed it, no training."""
    checkout.configure(topic={"variants": {"value_cross_entropy": None}})
    assert checkout.plan().jobs == VALUES | RUNS


def test_a_changed_figure_list_draws_that_figure(checkout: Checkout) -> None:
    """The order of variants in a figure reruns that figure alone."""
    checkout.configure(topic={"figures": {"values": ["value_cross_entropy", "value_squared"]}})
    assert checkout.plan().jobs == VALUES


def test_an_edited_claim_reruns_the_ledger(checkout: Checkout) -> None:
    """A changed expectation in claims.yaml reruns the verdicts and the ledger."""
    checkout.substitute(r"expect: \{below: 1.0e-10\}", "expect: {below: 1.0e-9}", "claims.yaml")
    assert checkout.plan().jobs == LEDGER


def test_an_added_seed_trains_only_that_seed(checkout: Checkout) -> None:
    """A seed that is added trains; seeds that are there keep their files."""
    folder = "results/topic/lda/value_squared"
    seed0 = checkout.directory / folder / "seed0"
    artifacts = ("weights.safetensors", "checkpoints.safetensors", "history.csv", "run.json")
    before = [(seed0 / name).read_bytes() for name in artifacts]
    checkout.configure(topic={"seeds": [0, 1, 2, 3]})
    checkout.snakemake("--", f"{folder}/seed3/weights.safetensors")
    # The record of a run has its seconds, which a second training would change
    assert [(seed0 / name).read_bytes() for name in artifacts] == before
    assert (seed0.with_name("seed3") / artifacts[0]).read_bytes() != before[0]
    log = (checkout.directory / "logs/topic/lda/value_squared/train.log").read_text()
    assert "seed3" in log and "seed0" not in log


# --- real text and pretrained models ------------------------------------------------------------

MEASURED = {"text_structure", "text_table"} | {
    f"text_plot_{figure}" for figure in ("attention", "heads", "filters", "embeddings")
}
FITTED = MEASURED | {"text_topics", "text_plot_topics", "text_plot_documents"}


@pytest.mark.parametrize(
    ("section", "changes", "rules"),
    [
        ("text", {"filters": {"thresholds": [0, 0.5, 0.9]}}, MEASURED),
        ("text", {"lda": {"passes": 2}}, FITTED),
        (
            "embedding",
            {"top": 22},
            {
                *("embedding_index", "embedding_hidden", "embedding_related"),
                *("embedding_plot_hidden", "embedding_plot_hidden_last", "embedding_plot_related"),
                *("embedding_page_vectors", "embedding_page_heads"),
            },
        ),
        (
            "embedding",
            {"pairs": {"top": 6}},
            {"embedding_heads", "embedding_plot_atlas", "embedding_page_heads"},
        ),
        (
            "embedding",
            {"hidden": {"m": 2}},
            {"embedding_hidden", "embedding_plot_hidden", "embedding_plot_hidden_last"},
        ),
        (
            "embedding",
            {"alignment": {"draws": 7}},
            {
                *("embedding_align", "embedding_plot_alignment"),
                *("embedding_align_over_training", "embedding_plot_alignment_over_training"),
                *LEDGER,
            },
        ),
    ],
    ids=["filter", "LDA", "index", "pairs", "hidden states", "alignment"],
)
def test_a_setting_reruns_only_who_uses_it(
    checkout: Checkout, section: str, changes: dict[str, Any], rules: set[str]
) -> None:
    """A changed setting reruns the rules that use it, and what follows them."""
    checkout.configure(**{section: changes})
    assert checkout.plan().rules.keys() == rules


def test_an_added_seed_fits_only_that_seed(checkout: Checkout) -> None:
    """A seed that is added fits LDA once."""
    checkout.configure(text={"seeds": [0, 1, 2]})
    rules, jobs = checkout.plan()
    assert rules.keys() == {"text_topics", *MEASURED, *LEDGER}
    assert {job for job in jobs if "topics" in job.split()[0]} == {"text_topics stories 2"}


def test_a_model_that_no_study_names_is_not_fetched(checkout: Checkout) -> None:
    """A model in the configuration is stored only if a study uses it."""
    checkout.configure(models={"mine": {"kind": "hub", "id": "org/name", "revision": "v1"}})
    assert checkout.plan() == NOTHING


def test_a_model_that_replaces_another_is_measured_alone(checkout: Checkout) -> None:
    """Another model in the text study reruns measurements, no fits of LDA."""
    checkout.configure(text={"models": ["decoder"]})
    rules, jobs = checkout.plan()
    assert rules.keys() == MEASURED
    assert "text_structure stories decoder" in jobs


FINE_TUNED = {
    *("embedding_finetune", "embedding_finetuned", "embedding_difference"),
    *("embedding_page_difference", "embedding_plot_lexicon"),
    *("embedding_translate", "embedding_plot_translation"),
}
PRETRAINED = {
    *("pretraining_tokenizer", "pretraining_data", "pretraining_baseline", "pretraining_tune"),
    *("pretraining_train", "report_compare", "report_study_runs", "pretraining_time"),
    *("pretraining_plot_curves", "pretraining_plot_losses"),
}


@pytest.mark.parametrize(
    ("file", "rules"),
    [
        ("encoder/model.safetensors", {"model", *MEASURED, *FINE_TUNED}),
        ("encoder/README.md", set()),
        (
            "stories.txt",
            {"text_corpus", *FITTED, "embedding_robustness", "embedding_plot_robustness"}
            | {"embedding_hidden", "embedding_plot_hidden", "embedding_plot_hidden_last"}
            | {"embedding_align_over_training", "embedding_plot_alignment_over_training"}
            | {*PRETRAINED, "report_runs", *LEDGER},
        ),
    ],
    ids=["weights", "file that no job reads", "text"],
)
def test_a_changed_file_reruns_what_is_read_from_it(
    checkout: Checkout, file: str, rules: set[str]
) -> None:
    """A changed input reruns what reads it; a file beside it that no job reads reruns nothing."""
    path = checkout.directory / "inputs" / file
    path.write_bytes(path.read_bytes() + b"more" if path.exists() else b"")
    assert checkout.plan().rules.keys() == rules
