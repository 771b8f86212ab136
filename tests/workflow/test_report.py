"""The results of the smoke configuration: their report, the ledger and the table of runs."""

import json
import re
from typing import Any

import pandas as pd
import pytest
from checkouts import ROOT, Checkout

from scripts.anatomy import claims

CLAIM_COLUMNS = [
    *("id", "study", "statement", "source", "scale", "metric"),
    *("value", "low", "high", "seeds", "expected", "verdict"),
]
VERDICTS = {"reproduced", "not reproduced", "not testable at this scale"}


@pytest.fixture(scope="module")
def page(smoke: Checkout) -> str:
    """Return the report."""
    smoke.snakemake("--report", "results/report.html")
    return smoke.path("report.html").read_text("utf-8")


def embedded(page: str, name: str) -> Any:
    """Return a variable of the report's script."""
    (line,) = re.findall(rf'<script id="{name}">\s*var {name} = (.*);$', page, re.M)
    return json.loads(line)


def test_the_report_needs_no_network(smoke: Checkout, page: str) -> None:
    """The report and the ledger load nothing: all data is in the page."""
    for text in (page, smoke.path("claims.html").read_text("utf-8")):
        assert not re.search(r"<(?:script|link)\b[^>]*\b(?:src|href)=", text)
        assert not re.search(r"""(?:src\s*=|@import|url\()\s*\\?["']?https?://""", text)
    results = embedded(page, "results")
    assert all(result["data_uri"].startswith("data:") for result in results.values())


def test_the_report_holds_every_figure_and_the_ledger_first(smoke: Checkout, page: str) -> None:
    """Every figure and page is in the report with caption and labels, the ledger first."""
    categories = embedded(page, "categories")
    assert min(categories) == "Claims"  # the menu is sorted
    assert [*categories["Claims"].values()] == [["results/claims.html"]]
    made = {*smoke.path("").rglob("figures/**/*.png"), *smoke.path("").rglob("*.html")}
    made.remove(smoke.path("report.html"))
    results = embedded(page, "results")
    assert {*results} == {str(path.relative_to(smoke.directory)) for path in made}
    assert all(result["caption"] for result in results.values())
    assert all(result["labels"] for result in results.values())


def test_figures_are_png_and_svg(smoke: Checkout) -> None:
    """Every figure has both formats, and neither file is empty."""
    figures = [path for path in smoke.path("").rglob("figures/**/*") if path.is_file()]
    png, svg = (
        {path.with_suffix("") for path in figures if path.suffix == ending}
        for ending in (".png", ".svg")
    )
    assert png == svg
    assert all(path.stat().st_size > 1000 for path in figures)


def test_the_ledger_judges_every_claim(smoke: Checkout) -> None:
    """Every claim has a row, with numbers if it is testable; closed forms are reproduced."""
    table = pd.read_csv(smoke.path("claims.csv"))
    assert [*table.columns] == CLAIM_COLUMNS
    assert [*table["id"]] == [claim.id for claim in claims.load(ROOT / "claims.yaml")]
    assert {*table["verdict"]} <= VERDICTS
    untested = table["verdict"] == "not testable at this scale"
    assert table.loc[untested, ["value", "low", "high"]].isna().all(axis=None)
    tested = table[~untested]
    assert {*tested["scale"]} == {"smoke"}
    assert (tested["low"] <= tested["value"]).all() and (tested["value"] <= tested["high"]).all()
    # Closed forms are what is testable at this scale
    assert {*tested["verdict"]} == {"reproduced"}


def test_the_page_of_the_ledger_shows_every_claim(smoke: Checkout) -> None:
    """The page has a row for every claim of the table."""
    text = smoke.path("claims.html").read_text("utf-8")
    table = pd.read_csv(smoke.path("claims.csv"))
    assert [name for name in table["id"] if f"<td>{name}</td>" not in text] == []
    assert text.count("<tr>") >= len(table)


def test_every_run_has_a_row(smoke: Checkout) -> None:
    """runs.csv has a row for each training, with its settings, results, costs and versions."""
    table = pd.read_csv(smoke.path("runs.csv"))
    trained = {
        path.parts[-5:-1]
        for study in ("topic", "lego", "pretraining")
        for path in smoke.path(study).rglob("seed*/run.json")
    }
    key = ["study", "subject", "variant", "seed"]
    assert [*table.columns[:4]] == key
    rows = table[key].astype(str).to_numpy().tolist()
    assert {(*row[:3], f"seed{row[3]}") for row in rows} == trained
    assert len(table) == len(trained)
    cost = {"seconds", "peak_memory_mb", "device", "device_name", "commit"}
    assert cost <= {*table.columns}
    assert table[["seconds", "peak_memory_mb", "device"]].notna().all(axis=None)
    for prefix in ("params.", "metrics.", "versions"):
        assert any(name.startswith(prefix) for name in table.columns), prefix
    of_topic = table[table["study"] == "topic"]
    assert (of_topic["params.steps"] <= 20).all()
    assert of_topic["metrics.loss.last_validation_loss"].notna().all()


def test_results_have_open_formats(smoke: Checkout) -> None:
    """No result is a pickle or an unknown format, and no temporary file is left."""
    endings = {path.suffix for path in smoke.path("").rglob("*") if path.is_file()}
    plain = {".json", ".csv", ".parquet", ".safetensors", ".npz", ".png", ".svg", ".html"}
    plain |= {".txt", ".mm", ".npy"}  # gensim dictionary, Matrix Market, token ids
    assert endings - {""} <= plain  # without ending: locks, digests of trainings
    assert not [*smoke.path("").rglob("*.tmp.*")]


def test_every_job_kept_a_log_and_a_benchmark(smoke: Checkout) -> None:
    """Every job has a log and, if no cache may replace it, a benchmark."""
    logs = smoke.directory / "logs"
    names = [{path.with_suffix("") for path in logs.rglob(f"*.{end}")} for end in ("log", "tsv")]
    patterns = ("text/*/corpus", "seed*/topics")
    cached = {path for path in names[0] if any(map(path.match, patterns))}
    assert names[0] - cached == names[1] != set()
    train = (logs / "topic/lda/value_squared/train.log").read_text()
    assert re.search(r"step 20 of 20, loss [\d.]+, [\d.]+ steps/s", train)


def test_nothing_is_left_to_do(smoke: Checkout) -> None:
    """A second run has no jobs."""
    assert "Nothing to be done" in smoke.snakemake()
