"""What people ask for: all, a study, one artifact, by hand, elsewhere, in another workflow."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from checkouts import ROOT, SMOKE, Checkout, copied, merged, tiny

PAPER = ROOT / "config/paper.yaml"


def test_the_graph_of_every_configuration_builds(fresh: Checkout) -> None:
    """A configuration that we ship would stop with an error, on the GPU box at the latest."""
    fresh.write({})
    default, smoke, paper = (
        {*fresh.plan(*overlay).rules}
        for overlay in ((), ("--configfile", SMOKE), ("--configfile", PAPER))
    )
    every_rule = {
        rule
        for file in (ROOT / "rules").glob("*.smk")
        for rule in re.findall(r"^rule (\w+):", file.read_text("utf-8"), re.M)
    }
    assert default | smoke | paper == every_rule - {"topic", "claims"}
    assert smoke == default  # the smoke run tries all that the default run uses


def test_claims_and_a_study_are_targets(fresh: Checkout) -> None:
    """`snakemake topic` would make more than a study, or `snakemake claims` not the ledger."""
    of_study = fresh.plan("--", "topic").rules
    assert of_study["topic_train"] == of_study["topic_measure"] == 3
    assert not {"report_claims", "report_ledger", "report_runs"} & of_study.keys()
    of_claims = fresh.plan("--", "claims").rules
    assert of_claims["report_claims"] == of_claims["report_ledger"] == 1
    assert not {rule for rule in of_claims if "plot" in rule}


@pytest.mark.parametrize(
    ("artifact", "rules"),
    [
        ("topic/theory.json", {"topic_theory": 1}),
        ("topic/figures/documents.svg", {"topic_corpus": 1, "topic_plot_documents": 1}),
        (
            "topic/lda/value_squared/seed0/metrics.json",
            {"topic_corpus": 1, "topic_train": 1, "topic_measure": 1},
        ),
        (
            "topic/figures/values.png",
            {"topic_corpus": 1, "topic_train": 2, "topic_measure": 2, "topic_plot_matrices": 1},
        ),
    ],
    ids=["table", "figure of corpora", "metrics", "figure of runs"],
)
def test_one_artifact_needs_only_what_it_is_made_from(
    fresh: Checkout, artifact: str, rules: dict[str, int]
) -> None:
    """Who wants one figure of the paper would have to pay for all."""
    assert fresh.plan("--", f"results/{artifact}").rules == rules


@pytest.mark.parametrize(
    "artifact",
    ["lda/no_such_variant/seed0/run.json", "lda/value_squared/seed7/run.json"],
    ids=["variant", "seed"],
)
def test_a_name_that_is_not_configured_is_no_target(fresh: Checkout, artifact: str) -> None:
    """A misspelt variant would be trained with somebody else's settings, or end in a traceback."""
    printed = fresh.snakemake("-n", "--", f"results/topic/{artifact}", status=1)
    assert f"No rule to produce results/topic/{artifact}" in printed
    assert "Traceback" not in printed


# --- by hand ------------------------------------------------------------------------------------


def test_scripts_run_by_hand_make_the_same_files(checkout: Checkout) -> None:
    """Nobody could step through a rule in a debugger, or would debug something else."""
    run = "topic/lda/attention_squared/seed0"
    made = {
        "scripts.topic.train": [f"{run}/weights.safetensors", f"{run}/checkpoints.safetensors"],
        "scripts.topic.measure": [f"{run}/metrics.json", f"{run}/dynamics.csv"],
        "scripts.topic.plot_attention": ["topic/figures/attention.png", "topic/attention.csv"],
    }
    paths = [checkout.path(name) for names in made.values() for name in names]
    before = [path.read_bytes() for path in paths]
    for path in [*checkout.path(f"{run}/.state").rglob("*"), *paths]:
        if path.is_file():
            path.unlink()
    printed = [checkout.by_hand(module, f"results/{names[0]}") for module, names in made.items()]
    assert [path.read_bytes() for path in paths] == before
    assert "step 15 of 15" in printed[0]  # the log is on the terminal


@pytest.mark.parametrize(
    ("artifact", "line"),
    [
        ("results/topic/nothing.json", "no rule makes results/topic/nothing.json"),
        # there is a runs.py in report/ too
        ("results/runs.csv", "results/runs.csv is made by scripts/report/runs.py"),
    ],
    ids=["of no rule", "of another script"],
)
def test_the_wrong_artifact_by_hand_gets_one_line(
    fresh: Checkout, artifact: str, line: str
) -> None:
    """A typing error would look like a broken workflow."""
    *_, last = printed = fresh.by_hand("scripts.topic.runs", artifact, status=1).splitlines()
    assert line in last
    assert not any("Traceback" in line for line in printed)


# --- elsewhere ----------------------------------------------------------------------------------


def test_results_go_where_directory_says(tmp_path: Path) -> None:
    """A big disk or a shared checkout could not be used."""
    source = copied(ROOT, tmp_path / "source")
    before = {path.name for path in source.iterdir()}
    elsewhere = Checkout(source, tmp_path / "elsewhere")
    elsewhere.snakemake("--", "results/topic/theory.json")
    assert elsewhere.path("topic/theory.json").is_file()
    assert (elsewhere.directory / "logs/topic/theory.log").is_file()
    assert {path.name for path in source.iterdir()} == before


MODULE = """
configfile: "outer.yaml"


module anatomy:
    snakefile:
        "{snakefile}"
    config:
        config["anatomy"]
    prefix:
        "anatomy"


use rule * from anatomy as anatomy_*


rule mine:
    default_target: True
    input:
        "anatomy/results/claims.csv",
    output:
        "copy.csv",
    shell:
        "cp {{input}} {{output}}"
"""


def test_the_workflow_is_a_module_of_another(checkout: Checkout, tmp_path: Path) -> None:
    """Nobody could build on these results in a workflow of their own."""
    outer = tmp_path / "outer"
    (outer / "anatomy").mkdir(parents=True)
    snakefile = MODULE.format(snakefile=checkout.source / "Snakefile")
    (outer / "Snakefile").write_text(snakefile, encoding="utf-8")
    config = merged(yaml.safe_load((ROOT / "config.yaml").read_text("utf-8")), tiny())
    (outer / "outer.yaml").write_text(yaml.safe_dump({"anatomy": config}), encoding="utf-8")
    ledger = checkout.path("claims.csv").read_bytes()
    shutil.move(checkout.path(""), outer / "anatomy/results")
    (outer / "anatomy/results/claims.csv").unlink()
    printed = Checkout(outer).snakemake("--configfile", "outer.yaml")
    assert "2 of 2 steps" in printed
    assert (outer / "copy.csv").read_bytes() == ledger
