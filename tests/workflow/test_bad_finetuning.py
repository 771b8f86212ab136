"""Errors of fine-tuning and translation name the key, before anything is computed."""

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
def test_an_impossible_setting_is_refused(
    fresh: Checkout, section: str, entry: dict[str, Any], line: str
) -> None:
    """A dry run names the key and the value, without a traceback."""
    fresh.configure(embedding={"finetuning": {section: {"bad": entry}}})
    printed = fresh.snakemake("-n", status=1)
    assert f"embedding.finetuning.{section}.bad" in printed and line in printed
    assert "Traceback" not in printed


def test_a_pair_with_an_unknown_run_is_refused(fresh: Checkout) -> None:
    """A translation pair whose model is neither a run nor a model is refused."""
    fresh.configure(embedding={"translation": {"pairs": {"bad": {**PAIR, "upper": "yours"}}}})
    printed = fresh.snakemake("-n", status=1)
    assert "embedding.translation.pairs.bad.upper: no fine-tuned run named yours" in printed


def test_a_table_with_three_labels_is_refused(checkout: Checkout) -> None:
    """A classifier has two classes; a table with three labels is an error."""
    with (checkout.directory / "inputs/three.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *([f"t{n}", n % 3] for n in range(9))])
    checkout.configure(
        embedding={
            "finetuning": {"labelled": {"three": {"kind": "table", "path": "inputs/three.csv"}}}
        }
    )
    assert checkout.failure("--", "results/embedding/labelled/three/texts.parquet") == (
        "embedding.finetuning.labelled.three: inputs/three.csv: 3 labels (0, 1, 2), "
        "where two are needed"
    )


def test_a_cut_beyond_the_depth_is_refused(checkout: Checkout) -> None:
    """A cut below the last layer of the lower model is an error."""
    pair = {**PAIR, "cuts": [0, 7]}
    checkout.configure(embedding={"translation": {"pairs": {"deep": pair}}})
    assert checkout.failure("--", "results/embedding/translation/deep/translation.json") == (
        "embedding.translation.pairs.deep: cuts: 7 is beyond the 2 layers of the lower model"
    )


def test_models_with_different_vocabularies_are_not_translated(checkout: Checkout) -> None:
    """A pair of models with different vocabularies is an error."""
    pair = {**PAIR, "lower": "decoder"}
    checkout.configure(embedding={"translation": {"pairs": {"other": pair}}})
    line = checkout.failure("--", "results/embedding/translation/other/translation.json")
    assert line.startswith("embedding.translation.pairs.other: the vocabularies differ: ")


def test_an_adapter_for_another_base_is_refused(checkout: Checkout) -> None:
    """An adapter with weights for a layer that its base model lacks is an error."""
    folder = Path(checkout.directory / "inputs/deeper")
    shutil.rmtree(folder, ignore_errors=True)
    tiny_models.save_adapter(folder, layer=9)
    entry = {"model": "decoder", "path": "inputs/deeper"}
    checkout.configure(embedding={"finetuning": {"adapters": {"deeper": entry}}})
    assert checkout.failure("--", "results/embedding/finetuning/deeper/lexicon.json") == (
        "embedding.finetuning.adapters.deeper: inputs/deeper is an adapter for decoder: "
        "this model has no layers.9.self_attn.q_proj"
    )
