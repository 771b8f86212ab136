"""Read every head's matrices over the vocabulary: top pairs, copying, identity, effective rank."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Integer

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.embedding import heads, lexicon, pairs, parameters, tokens
from scripts.anatomy.embedding.settings import GoldenSettings, ReadingSettings, TopPairsSettings
from scripts.anatomy.embedding.views import view
from scripts.anatomy.models import loading

logger = logging.getLogger(__name__)


def main(snakemake: Any) -> None:
    """Go through the heads, one matrix at a time."""
    params, out = snakemake.params, snakemake.output
    settings = TopPairsSettings.model_validate(params.pairs)
    golden = {name: GoldenSettings.model_validate(g) for name, g in params.golden.items()}
    folder = Path(snakemake.input.model)
    records, tables, listed = [], [], []
    with job.config_errors("embedding.pairs.words"):
        known = settings.words and lexicon.listed(settings.words)
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = view(loading.model(folder, head=True).to(compute.device))
        layers = heads.spaced(len(model.layers), params.layers)
        _check_golden(golden, layers, heads.spaced(len(model.layers[0].W_Q), settings.heads))
        tokenizer = loading.tokenizer(folder, len(model.W_E))
        vocabulary = tokens.read_vocabulary(tokenizer, len(model.W_E))
        ids = np.flatnonzero(tokens.token_filter(vocabulary, keep=settings.tokens, words=known))
        texts = [vocabulary.texts[i] for i in ids]
        words = heads.word_numbers(texts)
        rows = _rows(texts, settings.rows)
        model = parameters.read_as(model, ReadingSettings.model_validate(params.reading))
        word_of = None if settings.same_word else torch.from_numpy(words).to(compute.device)
        for head in heads.heads(
            model,
            model.W_E[ids],
            parameters.output_embedding(model)[ids],
            layers=layers,
            most=settings.heads,
        ):
            name = {"layer": head.layer, "head": head.head, "matrix": head.matrix}
            values = pairs.singular_values(head.A, head.B)
            records.append(
                name
                | pairs.summary(head.A, head.B, values)
                | {"identity": pairs.identity_share(head.A, head.B)}
                | {"singular_values": values.tolist()}
            )
            tables += [_pairs(head, order, settings.top, ids, word_of, name) for order in ORDERS]
            listed.append(_row_lists(head, rows, settings.top, ids, name))
    table, top = pd.DataFrame(records), pd.concat(tables, ignore_index=True)
    artifacts.write_table(out.heads, table)
    artifacts.write_table(out.pairs, top)
    artifacts.write_table(out.rows, pd.concat(listed, ignore_index=True))
    artifacts.write_json(out.summary, _summary(table, top, golden, vocabulary.texts))


def _check_golden(golden: dict[str, GoldenSettings], layers: list[int], read: list[int]) -> None:
    """Raise ValueError for a known head that is not among those that are read."""
    for name, head in golden.items():
        if head.layer not in layers or head.head not in read:
            raise ValueError(
                f"embedding.golden.{name}: head {head.head} of layer {head.layer} is not read; "
                f"heads {read} of layers {layers} are"
            )


def _rows(texts: list[str], wanted: list[str]) -> Integer[np.ndarray, "chosen"]:
    """Return the positions of the first tokens that are the wanted words; log the others."""
    place = {text.strip().lower(): number for number, text in reversed(list(enumerate(texts)))}
    for word in wanted:
        if word.lower() not in place:
            logger.warning("embedding.pairs.rows: %s is no single token here, so not listed", word)
    return np.array([place[w.lower()] for w in wanted if w.lower() in place], dtype=np.int64)


ORDERS = ("largest", "smallest")  # the largest by absolute value are among these


def _pairs(
    head: heads.Head,
    order: pairs.Order,
    top: int,
    ids: Integer[np.ndarray, "allowed"],
    word_of: torch.Tensor | None,
    name: dict[str, Any],
) -> pd.DataFrame:
    """Return the first pairs of different words in an order, a row each."""
    entries = pairs.top_pairs(head.A, head.B, top, order=order, word_of=word_of)
    return pd.DataFrame(
        {
            **name,
            "order": order,
            "rank": range(top),
            "row": ids[entries.rows.cpu().numpy()],
            "column": ids[entries.columns.cpu().numpy()],
            "value": entries.values.cpu().numpy(),
            "scanned": entries.scanned,
        }
    )


def _row_lists(
    head: heads.Head,
    rows: Integer[np.ndarray, "chosen"],
    top: int,
    ids: Integer[np.ndarray, "allowed"],
    name: dict[str, Any],
) -> pd.DataFrame:
    """Return the first columns of the wanted rows, a row each."""
    columns = np.zeros((0, top), dtype=np.int64)
    values = np.zeros((0, top))
    if len(rows):
        at = torch.from_numpy(rows).to(head.A.device)
        columns, values = (x.cpu().numpy() for x in pairs.top_columns(head.A, head.B, at, top))
    return pd.DataFrame(
        {
            **name,
            "row": np.repeat(ids[rows], top),
            "rank": np.tile(np.arange(top), len(rows)),
            "column": ids[columns.ravel()],
            "value": values.ravel(),
        }
    )


def _summary(
    table: pd.DataFrame,
    top: pd.DataFrame,
    golden: dict[str, GoldenSettings],
    texts: tuple[str, ...],
) -> dict[str, Any]:
    """Return means over heads, extremes, and the share of known pairs that were found again."""
    summary: dict[str, Any] = {}
    for matrix, rows in table.groupby("matrix"):
        numbers = rows.drop(columns=["layer", "head", "matrix", "singular_values"])
        summary[matrix] = {"mean": numbers.mean().to_dict(), "highest": numbers.max().to_dict()}
    summary["scanned"] = float(top["scanned"].mean())
    summary["golden"] = {}
    for name, known in golden.items():
        rows = top[(top["order"] == "largest") & (top["matrix"] == known.matrix)]
        rows = rows[(rows["layer"] == known.layer) & (rows["head"] == known.head)]
        listed = {
            (texts[r].strip(), texts[c].strip())
            for r, c in zip(rows["row"], rows["column"], strict=True)
        }
        summary["golden"][name] = float(np.mean([pair in listed for pair in known.pairs]))
    return summary


job.run(main, globals())
