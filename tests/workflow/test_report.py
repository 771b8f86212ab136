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
    """The report."""
    smoke.snakemake("--report", "results/report.html")
    return smoke.path("report.html").read_text("utf-8")


def embedded(page: str, name: str) -> Any:
    """A variable of the report's own script."""
    (line,) = re.findall(rf'<script id="{name}">\s*var {name} = (.*);$', page, re.M)
    return json.loads(line)


def test_the_report_needs_no_network(smoke: Checkout, page: str) -> None:
    """A report sent to a colleague, or opened on a train, would be empty."""
    for text in (page, smoke.path("claims.html").read_text("utf-8")):
        assert not re.search(r"<(?:script|link)\b[^>]*\b(?:src|href)=", text)
        assert not re.search(r"""(?:src\s*=|@import|url\()\s*\\?["']?https?://""", text)
    results = embedded(page, "results")
    assert all(result["data_uri"].startswith("data:") for result in results.values())


def test_the_report_holds_every_figure_and_the_ledger_first(smoke: Checkout, page: str) -> None:
    """A figure would be made and never be seen, or the verdicts be hard to find."""
    categories = embedded(page, "categories")
    assert min(categories) == "Claims"  # the menu is sorted
    assert [*categories["Claims"].values()] == [["results/claims.html"]]
    made = {*smoke.path("").rglob("figures/**/*.png"), *smoke.path("").rglob("*.html")}
    made.remove(smoke.path("report.html"))
    results = embedded(page, "results")
    assert {*results} == {str(path.relative_to(smoke.directory)) for path in made}
    assert all(result["caption"] for result in results.values())
    assert all(result["labels"] for result in results.values())


def test_figures_come_as_pixels_and_as_vectors(smoke: Checkout) -> None:
    """A figure could be looked at and not be put into a paper, or the other way round."""
    figures = [path for path in smoke.path("").rglob("figures/**/*") if path.is_file()]
    pixels = {path.with_suffix("") for path in figures if path.suffix == ".png"}
    assert pixels == {path.with_suffix("") for path in figures if path.suffix == ".svg"}
    assert all(path.stat().st_size > 1000 for path in figures)


def test_the_ledger_judges_every_claim(smoke: Checkout) -> None:
    """A finding of the paper would be left out, or a verdict not follow from its numbers."""
    table = pd.read_csv(smoke.path("claims.csv"))
    assert [*table.columns] == CLAIM_COLUMNS
    assert [*table["id"]] == [claim.id for claim in claims.load(ROOT / "claims.yaml")]
    assert {*table["verdict"]} <= VERDICTS
    untested = table["verdict"] == "not testable at this scale"
    assert table.loc[untested, ["value", "low", "high"]].isna().all(axis=None)
    tested = table[~untested]
    assert {*tested["scale"]} == {"smoke"}
    assert (tested["low"] <= tested["value"]).all() and (tested["value"] <= tested["high"]).all()
    # closed forms need no scale
    assert {*tested["verdict"]} == {"reproduced"}


def test_the_page_of_the_ledger_shows_every_claim(smoke: Checkout) -> None:
    """The ledger that people read would not be the one that was computed."""
    text = smoke.path("claims.html").read_text("utf-8")
    table = pd.read_csv(smoke.path("claims.csv"))
    assert [name for name in table["id"] if f"<td>{name}</td>" not in text] == []
    assert text.count("<tr>") >= len(table)


def test_every_run_has_a_row(smoke: Checkout) -> None:
    """Runs could not be compared, or a number not be traced to its settings and its machine."""
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


def test_results_are_plain_files(smoke: Checkout) -> None:
    """A result could only be read with this code, and not safely."""
    endings = {path.suffix for path in smoke.path("").rglob("*") if path.is_file()}
    plain = {".json", ".csv", ".parquet", ".safetensors", ".npz", ".png", ".svg", ".html"}
    plain |= {".txt", ".mm", ".npy"}  # gensim's dictionary, Matrix Market, rows of tokens
    assert endings - {""} <= plain  # no ending: lock and fingerprint of a training's state
    assert not [*smoke.path("").rglob("*.tmp.*")]


def test_every_job_kept_a_log_and_a_benchmark(smoke: Checkout) -> None:
    """What went on in a job, and what it cost, could not be looked up."""
    logs = smoke.directory / "logs"
    names = [{path.with_suffix("") for path in logs.rglob(f"*.{end}")} for end in ("log", "tsv")]
    # what may come from a cache has no benchmark
    places = ("text/*/corpus", "seed*/topics")
    shared = {path for path in names[0] if any(map(path.match, places))}
    assert names[0] - shared == names[1] != set()
    train = (logs / "topic/lda/value_squared/train.log").read_text()
    assert re.search(r"step 20 of 20, loss [\d.]+, [\d.]+ steps/s", train)


def test_nothing_is_left_to_do(smoke: Checkout) -> None:
    """The second `make run` would train again."""
    assert "Nothing to be done" in smoke.snakemake()
