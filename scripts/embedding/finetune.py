"""Fine-tune a classifier with one seed, and test it against a bag of words (section 4.4).

A run that was killed goes on where it was; one that has finished before with the same parameters,
code and data is not trained again.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.embedding import classification_data, finetuning, tokens
from scripts.anatomy.embedding.finetuning import Texts
from scripts.anatomy.embedding.finetuning_settings import FinetuningRunSettings
from scripts.anatomy.models import loading
from scripts.anatomy.training import Run, RunState


def main(snakemake: Any) -> None:
    """Train, test, and write what changed."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params, inp = snakemake.params, snakemake.input
    seed, name = int(snakemake.wildcards.seed), snakemake.wildcards.run
    settings = FinetuningRunSettings.model_validate(params.run)
    outputs = [Path(path) for path in snakemake.output]
    parts = dict(params.items())
    fingerprint = job.fingerprint(parts, seed, Path(inp.source), Path(inp.texts))
    with (
        job.compute(snakemake) as compute,
        RunState(Path(snakemake.output.run).parent / ".state", fingerprint) as state,
        job.blaming(f"embedding.finetuning.runs.{name}"),
    ):
        if state.restore(outputs):
            return
        model = loading.model(Path(inp.model))
        tokenizer = loading.tokenizer(Path(inp.model), len(model.get_input_embeddings().weight))
        max_length = min(settings.max_length, loading.positions(model))
        texts = artifacts.read_table(inp.texts)
        tables = {
            "train": texts[texts["part"] == "train"].reset_index(drop=True),
            "validation": classification_data.balanced(texts, "validation", params.validation),
            "test": classification_data.balanced(texts, "test", params.test),
        }
        cut = {
            part: Texts(
                tokens.cut(table["text"].tolist(), tokenizer, max_length),
                table["label"].to_numpy(copy=True),
            )
            for part, table in tables.items()
        }
        classifier = finetuning.build(model, settings, seed)
        first = classifier.classifier.weight.detach().clone()
        run, read = finetuning.train(
            classifier, cut["train"], cut["validation"], settings,
            seed=seed, state=state, compute=compute, label=f"{name}/seed{seed}",
        )  # fmt: skip
        right = finetuning.right(
            finetuning.logits(classifier, cut["test"].tokens), cut["test"].labels
        )
        tables["validation"] = texts[texts["part"] == "validation"]  # all of it, for the bag
        metrics = _metrics(right, tables, read)
        stored = finetuning.changed(classifier) | {finetuning.BEFORE: first}
        artifacts.write_tensors(snakemake.output.weights, stored)
        artifacts.write_table(snakemake.output.history, _history(run))
        record = provenance.record(seed=seed, device=compute.device, started=started)
        artifacts.write_json(
            snakemake.output.run, {"params": parts, "metrics": metrics, "provenance": record}
        )
        state.keep(outputs)


def _metrics(
    right: np.ndarray, tables: dict[str, pd.DataFrame], read: np.ndarray
) -> dict[str, Any]:
    """Accuracy on the test texts, of the classifier and of what it is set against."""
    train, validation, test = (tables[part] for part in ("train", "validation", "test"))
    found = _accuracy(right)
    for name, of in (("bag", train), ("bag_same_texts", train.iloc[read])):
        guess = classification_data.bag_of_words(of, validation, {"test": test})["test"]
        found[name] = _accuracy(guess == test["label"].to_numpy())
        found[f"above_{name}"] = found["accuracy"] - found[name]["accuracy"]
    found["majority"] = classification_data.majority(train, test)
    found["above_majority"] = found["accuracy"] - found["majority"]
    return found | {"test_texts": len(test), "train_texts": len(train), "texts_read": len(read)}


def _accuracy(right: np.ndarray) -> dict[str, Any]:
    share, low, high = classification_data.share_interval(int(right.sum()), len(right))
    return {"accuracy": share, "low": low, "high": high}


def _history(run: Run) -> pd.DataFrame:
    """The training loss of every step, and what was measured on the validation texts."""
    losses = pd.DataFrame({"step": np.arange(1, len(run.loss) + 1), "train_loss": run.loss})
    if not run.evaluations:
        return losses
    measured = pd.DataFrame(run.evaluations).rename(
        columns={"loss": "validation_loss", "accuracy": "validation_accuracy"}
    )
    return losses.merge(measured, on="step", how="outer")


job.run(main, globals())
