"""Targets: everything, a study, one artifact, an artifact of a standalone script."""

import sys
from pathlib import Path

import pytest
from checkouts import ROOT, SMOKE, Checkout, called, workflow

PAPER = ROOT / "config/paper.yaml"


def test_the_graph_of_every_configuration_builds(fresh: Checkout) -> None:
    """The three shipped configurations use all rules; the smoke run uses those of the default."""
    fresh.write({})
    default, smoke, paper = (
        {*fresh.plan(*overlay).rules}
        for overlay in ((), ("--configfile", SMOKE), ("--configfile", PAPER))
    )
    jobs = {rule.name for rule in workflow().rules if rule.output}
    assert default | smoke | paper >= jobs
    assert smoke == default


def test_claims_and_every_study_are_targets(fresh: Checkout) -> None:
    """A study's target makes that study and what it reads; `claims` makes the ledger, no figure."""
    needed = {
        "topic": {"report_study_runs"},
        "text": {"model"},
        # aligns seeds of the pretraining study
        "embedding": {"model", "text_corpus", "pretraining_tokenizer", "pretraining_data"}
        | {"pretraining_baseline", "pretraining_tune", "pretraining_train"},
        "lego": {"model", "report_study_runs"},
        "pretraining": {"report_study_runs", "report_compare"},
    }
    of_study = {study: fresh.plan("--", study).rules for study in needed}
    for study, others in needed.items():
        assert {rule for rule in of_study[study] if not rule.startswith(study)} == others
    assert of_study["topic"]["topic_train"] == of_study["topic"]["topic_measure"] == 3
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
            {"topic_corpus": 1, "topic_train": 2, "topic_measure": 2, "topic_plot_values": 1},
        ),
        ("models/encoder/source.json", {"model": 1}),
        ("text/figures/topics.svg", {"text_corpus": 1, "text_topics": 1, "text_plot_topics": 1}),
        (
            "text/figures/heads.png",
            {"model": 1, "text_corpus": 1, "text_topics": 2, "text_structure": 1}
            | {"text_plot_heads": 1},
        ),
        (
            "embedding/figures/related.png",
            {"model": 1, "embedding_index": 1, "embedding_related": 1}
            | {"embedding_plot_related": 1},
        ),
        ("embedding/alignment/twins/alignment.json", {"model": 1, "embedding_align": 1}),
        (
            "embedding/decoder/plain/heads.html",
            {"model": 1, "embedding_index": 1, "embedding_heads": 1, "embedding_page_heads": 1},
        ),
        (
            "pretraining/stories/base/seed1/metrics.json",
            {"pretraining_tokenizer": 1, "pretraining_data": 1, "pretraining_baseline": 1}
            | {"pretraining_tune": 1, "pretraining_train": 1},
        ),
    ],
    ids=[
        *("table", "figure of corpora", "metrics", "figure of runs", "a model", "figure of topics"),
        *("figure of heads", "figure of related parameters", "alignment", "page", "pretraining"),
    ],
)
def test_one_artifact_needs_only_what_it_is_made_from(
    fresh: Checkout, artifact: str, rules: dict[str, int]
) -> None:
    """An artifact runs the rules that it depends on, and no others."""
    assert fresh.plan("--", f"results/{artifact}").rules == rules


@pytest.mark.parametrize(
    "artifact",
    [
        *("topic/lda/no_such_variant/seed0/run.json", "topic/lda/value_squared/seed7/run.json"),
        *("text/stories/decoder/run.json", "embedding/encoder/plain/index.parquet"),
        *("embedding/decoder/folded/index.parquet", "models/minilm/source.json"),
    ],
    ids=["variant", "seed", "model of embedding", "model of text", "reading", "removed model"],
)
def test_a_name_that_is_not_configured_is_no_target(fresh: Checkout, artifact: str) -> None:
    """No rule makes a path with a variant, seed, model or reading that is not configured."""
    printed = fresh.snakemake("-n", "--", f"results/{artifact}", status=1)
    assert f"No rule to produce results/{artifact}" in printed
    assert "Traceback" not in printed


# --- standalone scripts --------------------------------------------------------------------------


TOPIC_FILES = ("topics.safetensors", "mixtures.safetensors", "topics.csv")


def test_standalone_scripts_make_the_same_files(checkout: Checkout) -> None:
    """`python -m scripts.topic.train ARTIFACT` makes the files that the workflow makes."""
    run = "topic/lda/attention_squared/seed0"
    made = {
        "scripts.topic.train": [f"{run}/weights.safetensors", f"{run}/checkpoints.safetensors"],
        "scripts.topic.measure": [f"{run}/metrics.json", f"{run}/dynamics.csv"],
        "scripts.topic.plot_attention": ["topic/figures/attention.png", "topic/attention.csv"],
        "scripts.text.topics": [f"text/stories/seed1/{name}" for name in TOPIC_FILES],
    }
    paths = [checkout.path(name) for names in made.values() for name in names]
    before = [path.read_bytes() for path in paths]
    for path in [*checkout.path(f"{run}/.state").rglob("*"), *paths]:
        if path.is_file():
            path.unlink()
    printed = [checkout.standalone(module, f"results/{names[0]}") for module, names in made.items()]
    assert [path.read_bytes() for path in paths] == before
    assert "step 15 of 15" in printed[0]  # logs go to the terminal


@pytest.mark.parametrize(
    ("artifact", "line"),
    [
        ("results/topic/nothing.json", "no rule makes results/topic/nothing.json"),
        # topic/ has a plot_documents.py as well
        (
            "results/text/figures/documents.png",
            "results/text/figures/documents.png is made by scripts/text/plot_documents.py",
        ),
    ],
    ids=["no rule", "another script"],
)
def test_a_standalone_script_names_an_artifact_that_it_does_not_make(
    checkout: Checkout, artifact: str, line: str
) -> None:
    """An artifact of no rule, or of another script, is an error without a traceback."""
    *_, last = printed = checkout.standalone(
        "scripts.topic.plot_documents", artifact, status=1
    ).splitlines()
    assert line in last
    assert not any("Traceback" in line for line in printed)


def test_an_index_is_searched(checkout: Checkout, tmp_path: Path) -> None:
    """The search returns the best matches first, and names a word that is no token."""
    script = checkout.source / "scripts/embedding/search.py"
    index = checkout.path("embedding/decoder/plain/index.parquet")
    command = [sys.executable, script, index, "horse violin", "--top", "3"]
    lines = called(command, tmp_path).splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3 and scores == sorted(scores, reverse=True)
    printed = called([*command[:3], "horse zebra"], tmp_path, status=1)
    assert printed == "no single token of this vocabulary: zebra\n"


def test_what_the_topic_study_trains_is_a_model_of_the_others(checkout: Checkout) -> None:
    """The embedding study reads a BERT that the topic study trained."""
    own = {"kind": "topic", "corpus": "lda", "variant": "bert", "seed": 2}
    bert = {"corpora": ["lda"], "model": {"kind": "bert", "d_model": 16}}
    checkout.configure(
        topic={"variants": {"bert": bert}}, models={"own": own}, embedding={"models": ["own"]}
    )
    checkout.snakemake("--", "results/embedding/own/plain/index.parquet")
    command = [checkout.source / "scripts/embedding/search.py", "index.parquet", "word7"]
    folder = checkout.path("embedding/own/plain")
    assert "layer  0" in called([sys.executable, *command], folder)
