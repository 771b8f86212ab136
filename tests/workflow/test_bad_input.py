"""Mistakes in what a user writes: one line with the key or the file, before any job starts."""

import os
import shutil
from typing import Any

import pytest
from checkouts import Checkout

TEXT = {"kind": "text", "topics": 2, "words": 4}


def errors(project: Checkout, **changes: Any) -> list[str]:
    """Return what snakemake prints about changes to the configuration; no job may start."""
    project.configure(**changes)
    lines = project.snakemake(status=1).splitlines()
    assert not project.path("").exists() and not (project.directory / "logs").exists()
    standing = ("Using workflow specific profile", "Config file ")
    return [line for line in lines if not line.startswith(standing)]


def corpus(**settings: Any) -> dict[str, Any]:
    """Return a configuration with a corpus of these settings."""
    return {"topic": {"corpora": {"mine": settings}}}


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"topics": {}}, "topics", "a section"),
        ({"topic": {"variants": {"mine": {"steps": "many"}}}}, "topic.variants.mine.steps", "many"),
        (
            {"topic": {"variants": {"mine": {"like": "nope"}}}},
            "topic.variants.mine.like",
            "nope",
        ),
        ({"models": {"decoder": None}}, "embedding.models", "decoder"),
        (
            {"models": {"mine": {"kind": "folder", "path": "inputs/none"}}},
            "models.mine.path",
            "inputs/none",
        ),
        (
            {
                "lego": {
                    "tasks": {
                        "mine": {"n": 3, "group": {"names": ["e", "a"], "table": [[0, 1], [1, 1]]}}
                    }
                }
            },
            "lego.tasks.mine",
            "a has no inverse",
        ),
    ],
    ids=["unknown key", "wrong type", "like", "removed model", "missing file", "not a group"],
)
def test_a_mistake_is_one_line_before_any_job_starts(
    fresh: Checkout, changes: dict[str, Any], key: str, value: str
) -> None:
    """One case for each stage of the validation; tests/unit/test_configuration.py has the rest."""
    (line,) = errors(fresh, **changes)
    assert line.startswith(f"{key}: ") and value in line


def test_a_folder_with_pickled_weights_only_is_refused(fresh: Checkout) -> None:
    """Pickled weights can run code, so only safetensors weights are loaded."""
    folder = fresh.directory / "inputs/pickled"
    shutil.copytree(fresh.directory / "inputs/encoder", folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (line,) = errors(fresh, models={"mine": {"kind": "folder", "path": "inputs/pickled"}})
    assert line.startswith("models.mine.path: inputs/pickled has no safetensors weights")


def test_every_mistake_has_a_line(fresh: Checkout) -> None:
    mistakes = {"one": {"steps": 0}, "two": {"optimiser": "adamw"}, "three": {"loss": None}}
    lines = errors(fresh, topic={"variants": mistakes}, scale="huge")
    assert [line.split(": ")[0] for line in lines] == [
        "scale",
        "topic.variants.one.steps",
        "topic.variants.two.optimiser",
        "topic.variants.three.loss",
    ]


def test_a_mistake_in_a_text_corpus_names_file_line_and_word(fresh: Checkout) -> None:
    train = fresh.directory / "train.txt"
    train.write_text("0 1 END\n0 7 END\n")
    (line,) = errors(fresh, **corpus(**TEXT, train=str(train), validation=str(train)))
    assert line.startswith(f"topic.corpora.mine: {train}:2: ") and "7" in line


def test_a_text_corpus_of_the_user_is_read(fresh: Checkout) -> None:
    documents = fresh.directory / "documents.txt"
    documents.write_text("0 1 END\n2 3 END\n")
    fresh.configure(**corpus(**TEXT, train=str(documents), validation=str(documents)))
    fresh.snakemake("--", "results/topic/mine/seed0/corpus.safetensors")


def test_a_configuration_file_that_is_missing_is_named(fresh: Checkout) -> None:
    """The message is Snakemake's own."""
    printed = fresh.snakemake("--configfile", "none.yaml", status=1)
    assert printed.rstrip().endswith("No such file or directory: 'none.yaml'")


def test_a_mistake_in_the_claims_is_refused_before_any_job_starts(checkout: Checkout) -> None:
    checkout.substitute(r"expect: \{below: 1.0e-10\}", "expect: {belo: 1.0e-10}", "claims.yaml")
    printed = checkout.snakemake("--forceall", status=1)
    assert "claims.yaml: topic.topic-1.expect.belo: " in printed
    assert "Traceback" not in printed and "Job " not in printed


@pytest.mark.parametrize(
    ("artifact", "reader", "maker"),
    [
        ("topic/lda/seed0/corpus.safetensors", "topic/figures/documents.png", "topic_corpus"),
        ("topic/theory.json", "claims.csv", "topic_theory"),
    ],
)
def test_a_truncated_artifact_and_its_rule_are_named(
    checkout: Checkout, artifact: str, reader: str, maker: str
) -> None:
    path = checkout.path(artifact)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    checkout.path(reader).unlink()
    printed = checkout.snakemake("--", f"results/{reader}", status=1)
    log = checkout.log_of_failure(printed)
    assert f"results/{artifact}: " in log
    assert f"it is made by rule {maker}" in log
    assert not checkout.path(reader).exists()


def test_the_advice_for_a_truncated_artifact_helps(checkout: Checkout) -> None:
    """A file that is truncated in place is made again, not restored from its hard link."""
    path = checkout.path("topic/lda/value_squared/seed0/weights.safetensors")
    whole = path.read_bytes()
    kept = path.parent / ".state/finished" / path.name
    kept.unlink()
    os.link(path, kept)  # as a run leaves it; the copy of the checkout made two files of one
    with path.open("r+b") as file:
        file.truncate(1000)
    path.unlink()  # "Delete the file and run again."
    checkout.snakemake("--", "results/topic/lda/value_squared/seed0/weights.safetensors")
    assert path.read_bytes() == whole
