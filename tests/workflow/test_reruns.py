"""What runs again after a change: what the change touches, and nothing else."""

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

LEDGER = {"Judge the claims", "Lay out the ledger of claims"}
RUNS = {"One row per run of the topic study", "Gather the runs of all studies"}


# --- changes that count for nothing -------------------------------------------------------------


def test_a_second_run_does_nothing(checkout: Checkout) -> None:
    """Every look at the results would cost another run of everything."""
    assert "Nothing to be done" in checkout.snakemake()


def test_dates_count_for_nothing(checkout: Checkout) -> None:
    """A `git checkout`, or a copy of results/ without dates, would train everything again."""
    now = time.time()
    results = [path for path in checkout.path("").rglob("*") if path.is_file()]
    # above this size Snakemake's own default goes by dates; weights of real sizes are
    assert max(path.stat().st_size for path in results) > 1e6
    # what was made first is now the newest, and the code is newer still
    for age, path in enumerate(sorted(results, key=lambda path: path.stat().st_mtime)):
        os.utime(path, (now - 100 - age, now - 100 - age))
    for name in SOURCES:
        place = checkout.source / name
        for path in [place, *place.rglob("*")]:
            os.utime(path)
    assert checkout.plan() == NOTHING


def test_comments_docstrings_and_layout_count_for_nothing(checkout: Checkout) -> None:
    """Nobody would dare to write a better comment in a library that trainings use."""
    scripts = checkout.source / "scripts"
    for path in scripts.rglob("*.py"):
        path.write_text("# a remark\n" + _with_other_docstrings(path.read_text("utf-8")), "utf-8")
    before = (scripts / "anatomy/training.py").read_text("utf-8")
    formatter = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "60"]
    subprocess.run([*formatter, scripts], check=True, capture_output=True)
    assert (scripts / "anatomy/training.py").read_text("utf-8") != before
    assert checkout.plan() == NOTHING


def _with_other_docstrings(text: str) -> str:
    """The module with a word more in each of its docstrings."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0].lineno - 1
            lines[first] = lines[first].replace('"""', '"""Really: ', 1)
    return "".join(lines)


def test_resources_logs_and_remarks_count_for_nothing(checkout: Checkout) -> None:
    """Asking the scheduler for more memory, or cores, would throw the trainings away."""
    for path in (checkout.source / "rules").glob("*.smk"):
        text = path.read_text("utf-8")
        text = re.sub(r'"logs/', '"logs/moved/', text)
        text = re.sub(r"threads: \d+", "threads: 2", text)
        text = re.sub(r"mem_mb=\d+", "mem_mb=3000", text)
        text = re.sub(r"runtime=\d+", "runtime=240", text)
        path.write_text(text + "# a remark\n", "utf-8")
    checkout.substitute(r"^topic:", "# a remark\ntopic:", "config.yaml")
    assert checkout.plan() == NOTHING


def test_how_to_compute_counts_for_nothing(checkout: Checkout) -> None:
    """Who tries the GPU for the last figure would train everything again on it."""
    checkout.configure(
        compute={
            "device": "auto", "gpu_jobs_per_device": 4, "environment": "cuda",
            "autocast": False, "compile": True, "save_every": 5,
        }
    )  # fmt: skip
    assert checkout.plan("--resources", "gpu=0", "--") == NOTHING


@pytest.mark.parametrize(
    "taken", [("inputs", "results", ".snakemake"), ("inputs", "results")], ids=" and ".join
)
def test_results_can_be_moved(checkout: Checkout, tmp_path: Path, taken: tuple[str, ...]) -> None:
    """Results moved to a bigger disk would be made anew there."""
    elsewhere = Checkout(checkout.source, tmp_path / "elsewhere")
    for name in taken:
        shutil.move(checkout.directory / name, elsewhere.directory / name)
    assert elsewhere.plan() == NOTHING


# --- code that changed --------------------------------------------------------------------------


def test_a_function_of_the_training_reruns_trainings_and_what_follows(checkout: Checkout) -> None:
    """Tables and figures would show the numbers of code that is no longer there."""
    checkout.edit("scripts/anatomy/topic/masking.py", "mask")
    rules = checkout.plan().rules
    assert rules["topic_train"] == 3
    assert rules["topic_measure"] == 3
    assert rules["topic_sweep"] == 1
    assert {"topic_plot_matrices", "topic_plot_attention", "report_claims", "report_runs"} <= {
        *rules
    }
    unaffected = {"topic_corpus", "topic_theory", "topic_reference", "topic_plot_documents"}
    assert not unaffected & {*rules}


@pytest.mark.parametrize(
    ("file", "function", "messages"),
    [
        ("scripts/topic/plot_documents.py", "main", {"Draw documents"}),
        (
            "scripts/anatomy/figures.py",
            "matrix",
            {"Draw values", "Draw column_products", "Draw cosines of words, by topic"},
        ),
        (
            "scripts/anatomy/topic/theory.py",
            "attention_ratio_limit",
            {"Closed forms of the three theorems", *LEDGER},
        ),
        ("scripts/anatomy/claims.py", "judge", LEDGER),
        ("scripts/report/ledger.py", "main", {"Lay out the ledger of claims"}),
        ("scripts/text/plot_topics.py", "main", {"Draw the topics of the corpora"}),
        ("scripts/embedding/plot_atlas.py", "main", {"Draw the atlas of heads"}),
        (
            "scripts/anatomy/html_pages.py",
            "page",
            {f"Lay out the {things} of decoder for reading" for things in ("vectors", "heads")}
            | {f"Lay out what {change} changes for reading" for change in ("mine", "lora")},
        ),
    ],
    ids=[
        *("one figure", "matrix figures", "theory", "verdicts", "ledger", "figure of text"),
        *("figure of heads", "pages"),
    ],
)
def test_a_function_reruns_only_who_uses_it(
    checkout: Checkout, file: str, function: str, messages: set[str]
) -> None:
    """A colour in one figure would cost the other figures, or worse, the trainings."""
    checkout.edit(file, function)
    assert checkout.plan().messages == messages


def test_code_that_no_job_uses_counts_for_nothing(checkout: Checkout) -> None:
    """A helper added to a library module, or a better log line, would train everything again."""
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
        ("value_cross_entropy", {"Draw values", "Draw column_products"}),
        ("attention_squared", {"Draw attention", *LEDGER}),
    ],
)
def test_an_edited_variant_reruns_alone(checkout: Checkout, variant: str, users: set[str]) -> None:
    """A learning rate tried in one variant would train all the others as well."""
    checkout.configure(topic={"variants": {variant: {"learning_rate": 0.004}}})
    own = {f"Train {variant} on lda, all seeds", f"Measure {variant} on lda, all seeds"}
    assert checkout.plan().messages == own | users | RUNS


def test_an_added_variant_trains_alone(checkout: Checkout) -> None:
    """An own experiment beside the paper's would cost all of the paper's."""
    checkout.configure(topic={"variants": {"mine": {"loss": "squared"}}})
    own = {"Train mine on lda, all seeds", "Measure mine on lda, all seeds"}
    assert checkout.plan().messages == own | RUNS


def test_a_removed_variant_trains_nothing(checkout: Checkout) -> None:
    """A variant left out with null would stay in figures and tables, or cost trainings."""
    checkout.configure(topic={"variants": {"value_cross_entropy": None}})
    assert checkout.plan().messages == {"Draw values", "Draw column_products"} | RUNS


def test_a_changed_figure_list_draws_that_figure(checkout: Checkout) -> None:
    """A panel added to a figure would not appear, or would cost trainings."""
    checkout.configure(topic={"figures": {"values": ["value_cross_entropy", "value_squared"]}})
    assert checkout.plan().messages == {"Draw values", "Draw column_products"}


def test_an_edited_claim_reruns_the_ledger(checkout: Checkout) -> None:
    """The ledger would judge by an expectation that claims.yaml no longer has."""
    checkout.substitute(r"expect: \{below: 1.0e-10\}", "expect: {below: 1.0e-9}", "claims.yaml")
    assert checkout.plan().messages == LEDGER


def test_an_added_seed_trains_only_that_seed(checkout: Checkout) -> None:
    """Five seeds after three would cost eight."""
    folder = "results/topic/lda/value_squared"
    seed0 = checkout.directory / folder / "seed0"
    artifacts = ("weights.safetensors", "checkpoints.safetensors", "history.csv", "run.json")
    before = [(seed0 / name).read_bytes() for name in artifacts]
    checkout.configure(topic={"seeds": [0, 1, 2, 3]})
    checkout.snakemake("--", f"{folder}/seed3/weights.safetensors")
    # the record of seed 0 tells its seconds: a second training would have taken others
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
                *("embedding_plot_hidden", "embedding_plot_related"),
                *("embedding_page_vectors", "embedding_page_heads"),
            },
        ),
        (
            "embedding",
            {"pairs": {"top": 6}},
            {"embedding_heads", "embedding_plot_atlas", "embedding_page_heads"},
        ),
        ("embedding", {"hidden": {"m": 2}}, {"embedding_hidden", "embedding_plot_hidden"}),
        (
            "embedding",
            {"alignment": {"draws": 7}},
            {
                *("embedding_align", "embedding_plot_alignment"),
                *("embedding_align_over_training", "embedding_plot_over_training"),
                *("report_claims", "report_ledger"),
            },
        ),
    ],
    ids=["filter", "LDA", "index", "pairs", "hidden states", "alignment"],
)
def test_a_setting_reruns_only_who_uses_it(
    checkout: Checkout, section: str, changes: dict[str, Any], rules: set[str]
) -> None:
    """A threshold tried would fit LDA again, or a longer list read every head again."""
    checkout.configure(**{section: changes})
    assert checkout.plan().rules.keys() == rules


def test_an_added_seed_fits_only_that_seed(checkout: Checkout) -> None:
    """A third fit would cost three."""
    checkout.configure(text={"seeds": [0, 1, 2]})
    found = checkout.plan()
    assert found.rules.keys() == {"text_topics", *MEASURED, "report_claims", "report_ledger"}
    assert found.rules["text_topics"] == 1
    assert "Fit LDA to stories, seed 2" in found.messages


def test_a_model_that_no_study_names_is_not_fetched(checkout: Checkout) -> None:
    """Every model in the configuration would be downloaded, wanted or not."""
    checkout.configure(models={"mine": {"kind": "hub", "id": "org/name", "revision": "v1"}})
    assert checkout.plan() == NOTHING


def test_a_model_in_place_of_another_is_measured_alone(checkout: Checkout) -> None:
    """LDA would be fitted again for a model that has nothing to do with it."""
    checkout.configure(text={"models": ["decoder"]})
    found = checkout.plan()
    assert found.rules.keys() == MEASURED
    assert "Measure decoder and its controls on stories" in found.messages


FINE_TUNED = {
    *("embedding_finetune", "embedding_finetuned", "embedding_difference"),
    *("embedding_page_difference", "embedding_plot_lexicon"),
    *("embedding_translate", "embedding_plot_translation"),
}
PRETRAINED = {
    *("pretraining_tokenizer", "pretraining_data", "pretraining_baseline", "pretraining_tune"),
    *("pretraining_train", "pretraining_compare", "pretraining_runs", "pretraining_time"),
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
            | {"embedding_hidden", "embedding_plot_hidden"}
            | {"embedding_align_over_training", "embedding_plot_over_training"}
            | {*PRETRAINED, "report_runs", "report_claims", "report_ledger"},
        ),
    ],
    ids=["weights", "what is not read", "text"],
)
def test_a_changed_file_reruns_what_is_read_from_it(
    checkout: Checkout, file: str, rules: set[str]
) -> None:
    """A model that was trained on would be shown as it was before."""
    path = checkout.directory / "inputs" / file
    path.write_bytes(path.read_bytes() + b"more" if path.exists() else b"")
    assert checkout.plan().rules.keys() == rules
