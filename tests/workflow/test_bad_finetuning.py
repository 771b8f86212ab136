"""Bad input to fine-tuning and translation: one line with its key, before anything is computed."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from checkouts import Checkout

RUN = {"model": "encoder", "data": "opinions", "layers": [-1], "steps": 2, "max_length": 24}
PAIR = {"lower": "encoder", "upper": "mine", "blocks": 1}


@pytest.mark.parametrize(
    ("section", "entry", "line"),
    [
        ("runs", {**RUN, "model": "mnist"}, "runs.bad.model: no model named mnist; there are "),
        ("runs", {**RUN, "data": "tweets"}, "runs.bad.data: no labelled text named tweets; "),
        ("runs", {**RUN, "layers": [0, 0]}, "runs.bad.layers: an entry is given twice: 0, 0"),
        ("adapters", {"model": "encoder", "path": "inputs"}, "inputs has no adapter_config.json"),
        (
            "labelled",
            {"kind": "table", "path": "inputs/none.csv"},
            "labelled.bad.path: no such file: inputs/none.csv",
        ),
    ],
    ids=["model", "data", "layer twice", "no adapter", "no table"],
)
def test_a_mistake_in_the_configuration_is_one_line(
    fresh: Checkout, section: str, entry: dict[str, Any], line: str
) -> None:
    """Who mistypes a name would wait for the training before."""
    fresh.configure(embedding={"finetuning": {section: {"bad": entry}}})
    printed = fresh.snakemake("-n", status=1)
    assert f"embedding.finetuning.{section}.bad" in printed and line in printed
    assert "Traceback" not in printed


def test_a_pair_of_a_run_that_is_not_there_is_named(fresh: Checkout) -> None:
    """A key error would be all there is."""
    fresh.configure(embedding={"translation": {"pairs": {"bad": {**PAIR, "upper": "yours"}}}})
    printed = fresh.snakemake("-n", status=1)
    assert "embedding.translation.pairs.bad.upper: no fine-tuned run named yours" in printed


def failed(checkout: Checkout, target: str) -> str:
    """The last line of the log of the job that fails."""
    printed = checkout.snakemake("--", target, status=1)
    *_, line = checkout.log_of_failure(printed).splitlines()
    return line


def test_labels_of_three_kinds_are_named(checkout: Checkout) -> None:
    """Three classes would be trained as two."""
    with (checkout.directory / "inputs/three.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *([f"t{n}", n % 3] for n in range(9))])
    checkout.configure(
        embedding={
            "finetuning": {"labelled": {"three": {"kind": "table", "path": "inputs/three.csv"}}}
        }
    )
    assert failed(checkout, "results/embedding/labelled/three/texts.parquet") == (
        "embedding.finetuning.labelled.three: inputs/three.csv: 3 labels (0, 1, 2), "
        "where two are needed"
    )


def test_a_cut_beyond_the_depth_is_named(checkout: Checkout) -> None:
    """An index error would name no key."""
    pair = {**PAIR, "cuts": [0, 7]}
    checkout.configure(embedding={"translation": {"pairs": {"deep": pair}}})
    assert failed(checkout, "results/embedding/translation/deep/translation.json") == (
        "embedding.translation.pairs.deep: cuts: 7 is beyond the 2 layers of the lower model"
    )


def test_models_of_different_vocabularies_are_named(checkout: Checkout) -> None:
    """States would be translated by way of tokens that are others."""
    pair = {**PAIR, "lower": "decoder"}
    checkout.configure(embedding={"translation": {"pairs": {"other": pair}}})
    line = failed(checkout, "results/embedding/translation/other/translation.json")
    assert line.startswith("embedding.translation.pairs.other: the vocabularies differ: ")


def test_an_adapter_for_another_base_is_named(checkout: Checkout) -> None:
    """Differences would be read where they do not belong."""
    folder = Path(checkout.directory / "inputs/deeper")
    shutil.rmtree(folder, ignore_errors=True)
    tiny_models.save_adapter(folder, layer=9)
    entry = {"model": "decoder", "path": "inputs/deeper"}
    checkout.configure(embedding={"finetuning": {"adapters": {"deeper": entry}}})
    assert failed(checkout, "results/embedding/finetuning/deeper/lexicon.json") == (
        "embedding.finetuning.adapters.deeper: inputs/deeper is an adapter for decoder: "
        "this model has no layers.9.self_attn.q_proj"
    )
