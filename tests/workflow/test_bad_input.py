"""What a mistake gets: one line with the key or the file, before any job starts."""

import os
import shutil
from typing import Any

import pytest
from checkouts import Checkout

TEXT = {"kind": "text", "topics": 2, "words": 4}


def told(project: Checkout, status: int = 1, **changes: Any) -> list[str]:
    """What snakemake says of changes to the configuration, its two standing lines left out."""
    project.configure(**changes)
    lines = project.snakemake(status=status).splitlines()
    assert not project.path("").exists() and not (project.directory / "logs").exists()
    standing = ("Using workflow specific profile", "Config file ")
    return [line for line in lines if not line.startswith(standing)]


def variant(**settings: Any) -> dict[str, Any]:
    """A configuration with a variant of these settings."""
    return {"topic": {"variants": {"mine": settings}}}


def corpus(**settings: Any) -> dict[str, Any]:
    """A configuration with a corpus of these settings."""
    return {"topic": {"corpora": {"mine": settings}}}


def model(**settings: Any) -> dict[str, Any]:
    """A configuration with a model of these settings."""
    return {"models": {"mine": settings}}


def text(**settings: Any) -> dict[str, Any]:
    """A configuration with a corpus of the text study of these settings."""
    return {"text": {"corpora": {"mine": settings}}}


def task(**settings: Any) -> dict[str, Any]:
    """A configuration with a LEGO task of these settings."""
    return {"lego": {"tasks": {"mine": settings}}}


def lego(**settings: Any) -> dict[str, Any]:
    """A configuration with a LEGO variant of these settings."""
    return {"lego": {"variants": {"mine": settings}}}


def alignment(**settings: Any) -> dict[str, Any]:
    """A configuration with these settings of the alignment."""
    return {"embedding": {"alignment": settings}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (variant(learning_rat=0.1), "topic.variants.mine.learning_rat: there is no such key"),
        (variant(steps="many"), "topic.variants.mine.steps: "),
        (
            corpus(kind="lda", topics=10, words=95),
            "topic.corpora.mine: words (95) is not a multiple of topics (10)",
        ),
        (variant(masking={"mask_prob": 1}), "topic.variants.mine.masking.mask_prob: "),
        (
            variant(masking={"keep_prob": 0.6, "random_prob": 0.6}),
            "topic.variants.mine.masking: keep_prob + random_prob is 1.2, above 1",
        ),
        (corpus(kind="exact", tau=11), "topic.corpora.mine: tau (11) is above topics (10)"),
        (variant(model={"d_model": 50}), "topic.variants.mine.model: one_hot needs d_model"),
        (
            variant(model={"kind": "bert", "d_model": 64, "n_heads": 3}),
            "topic.variants.mine.model: n_heads (3) does not divide d_model (64)",
        ),
        (
            variant(model={"value": "identity"}),
            "topic.variants.mine.model: nothing is left to train",
        ),
        (
            corpus(**TEXT, train="no/such.txt", validation="no/such.txt"),
            "topic.corpora.mine.train: no such file: no/such.txt",
        ),
        (variant(corpora=["ldaa"]), "topic.variants.mine: no corpus named ldaa"),
        ({"topic": {"figures": {"values": ["none"]}}}, "topic.figures.values: no variant named"),
        ({"text": {"models": ["bert"]}}, "text.models: no model named bert; there are encoder"),
        ({"embedding": {"models": ["bert"]}}, "embedding.models: no model named bert; there are"),
        ({"models": {"decoder": None}}, "embedding.models: no model named decoder; there are"),
        (
            {"embedding": {"hidden": {"corpus": "news"}}},
            "embedding.hidden.corpus: no corpus named news; there are stories",
        ),
        (
            {"text": {"measurement": {"reference": {"fraction": 0.3}}}},
            "text.measurement.reference: it is not one of the filters",
        ),
        ({"embedding": {"related": {"k": 21}}}, "embedding.related.k: 21 is above top (20)"),
        (
            alignment(pairs={"mine": {"a": "bert", "b": "encoder"}}),
            "embedding.alignment.pairs.mine: no model named bert; there are encoder",
        ),
        (
            alignment(training={"variant": "v1"}),
            "embedding.alignment.training.variant: v1 has heads without queries and keys (1/1/2)",
        ),
        (
            alignment(training={"seeds": [0, 7]}),
            "embedding.alignment.training.seeds: 7 is not among pretraining.seeds",
        ),
        (model(kind="packaged", package="bert"), "models.mine.package: "),
        (model(kind="folder", path="inputs/none"), "models.mine.path: no such folder: inputs/none"),
        (model(kind="folder", path="inputs"), "models.mine.path: inputs has no config.json"),
        (model(kind="hub", id="org/name"), "models.mine.revision: "),
        (
            model(kind="topic", corpus="lda", variant="value_squared"),
            "models.mine.variant: value_squared is no BERT",
        ),
        (text(kind="hub", id="org/name"), "text.corpora.mine.revision: org/name is no folder"),
        (text(kind="lines", path="none.txt"), "text.corpora.mine.path: no such file: none.txt"),
        (
            text(kind="table", path="inputs/stories.txt"),
            "text.corpora.mine.path: inputs/stories.txt ends in none of .jsonl, .csv, .parquet",
        ),
        (
            task(n=3, group={"names": ["e", "a"], "table": [[0, 1], [1, 1]]}),
            "lego.tasks.mine: not a group: a has no inverse",
        ),
        (task(n=5, letters=4), "lego.tasks.mine.letters: expected at least 5"),
        (task(n=2, graph={"kind": "branch"}), "lego.tasks.mine: a branch needs at least 3"),
        (lego(task="chains"), "lego.variants.mine.task: no task named chains; there are chain"),
        (lego(task="chain", n_tr=5), "lego.variants.mine.n_tr: expected at most the 4"),
        (
            lego(task="chain", mimicking={}, model={"heads": [{"learned": 1, "association": 3}]}),
            "lego.variants.mine.mimicking: needs 2 learned heads per layer, got 1",
        ),
        (
            lego(task="published_chains", pretrained={"model": "bert"}),
            "lego.variants.mine.pretrained.model: no model named bert; there are encoder",
        ),
        (
            lego(task="chain", pretrained={"model": "reader"}),
            "lego.variants.mine.task: expected a task with layout: published, got chain",
        ),
        (
            {"pretraining": {"corpus": "news"}},
            "pretraining.corpus: no corpus named news; there are stories",
        ),
        (
            {"pretraining": {"tokenizer": {"model": "bert"}}},
            "pretraining.tokenizer.model: no model named bert; there are",
        ),
        (
            {"pretraining": {"variants": {"v1": {"heads": {"learned": 3}}}}},
            "pretraining.variants.v1.heads: the split 1/1/3 (association/convolution/learned)",
        ),
        ({"compute": {"device": "gpu"}}, "compute.device: "),
        ({"topics": {}}, "topics: there is no such key"),
    ],
    ids=[
        *("unknown key", "wrong type", "words not divisible by topics", "mask_prob outside (0, 1)"),
        *("keep_prob + random_prob > 1", "tau > topics", "one-hot wider than the model", "heads"),
        *("nothing to train", "no such file", "no such corpus", "no such variant"),
        *("text of no such model", "embedding of no such model", "a model that is removed"),
        *("hidden states on no such corpus", "reference that is no filter", "k above top"),
        *("alignment of no such model", "alignment of other heads", "alignment of no such seed"),
        *("no such package", "no such folder", "folder without a model", "model without revision"),
        *("no BERT", "text without revision", "no such text", "unknown format"),
        *("no group", "too few letters", "too short a graph", "no such task", "n_tr above n"),
        *("mimicking with one head", "LEGO of no such model", "LEGO in another layout"),
        *("pretraining on no such corpus", "tokenizer of no such model", "heads that do not fit"),
        *("not one of the choices", "unknown section"),
    ],
)
def test_a_mistake_is_told_before_any_job_starts(
    fresh: Checkout, changes: dict[str, Any], line: str
) -> None:
    """A misspelt key would be ignored, or an impossible value end in a traceback hours later."""
    first, *others = told(fresh, **changes)
    assert first.startswith(line)
    # a file that does not exist is missing for train and for dev
    assert all("no such file" in other for other in others)


def test_a_folder_with_pickled_weights_only_is_told_before_any_job_starts(fresh: Checkout) -> None:
    """Pickled weights, which can run code, would be asked for by a library's traceback."""
    folder = fresh.directory / "inputs/pickled"
    shutil.copytree(fresh.directory / "inputs/encoder", folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (line,) = told(fresh, **model(kind="folder", path="inputs/pickled"))
    assert line.startswith("models.mine.path: inputs/pickled has no safetensors weights")


def test_all_mistakes_are_told_at_once(fresh: Checkout) -> None:
    """Every mistake would cost another start."""
    mistakes = {"one": {"steps": 0}, "two": {"optimiser": "adamw"}, "three": {"loss": None}}
    lines = told(fresh, topic={"variants": mistakes}, scale="huge")
    assert [line.split(": ")[0] for line in lines] == [
        "scale",
        "topic.variants.one.steps",
        "topic.variants.two.optimiser",
        "topic.variants.three.loss",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 1 END\n0 7 END\n", "train.txt:2: the word '7' has no topic"),
        ("0 1 END\n\n2 3 END\n", "train.txt:2: empty line"),
        ("\n", "train.txt: the file is blank"),
        ("", "train.txt: the file is blank"),
        ("0 1 END\n2 3\n", "train.txt:2: "),
    ],
    ids=["unknown word", "empty line", "blank file", "empty file", "no END"],
)
def test_a_mistake_in_a_text_corpus_is_told_before_any_job_starts(
    fresh: Checkout, text: str, reason: str
) -> None:
    """Own documents with one bad line would fail midway, or be learned wrongly."""
    train, validation = (fresh.directory / name for name in ("train.txt", "validation.txt"))
    train.write_text(text)
    validation.write_text("0 3 END\n")
    (line,) = told(fresh, **corpus(**TEXT, train=str(train), validation=str(validation)))
    assert line.startswith("topic.corpora.mine: ") and reason in line


def test_a_text_corpus_without_mistakes_is_taken(fresh: Checkout) -> None:
    """The authors' data, and anybody's own, could not be used."""
    documents = fresh.directory / "documents.txt"
    documents.write_text("0 1 END\n2 3 END\n")
    fresh.configure(**corpus(**TEXT, train=str(documents), validation=str(documents)))
    fresh.snakemake("--", "results/topic/mine/seed0/corpus.safetensors")


def test_a_configuration_file_that_is_missing_is_named(fresh: Checkout) -> None:
    """Who misspells it would look for the mistake elsewhere; Snakemake itself says this."""
    printed = fresh.snakemake("--configfile", "none.yaml", status=1)
    assert printed.rstrip().endswith("No such file or directory: 'none.yaml'")


def test_a_mistake_in_the_claims_is_told_before_any_job_starts(
    checkout: Checkout,
) -> None:
    """The ledger would fail after the last training, or judge by nothing."""
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
    """A disk that was full, or a copy that broke off, would end in a riddle."""
    path = checkout.path(artifact)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    checkout.path(reader).unlink()
    printed = checkout.snakemake("--", f"results/{reader}", status=1)
    log = checkout.log_of_failure(printed)
    assert f"results/{artifact}: " in log
    assert f"it is made by rule {maker}" in log
    assert not checkout.path(reader).exists()


def test_the_advice_for_a_truncated_artifact_helps(checkout: Checkout) -> None:
    """A file cut off in place would come back from the training's own copy, for ever."""
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
