"""Attention by pair class, with products of topic indicators against a loop over pairs.

The loop is the procedure as papers describe it, written down plainly: in every document and every
head, go over the ordered pairs of positions, see whether the words are the same or their topic
sets meet, and add the weight to that class. It reads the arrays that it is given; topic sets are
built beforehand. All get the same maps and give the same numbers (checked). The loop runs on a few
documents and is scaled up; documents are of equal size, so its cost grows with their number.

Who tunes the loop by hand, with lists in place of arrays, gets it some times faster; that time is
given too, and the aim is about the plain one.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Integer

from benchmarks.comparison import Result, default_config, seconds
from scripts.anatomy.topic import corpora, measures

DOCUMENTS = 500
DOCUMENTS_OF_LOOP = 5
LONGEST = 100
HEADS = 12  # of a layer of BERT base

Loop = Callable[[np.ndarray, np.ndarray, list[set[int]]], Float[np.ndarray, "heads classes"]]


def measure() -> Result:
    """Check that both agree, and time them."""
    settings = default_config().topic.corpora["lda"].model_copy(update={"train": DOCUMENTS})
    rng = np.random.default_rng(0)
    corpus = corpora.sample(settings, rng)
    tokens, membership = corpus.train[:, :LONGEST], corpus.membership
    maps = rng.random((DOCUMENTS, HEADS, LONGEST, LONGEST), dtype=np.float32)
    maps /= maps.sum(axis=3, keepdims=True)
    topics = topic_sets(membership)

    def ours(count: int) -> list[dict[str, float]]:
        return measures.attention_from_maps(
            maps[:count], tokens[:count], membership, reference_length=LONGEST
        )

    def loop(over: Loop) -> Float[np.ndarray, "heads classes"]:
        return over(maps[:DOCUMENTS_OF_LOOP], tokens[:DOCUMENTS_OF_LOOP], topics)

    same = [[head[name] for name in measures.CLASSES] for head in ours(DOCUMENTS_OF_LOOP)]
    np.testing.assert_allclose(same, loop(plain_loop), rtol=1e-4)
    np.testing.assert_allclose(same, loop(tuned_loop), rtol=1e-4)
    fast, *loops = seconds(
        lambda: ours(DOCUMENTS), lambda: loop(plain_loop), lambda: loop(tuned_loop), repeats=5
    )
    plain, tuned = (time * DOCUMENTS / DOCUMENTS_OF_LOOP for time in loops)
    return Result(
        what=f"attention by class, {DOCUMENTS} documents of {LONGEST} tokens, {HEADS} heads: "
        "products of indicators, loop over pairs",
        ratio=plain / fast,
        unit="times",
        aim=500,
        details={"products": fast, "loop": plain, "tuned loop": tuned},
        note=f"loops on {DOCUMENTS_OF_LOOP} documents, scaled; same numbers",
    )


def topic_sets(membership: Bool[np.ndarray, "words topics"]) -> list[set[int]]:
    """The topics of every token; special tokens have none."""
    of_words = [set(np.flatnonzero(row).tolist()) for row in membership]
    return [set() for _ in range(corpora.FIRST_WORD)] + of_words


def plain_loop(
    maps: Float[np.ndarray, "docs heads queries keys"],
    tokens: Integer[np.ndarray, "docs max_length"],
    topics: list[set[int]],
) -> Float[np.ndarray, "heads classes"]:
    """Mean weight by class for every head, pair by pair."""
    heads = maps.shape[1]
    mass, pairs = np.zeros((heads, 3)), np.zeros((heads, 3))
    for document, words in enumerate(tokens):
        length = np.count_nonzero(words)
        for head in range(heads):
            total, count = [0.0, 0.0, 0.0], [0, 0, 0]
            for i, query in enumerate(words):
                for j, key in enumerate(words):
                    if not topics[query] or not topics[key]:
                        continue
                    if query == key:
                        kind = 0
                    elif topics[query] & topics[key]:
                        kind = 1
                    else:
                        kind = 2
                    total[kind] += maps[document, head, i, j]
                    count[kind] += 1
            mass[head] += np.multiply(total, length / LONGEST)
            pairs[head] += count
    return mass / pairs


def tuned_loop(
    maps: Float[np.ndarray, "docs heads queries keys"],
    tokens: Integer[np.ndarray, "docs max_length"],
    topics: list[set[int]],
) -> Float[np.ndarray, "heads classes"]:
    """The same with Python's own lists and numbers in the inner loop."""
    mass, pairs = np.zeros((maps.shape[1], 3)), np.zeros((maps.shape[1], 3))
    for of_heads, row in zip(maps.tolist(), tokens.tolist(), strict=True):
        length = sum(token != corpora.PAD for token in row)
        for head, weights in enumerate(of_heads):
            total, count = [0.0, 0.0, 0.0], [0, 0, 0]
            for query, of_query in zip(row, weights, strict=True):
                mine = topics[query]
                for key, weight in zip(row, of_query, strict=True):
                    others = topics[key]
                    if not mine or not others:
                        continue
                    kind = 0 if query == key else 1 if mine & others else 2
                    total[kind] += weight
                    count[kind] += 1
            mass[head] += np.multiply(total, length / LONGEST)
            pairs[head] += count
    return mass / pairs
