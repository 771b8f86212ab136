"""The parameter vectors that are nearest to a concept, given as words.

The paper looks knowledge up by ranking vectors by their inner product with the mean embedding of a
few words. That is the mean of the words' projected scores, and so it is read off the index: without
the model, in a second or so. This module does without torch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Integer

from scripts.anatomy.embedding.index import Index


@dataclass(frozen=True)
class Match:
    """A vector near the concept.

    Attributes:
        layer: Its layer.
        group: Its group of parameters.
        head: Its head; -1 in the feed-forward block.
        index: Its number in the head or the block.
        sign: 1, or -1 where it is the vector's negative that is near.
        found: How many of the words are among its top tokens.
        score: The mean over the words of w E, divided by the norm of w.
        ids: Its top tokens.
    """

    layer: int
    group: str
    head: int
    index: int
    sign: int
    found: int
    score: float
    ids: Integer[np.ndarray, "k"]


def token_ids(
    texts: Sequence[str], words: Sequence[str], allowed: Bool[np.ndarray, "d_vocab"] | None = None
) -> dict[str, Integer[np.ndarray, "variants"]]:
    """Return the tokens that are a word, in any case, with and without a space before it.

    Raises ValueError for words that are no single token, and so are in no list.
    """
    wanted: dict[str, list[int]] = {word.strip().lower(): [] for word in words}
    for number, text in enumerate(texts):
        if (numbers := wanted.get(text.lower())) is not None and (
            allowed is None or allowed[number]
        ):
            numbers.append(number)
    if missing := [word for word, ids in wanted.items() if not ids]:
        raise ValueError(f"no single token of this vocabulary: {', '.join(missing)}")
    return {word: np.array(ids) for word, ids in wanted.items()}


def search(
    index: Index,
    words: Mapping[str, Integer[np.ndarray, "variants"]],
    *,
    top: int = 20,
    groups: Collection[str] | None = None,
) -> list[Match]:
    """Return the vectors and negatives of vectors with the highest score for the words, best first.

    A word counts with its best variant, and with 0 for a vector that does not have it in its list;
    a vector without any of the words is no match. `groups` are all by default.
    """
    word_of = np.full(index.d_vocab, -1, dtype=np.int16)
    for number, ids in enumerate(words.values()):
        word_of[ids] = number
    matches: list[Match] = []
    for layer, group in index.groups:
        if groups is None or group in groups:
            for side in ("high", "low"):
                matches += _matches(index, layer, group, side, word_of, len(words), top)
            matches = sorted(matches, key=lambda match: -match.score)[:top]
    return matches


def _matches(
    index: Index,
    layer: int,
    group: str,
    side: Literal["high", "low"],
    word_of: Integer[np.ndarray, "d_vocab"],
    n_words: int,
    top: int,
) -> list[Match]:
    """Return the best of one group of one layer, on one side."""
    ids = index.columns(layer, group, [f"ids_{side}"])[f"ids_{side}"]
    row, at = (word_of[ids] >= 0).nonzero()
    if len(row) == 0:  # the rest of the columns need not be read
        return []
    columns = index.columns(layer, group, ["head", "index", "norm", f"scores_{side}"])
    word = word_of[ids[row, at]]
    best = np.full((len(ids), n_words), -np.inf)
    np.maximum.at(best, (row, word), columns[f"scores_{side}"][row, at])
    hits = np.isfinite(best).sum(axis=1)
    score = np.where(np.isfinite(best), best, 0).mean(axis=1) / np.maximum(columns["norm"], 1e-30)
    rows = [int(r) for r in np.argsort(-score, kind="stable")[:top] if hits[r]]
    where = zip(*(columns[name][rows].tolist() for name in ("head", "index")), strict=True)
    return [
        Match(
            layer,
            group,
            head,
            number,
            1 if side == "high" else -1,
            int(hits[r]),
            float(score[r]),
            ids[r],
        )
        for r, (head, number) in zip(rows, where, strict=True)
    ]
