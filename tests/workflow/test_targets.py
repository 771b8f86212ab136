"""What people ask for: all, a study, one artifact, an artifact by hand."""

import re
import sys
from pathlib import Path

import pytest
from checkouts import ROOT, SMOKE, Checkout, called

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
    named = {"topic", "text", "embedding", "lego", "pretraining", "claims"}
    assert default | smoke | paper == every_rule - named - {"model_of_topic"}
    assert smoke == default  # the smoke run tries all that the default run uses


def test_claims_and_every_study_are_targets(fresh: Checkout) -> None:
    """`snakemake topic` would make more than a study, or `snakemake claims` not the ledger."""
    needed = {
        "topic": set(),
        "text": {"model"},
        # seeds of the pretraining study are aligned
        "embedding": {"model", "text_corpus", "pretraining_tokenizer", "pretraining_data"}
        | {"pretraining_baseline", "pretraining_tune", "pretraining_train"},
        "lego": {"model"},
        "pretraining": set(),
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
            {"topic_corpus": 1, "topic_train": 2, "topic_measure": 2, "topic_plot_matrices": 1},
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
    """Who wants one figure of the paper would have to pay for all."""
    assert fresh.plan("--", f"results/{artifact}").rules == rules


@pytest.mark.parametrize(
    "artifact",
    [
        *("topic/lda/no_such_variant/seed0/run.json", "topic/lda/value_squared/seed7/run.json"),
        *("text/stories/decoder/run.json", "embedding/encoder/plain/index.parquet"),
        *("embedding/decoder/folded/index.parquet", "models/minilm/source.json"),
    ],
    ids=["variant", "seed", "model of another study", "the same", "reading", "removed model"],
)
def test_a_name_that_is_not_configured_is_no_target(fresh: Checkout, artifact: str) -> None:
    """A misspelt variant would be trained with somebody else's settings, or end in a traceback."""
    printed = fresh.snakemake("-n", "--", f"results/{artifact}", status=1)
    assert f"No rule to produce results/{artifact}" in printed
    assert "Traceback" not in printed


# --- by hand ------------------------------------------------------------------------------------


OF_TOPICS = ("topics.safetensors", "mixtures.safetensors", "topics.csv")


def test_scripts_run_by_hand_make_the_same_files(checkout: Checkout) -> None:
    """Nobody could step through a rule in a debugger, or would debug something else."""
    run = "topic/lda/attention_squared/seed0"
    made = {
        "scripts.topic.train": [f"{run}/weights.safetensors", f"{run}/checkpoints.safetensors"],
        "scripts.topic.measure": [f"{run}/metrics.json", f"{run}/dynamics.csv"],
        "scripts.topic.plot_attention": ["topic/figures/attention.png", "topic/attention.csv"],
        "scripts.text.topics": [f"text/stories/seed1/{name}" for name in OF_TOPICS],
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
        # there is a plot_documents.py in topic/ too
        (
            "results/text/figures/documents.png",
            "results/text/figures/documents.png is made by scripts/text/plot_documents.py",
        ),
    ],
    ids=["of no rule", "of another script"],
)
def test_the_wrong_artifact_by_hand_gets_one_line(
    checkout: Checkout, artifact: str, line: str
) -> None:
    """A typing error would look like a broken workflow."""
    *_, last = printed = checkout.by_hand(
        "scripts.topic.plot_documents", artifact, status=1
    ).splitlines()
    assert line in last
    assert not any("Traceback" in line for line in printed)


def test_an_index_is_searched_by_hand(checkout: Checkout, tmp_path: Path) -> None:
    """The command in the docs would fail, or not say which word it does not know."""
    script = checkout.source / "scripts/embedding/search.py"
    index = checkout.path("embedding/decoder/plain/index.parquet")
    command = [sys.executable, script, index, "horse violin", "--top", "3"]
    lines = called(command, tmp_path).splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3 and scores == sorted(scores, reverse=True)
    told = called([*command[:3], "horse zebra"], tmp_path, status=1)
    assert told == "no single token of this vocabulary: zebra\n"


def test_what_the_topic_study_trains_is_a_model_of_the_others(checkout: Checkout) -> None:
    """Its own BERTs could not be read in vocabulary space."""
    own = {"kind": "topic", "corpus": "lda", "variant": "bert", "seed": 2}
    bert = {"corpora": ["lda"], "model": {"kind": "bert", "d_model": 16}}
    checkout.configure(
        topic={"variants": {"bert": bert}}, models={"own": own}, embedding={"models": ["own"]}
    )
    checkout.snakemake("--", "results/embedding/own/plain/index.parquet")
    command = [checkout.source / "scripts/embedding/search.py", "index.parquet", "word7"]
    folder = checkout.path("embedding/own/plain")
    assert "layer  0" in called([sys.executable, *command], folder)
