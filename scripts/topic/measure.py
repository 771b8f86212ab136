"""Measure topic structure in a trained model, at the end and at its checkpoints.

Compact models: block means of the embeddings' Gram matrix, of the token-to-token value map and
its column products, attention by pair class, Theorem 3's R, norms. BERT: cosines of the word
embeddings and attention of every layer and head.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.topic import corpora, measures
from scripts.anatomy.topic.settings import TopicMeasurementSettings, TopicVariantSettings

if TYPE_CHECKING:
    from scripts.anatomy.topic.bert import TopicBert

DYNAMICS_DOCUMENTS = 100  # enough for curves; the final numbers use `measurement.documents`


def main(snakemake: Any) -> None:
    """Measure every seed."""
    settings = TopicMeasurementSettings.model_validate(snakemake.params.measurement)
    inp, out = snakemake.input, snakemake.output
    for corpus, weights, checkpoints, history, run, metrics, dynamics in zip(
        inp.corpus, inp.weights, inp.checkpoints, inp.history, inp.run, out.metrics, out.dynamics,
        strict=True,
    ):  # fmt: skip
        record = artifacts.read_json(run)
        variant = TopicVariantSettings.model_validate(record["params"])
        data = corpora.load(corpus)
        final = artifacts.read_tensors(weights)
        curves = artifacts.read_table(history).dropna(subset="validation_loss").set_index("step")
        if variant.model.kind == "bert":
            measured = _measure_bert(final, variant, data, settings, record["provenance"]["seed"])
            table = curves
        else:
            measured = _measure_compact(final, variant, data, settings)
            steps = artifacts.read_tensors(checkpoints)
            table = curves.join(_dynamics(final, steps, variant, data, settings))
            measured |= _stages(table)
        measured["loss"] = record["metrics"]
        artifacts.write_json(metrics, measured)
        artifacts.write_table(dynamics, table.reset_index())


def _measure_compact(
    weights: dict[str, np.ndarray],
    variant: TopicVariantSettings,
    data: corpora.Corpus,
    settings: TopicMeasurementSettings,
) -> dict[str, Any]:
    view = measures.view(weights, variant.model)
    results: dict[str, Any] = {"norms": view.norms}
    if variant.model.embedding == "trained":
        results["embedding"] = _of_vectors(view.embedding, data)
    if variant.model.value == "trained" or variant.model.embedding == "trained":
        value = measures.words(view.value)
        results["value"] = measures.block_means(value, data.membership)
        results["value"]["mask_column"] = measures.mask_column(view.value)
        results["column_products"] = measures.block_means(measures.gram(value), data.membership)
    if variant.model.attention == "trained":
        results["attention"] = measures.held_out_attention(view, data, settings)
        results["attention"]["R"] = measures.attention_ratio(view.scores, data.membership)
        key_query = measures.words(view.scores)
        results["key_query"] = measures.block_means(key_query, data.membership)
    return results


def _of_vectors(vectors: np.ndarray, data: corpora.Corpus) -> dict[str, dict[str, float]]:
    """Return block means of inner products and of cosines between the words' columns."""
    of_words = vectors[:, corpora.FIRST_WORD :]
    return {
        "gram": measures.block_means(measures.gram(of_words), data.membership),
        "cosine": measures.block_means(measures.gram(of_words, cosine=True), data.membership),
    }


def _dynamics(
    final: dict[str, np.ndarray],
    checkpoints: dict[str, np.ndarray],
    variant: TopicVariantSettings,
    data: corpora.Corpus,
    settings: TopicMeasurementSettings,
) -> pd.DataFrame:
    """Return norms, block means and attention at every checkpoint."""
    rows = []
    for i, step in enumerate(checkpoints.pop("step")):
        weights = final | {name: stack[i] for name, stack in checkpoints.items()}
        view = measures.view(weights, variant.model)
        row = {"step": int(step)} | {f"norm_{name}": norm for name, norm in view.norms.items()}
        blocks = measures.block_means(measures.words(view.value), data.membership)
        row |= {f"value_{name}": blocks[name] for name in ("same_with_diagonal", "different")}
        if variant.model.attention == "trained":
            documents = min(DYNAMICS_DOCUMENTS, settings.documents)
            attention = measures.held_out_attention(view, data, settings, documents=documents)
            row |= {f"attention_{name}": value for name, value in attention.items()}
            row["R"] = measures.attention_ratio(view.scores, data.membership)
        rows.append(row)
    return pd.DataFrame(rows).set_index("step")


def _stages(table: pd.DataFrame) -> dict[str, Any]:
    """Return the steps of the two stages, if W_V and attention are both trained.

    By norms: the steps at which W_V and W_K reach 80 % of their norm at step 1000. By structure:
    the steps at which the blocks of W_V and the same-topic attention reach half of their last
    values.
    """
    if table["norm_W_V"].nunique() == 1 or "norm_W_K" not in table:
        return {}
    steps = table.index.to_numpy()
    last = int(steps[-1])
    blocks = table["value_same_with_diagonal"] - table["value_different"]
    value, key = (measures.crossing(steps, table[f"norm_{W}"].to_numpy()) for W in ("W_V", "W_K"))
    structure, attention = (
        measures.crossing(steps, curve.to_numpy(), share=0.5, by=last)
        for curve in (blocks, table["attention_ratio"] - 1)
    )
    return {
        "stages": {
            "W_V": value,
            "W_K": key,
            "gap": key - value,
            "blocks": structure,
            "attention": attention,
            "structure_gap": attention - structure,
        }
    }


def _measure_bert(
    weights: dict[str, np.ndarray],
    variant: TopicVariantSettings,
    data: corpora.Corpus,
    settings: TopicMeasurementSettings,
    seed: int,
) -> dict[str, Any]:
    import torch

    from scripts.anatomy.topic import experiment

    model = experiment.build(variant, data, seed).eval()
    untrained = _of_bert(model, variant, data, settings)  # the control
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    results = _of_bert(model, variant, data, settings) | {"untrained": untrained}
    gain = results["attention"]["best_head"] - untrained["attention"]["best_head"]
    results["attention"]["best_head_gain"] = gain
    return results


def _of_bert(
    model: "TopicBert",
    variant: TopicVariantSettings,
    data: corpora.Corpus,
    settings: TopicMeasurementSettings,
) -> dict[str, Any]:
    """Return attention of each head, the mean and the best head, and measures of embeddings."""
    tokens = data.validation[: settings.documents, : settings.max_length]
    heads = [
        measures.attention_from_maps(
            layer, tokens, data.membership, reference_length=settings.reference_length
        )
        for layer in model.attention(tokens)
    ]
    attention = _mean_head(heads)
    attention["best_head"] = max(head["ratio"] for layer in heads for head in layer)
    results: dict[str, Any] = {"attention_heads": heads, "attention": attention}
    if variant.model.embedding == "trained":
        results["embedding"] = _of_vectors(model.word_embeddings().astype(np.float64), data)
    return results


def _mean_head(heads: list[list[dict[str, float]]]) -> dict[str, float]:
    """Return class means averaged over layers and heads, and the ratio of the averages."""
    means = pd.DataFrame([head for layer in heads for head in layer]).mean()
    means["ratio"] = means["same_topic"] / means["different_topic"]
    return means.to_dict()


job.run(main, globals())
