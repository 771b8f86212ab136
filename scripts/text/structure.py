"""Measure attention and embedding similarity by topic, for one model on one corpus.

One pass over the documents serves every filter, every LDA fit and the shuffled control. Controls
with random weights, one a seed, are measured on fewer documents.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from transformers import PreTrainedModel

from scripts import job
from scripts.anatomy import artifacts, provenance, seeding
from scripts.anatomy.models import loading
from scripts.anatomy.text import lda, measures, topic_tables, word_tokens
from scripts.anatomy.text.settings import FilterSettings, TextMeasurementSettings

TOPICS_DRAWN, WORDS_DRAWN = 8, 12  # in the figure of cosines


def main(snakemake: Any) -> None:
    """Measure the trained model, then its controls."""
    started = time.perf_counter()
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    settings = TextMeasurementSettings.model_validate(params.measurement)
    fits = {
        seed: lda.from_arrays(artifacts.read_tensors(path), artifacts.read_metadata(path))
        for seed, path in zip(params.seeds, inp.topics, strict=True)
    }
    cases = topic_tables.cases(
        fits, FilterSettings.model_validate(params.filters), settings.reference
    )
    first = fits[params.seeds[0]]
    texts = artifacts.read_table(inp.documents)["text"].tolist()
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = loading.model(Path(inp.model)).to(compute.device)
        tokenizer = loading.tokenizer(Path(inp.model), len(model.get_input_embeddings().weight))
        max_length = min(settings.max_length, loading.positions(model))
        readings = word_tokens.read(texts, tokenizer, first.words, max_length=max_length)
        tokens = word_tokens.token_of_words(first.words, tokenizer)
        measured = [_measured(model, "trained", cases, readings, tokens, settings)]
        for seed in params.seeds:
            control = loading.control(Path(inp.model), seed).to(compute.device)
            own = [case for case in cases if case.seed == seed and not case.shuffled]
            few = readings[: settings.control_documents]
            measured.append(_measured(control, "control", own, few, tokens, settings))
    table, heads = (pd.concat(part, ignore_index=True) for part in zip(*measured, strict=True))
    artifacts.write_table(out.structure, table)
    artifacts.write_table(out.heads, heads)
    metrics = topic_tables.summary(table, heads, settings.reference)
    metrics["reading"] = word_tokens.statistics(readings)
    record = provenance.record(seed=None, device=str(compute.device), started=started)
    artifacts.write_json(
        out.run, {"params": params.measurement, "metrics": metrics, "provenance": record}
    )
    drawn = topic_tables.words_to_draw(
        first, topic_tables.reference_case(cases, settings.reference).topics, tokens >= 0,
        count=TOPICS_DRAWN, each=WORDS_DRAWN,
    )  # fmt: skip
    _write_cosines(out.cosines, drawn, first.words, tokens, {"trained": model, "control": control})


def _measured(
    model: PreTrainedModel,
    weights: str,
    cases: Sequence[topic_tables.Case],
    readings: Sequence[word_tokens.WordTokens],
    tokens: Int[np.ndarray, "words"],
    settings: TextMeasurementSettings,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of one model: by case, and by case, layer and head."""
    topics = topic_tables.stack(cases)
    attention = measures.attention(
        model,
        readings,
        torch.from_numpy(topics).to(model.device),
        replicates=settings.replicates,
        rng=seeding.numpy_generator(0, "bootstrap"),
    )
    whole = tokens >= 0
    vectors = _embeddings(model, tokens[whole])
    dot, cosine = (
        measures.similarity(v, topics[:, whole]) for v in (vectors, measures.unit(vectors))
    )
    return (
        topic_tables.table(cases, attention, cosine, dot, weights=weights),
        topic_tables.head_table(cases, attention, weights=weights),
    )


def _embeddings(model: PreTrainedModel, tokens: Int[np.ndarray, "words"]) -> np.ndarray:
    """Return the input embeddings of tokens, a row each."""
    rows = torch.from_numpy(tokens).to(model.device)
    return model.get_input_embeddings().weight.detach()[rows].cpu().double().numpy()


def _write_cosines(
    path: str,
    drawn: list[list[int]],
    words: Sequence[str],
    tokens: Int[np.ndarray, "words"],
    models: dict[str, PreTrainedModel],
) -> None:
    """Write cosines between the embeddings of words, topic by topic, for the figure."""
    order = [number for of_topic in drawn for number in of_topic]
    arrays = {"topic": np.repeat(np.arange(len(drawn)), [len(of_topic) for of_topic in drawn])}
    for name, model in models.items():
        unit = measures.unit(_embeddings(model, tokens[order]))
        arrays[name] = unit @ unit.T
    named = {"words": json.dumps([words[number] for number in order], ensure_ascii=False)}
    artifacts.write_tensors(path, arrays, metadata=named)


job.run(main, globals())
