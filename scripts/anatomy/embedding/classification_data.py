"""Texts with one of two labels, in three parts that have no group (no film) in common."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from scripts.anatomy import artifacts, assets, hf_datasets
from scripts.anatomy.data_sources import TABLES
from scripts.anatomy.embedding.settings import (
    HubLabelledSettings,
    Labelled,
    PackagedLabelledSettings,
    TableLabelledSettings,
)

MAX_CHARACTERS = 5_000_000  # characters of a text
COLUMNS = {"text": "texts", "name": "labels"}
PARTS = ("train", "validation", "test")
PENALTIES = (0.1, 0.3, 1.0, 3.0)  # inverse strengths C of the baseline's penalty that are tried


def read(settings: Labelled) -> pd.DataFrame:
    """Return the texts, each once, as columns text, label (0 or 1), group, name of the label.

    Texts of a test split are the group "test", which `split` takes as the test part.

    Raises:
        ValueError: A missing column, or labels that are not of two kinds; the source is named.
    """
    match settings:
        case PackagedLabelledSettings():
            source, rows = settings.package, _films(assets.find("films"))
        case TableLabelledSettings():
            source, rows = str(settings.path), _table(settings)
        case HubLabelledSettings():
            source, rows = settings.id, _hub(settings)
    rows = rows.dropna(subset=["text", "name"])
    for column in ("text", "name"):
        _check_plain(rows[column], f"{source}: the column of the {COLUMNS[column]}")
    rows["text"] = rows["text"].astype(str).str.split().str.join(" ")
    rows = rows[rows["text"] != ""].drop_duplicates("text").reset_index(drop=True)
    names = sorted(rows["name"].unique(), key=_order(settings))
    if len(names) != 2:
        listed = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
        raise ValueError(
            f"{source}: {len(names)} labels ({listed or 'none'}), where two are needed"
        )
    rows["label"] = (rows["name"] == names[1]).astype(int)
    rows["name"] = rows["name"].astype(str)
    return rows[["text", "label", "group", "name"]]


def _check_plain(values: pd.Series, column: str) -> None:
    """Raise ValueError for values that are neither text nor numbers, and for text without end."""
    for value in values:
        if isinstance(value, dict | list | bytes | np.ndarray):
            raise ValueError(f"{column} holds a {type(value).__name__}, not text")
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise ValueError(f"{column} holds one of more than {MAX_CHARACTERS} characters")


def _order(settings: Labelled) -> Any:
    """Return how labels are sorted; the last is label 1."""
    films = ("rotten", "fresh")
    return films.index if isinstance(settings, PackagedLabelledSettings) else str


def _films(path: Path) -> pd.DataFrame:
    """Snippets of reviews by film; the plots in the file have no label."""
    table = pd.read_csv(path, usecols=["category", "text", "movie_name"])
    table = table[table["category"] != "plot"]
    return table.rename(columns={"category": "name", "movie_name": "group"})


def _table(settings: TableLabelledSettings) -> pd.DataFrame:
    readers = {"json": lambda p: pd.read_json(p, lines=True), "csv": pd.read_csv}
    reader = readers.get(TABLES[settings.path.suffix], pd.read_parquet)
    try:
        table = reader(settings.path)
    except MemoryError:
        raise
    except Exception as error:  # each reader has its own; all of them are about this file
        raise ValueError(f"{settings.path}: {artifacts.first_line(error)}") from error
    return _columns(table, settings, str(settings.path), settings.group)


def _hub(settings: HubLabelledSettings) -> pd.DataFrame:
    """Return the rows of the splits; those of the test split are one group."""
    tables = []
    for split in filter(None, (settings.split, settings.test_split)):
        try:
            rows = hf_datasets.of_set(
                settings.id, settings.config, split=split, revision=settings.revision
            )
            table = pd.DataFrame(list(rows))
        except Exception as error:  # the client has its own kinds; all are about this source
            raise ValueError(f"{settings.id}: {artifacts.first_line(error)}") from error
        part = _columns(table, settings, settings.id, None)
        tables.append(part.assign(group="test") if split == settings.test_split else part)
    return pd.concat(tables, ignore_index=True)


def _columns(
    table: pd.DataFrame,
    settings: TableLabelledSettings | HubLabelledSettings,
    source: str,
    group: str | None,
) -> pd.DataFrame:
    for column in filter(None, (settings.text, settings.label, group)):
        if column not in table:
            raise ValueError(f"{source}: no column {column}, only {', '.join(map(str, table))}")
    groups = table[group].astype(str) if group else [f"row {n}" for n in range(len(table))]
    return pd.DataFrame(
        {"text": table[settings.text], "name": table[settings.label], "group": groups}
    )


def split(texts: pd.DataFrame, settings: Labelled, generator: np.random.Generator) -> pd.DataFrame:
    """Return the texts in random order with their part; each group is in one part.

    Raises ValueError if a part has not both labels.
    """
    given = getattr(settings, "test_split", None) is not None
    if settings.limit is not None and len(texts) > settings.limit:
        texts = texts.iloc[generator.permutation(len(texts))[: settings.limit]]
    groups = sorted(texts["group"].unique())
    order = [groups[index] for index in generator.permutation(len(groups))]
    if given:
        order.remove("test")
    sizes = texts.groupby("group").size()
    before = sizes[order].cumsum() - sizes[order]  # texts in the groups that come first
    total = sizes[order].sum()
    test = 0.0 if given else settings.test
    part = pd.Series("train", index=order)
    part[before < (test + settings.validation) * total] = "validation"
    part[before < test * total] = "test"
    if given:
        part["test"] = "test"
    shuffled = texts.iloc[generator.permutation(len(texts))].reset_index(drop=True)
    shuffled["part"] = shuffled["group"].map(part)
    for name in PARTS:
        if shuffled.loc[shuffled["part"] == name, "label"].nunique() < 2:
            raise ValueError(
                f"{len(texts)} texts in {len(groups)} groups leave the {name} part without one "
                "of the labels"
            )
    return shuffled


def balanced(texts: pd.DataFrame, part: str, most: int) -> pd.DataFrame:
    """Return the first texts of a part, both labels equally often, so that chance is one half."""
    rows = texts[texts["part"] == part]
    each = min(most // 2, *(int((rows["label"] == label).sum()) for label in (0, 1)))
    return rows[rows.groupby("label").cumcount() < each].reset_index(drop=True)


# --- baselines ----------------------------------------------------------------------------------


def bag_of_words(
    train: pd.DataFrame, validation: pd.DataFrame, tests: Mapping[str, pd.DataFrame]
) -> dict[str, np.ndarray]:
    """Return what a logistic regression on which words occur predicts, for each of the test tables.

    The strength of its penalty is the one that is best on the validation texts.
    """
    counter = CountVectorizer(binary=True)
    words = counter.fit_transform(train["text"])
    choosing = counter.transform(validation["text"])
    best = max(
        (_logistic(words, train["label"], C) for C in PENALTIES),
        key=lambda model: model.score(choosing, validation["label"]),
    )
    return {name: best.predict(counter.transform(test["text"])) for name, test in tests.items()}


def _logistic(
    words: sparse.csr_matrix, labels: Iterable[int], penalty: float
) -> LogisticRegression:
    return LogisticRegression(C=penalty, max_iter=500).fit(words, labels)


def majority(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """Accuracy of the label that is more frequent in training."""
    most = int(train["label"].mean() >= 0.5)
    return float((test["label"] == most).mean())


# --- batches ------------------------------------------------------------------------------------


def batches(
    lengths: Sequence[int], *, batch: int, steps: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the texts of every step, each once in a pass over all, those alike in length together.

    Ten batches at a time are sorted by length and come in random order, which saves padding.
    """
    lengths = np.asarray(lengths)
    passes = -(-steps * batch // len(lengths))
    order = np.concatenate([generator.permutation(len(lengths)) for _ in range(passes)])
    steps_of_chunks = []
    for chunk in np.split(order, range(10 * batch, len(order), 10 * batch)):
        by_length = chunk[np.argsort(lengths[chunk], kind="stable")]
        whole = [by_length[at : at + batch] for at in range(0, len(by_length), batch)]
        steps_of_chunks.append([whole[index] for index in generator.permutation(len(whole))])
    return list(chain.from_iterable(steps_of_chunks))[:steps]
