"""Fine-tune a classifier with one seed, and test it against a bag of words (section 4.4)."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, statistics
from scripts.anatomy.embedding import classification_data, finetuning, tokens
from scripts.anatomy.embedding.finetuning import Texts
from scripts.anatomy.embedding.settings import FinetuningRunSettings
from scripts.anatomy.models import loading
from scripts.anatomy.training import Run


def main(snakemake: Any) -> None:
    """Train, test, and write what changed."""
    params, inp, name = snakemake.params, snakemake.input, snakemake.wildcards.run
    settings = FinetuningRunSettings.model_validate(params.run)
    for training in job.trainings(snakemake):
        with job.config_errors(f"embedding.finetuning.runs.{name}"):
            model = loading.model(Path(inp.model))
            d_vocab = len(model.get_input_embeddings().weight)
            tokenizer = loading.tokenizer(Path(inp.model), d_vocab)
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
            classifier = finetuning.build(model, settings, training.seed)
            first = classifier.classifier.weight.detach().clone()
            run, read = finetuning.train(
                classifier,
                cut["train"],
                cut["validation"],
                settings,
                seed=training.seed,
                state=training.state,
                compute=training.compute,
                label=training.label,
            )
            right = finetuning.right(
                finetuning.logits(classifier, cut["test"].tokens), cut["test"].labels
            )
        # the bag of words chooses its penalty on all validation texts
        tables["validation"] = texts[texts["part"] == "validation"]
        stored = finetuning.changed(classifier) | {finetuning.BEFORE: first}
        artifacts.write_tensors(training.output["weights"], stored)
        artifacts.write_table(training.output["history"], _history(run))
        training.write_record(dict(params.items()), _metrics(right, tables, read))


def _metrics(
    right: np.ndarray, tables: dict[str, pd.DataFrame], read: np.ndarray
) -> dict[str, Any]:
    """Accuracy on the test texts, of the classifier and of what it is set against."""
    train, validation, test = (tables[part] for part in ("train", "validation", "test"))
    metrics = _accuracy(right)
    for name, of in (("bag", train), ("bag_same_texts", train.iloc[read])):
        guess = classification_data.bag_of_words(of, validation, {"test": test})["test"]
        metrics[name] = _accuracy(guess == test["label"].to_numpy())
        metrics[f"above_{name}"] = metrics["accuracy"] - metrics[name]["accuracy"]
    metrics["majority"] = classification_data.majority(train, test)
    metrics["above_majority"] = metrics["accuracy"] - metrics["majority"]
    return metrics | {"test_texts": len(test), "train_texts": len(train), "texts_read": len(read)}


def _accuracy(right: np.ndarray) -> dict[str, Any]:
    share, low, high = statistics.proportion_interval(right)
    return {"accuracy": share, "low": low, "high": high}


def _history(run: Run) -> pd.DataFrame:
    """Return the training loss of every step, and what was measured on the validation texts."""
    losses = pd.DataFrame({"step": np.arange(1, len(run.loss) + 1), "train_loss": run.loss})
    if not run.evaluations:
        return losses
    measured = pd.DataFrame(run.evaluations).rename(
        columns={"loss": "validation_loss", "accuracy": "validation_accuracy"}
    )
    return losses.merge(measured, on="step", how="outer")


job.run(main, globals())
