"""Compare attention by pair class from products of topic indicators with a loop over pairs.

The loop is the procedure of the papers: in every document and head, it goes over the ordered pairs
of positions, checks whether the words are equal or their topic sets intersect, and adds the weight
to that class. It reads arrays; topic sets are built beforehand. All methods get the same maps and
give the same numbers, which is checked. The loop runs on a few documents and is scaled up;
documents have equal sizes, so its cost grows with their number.

A tuned loop over lists instead of arrays is several times faster. Its time is reported too; the aim
refers to the plain loop.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Integer

from benchmarks.comparison import Result, default_config, seconds
from scripts.anatomy.topic import corpora, measures

DOCUMENTS = 500
DOCUMENTS_OF_LOOP = 5
MAX_LENGTH = 100
HEADS = 12  # of a layer of BERT base

Loop = Callable[[np.ndarray, np.ndarray, list[set[int]]], Float[np.ndarray, "heads classes"]]


def measure() -> Result:
    """Check that all methods agree, and time them."""
    settings = default_config().topic.corpora["lda"].model_copy(update={"train": DOCUMENTS})
    rng = np.random.default_rng(0)
    corpus = corpora.sample(settings, rng)
    tokens, membership = corpus.train[:, :MAX_LENGTH], corpus.membership
    maps = rng.random((DOCUMENTS, HEADS, MAX_LENGTH, MAX_LENGTH), dtype=np.float32)
    maps /= maps.sum(axis=3, keepdims=True)
    topics = topic_sets(membership)

    def ours(count: int) -> list[dict[str, float]]:
        return measures.attention_from_maps(
            maps[:count], tokens[:count], membership, reference_length=MAX_LENGTH
        )

    def loop(over: Loop) -> Float[np.ndarray, "heads classes"]:
        return over(maps[:DOCUMENTS_OF_LOOP], tokens[:DOCUMENTS_OF_LOOP], topics)

    products = [[head[name] for name in measures.CLASSES] for head in ours(DOCUMENTS_OF_LOOP)]
    np.testing.assert_allclose(products, loop(plain_loop), rtol=1e-4)
    np.testing.assert_allclose(products, loop(tuned_loop), rtol=1e-4)
    fast, *loops = seconds(
        lambda: ours(DOCUMENTS), lambda: loop(plain_loop), lambda: loop(tuned_loop), repeats=5
    )
    plain, tuned = (time * DOCUMENTS / DOCUMENTS_OF_LOOP for time in loops)
    return Result(
        what=f"attention by class, {DOCUMENTS} documents of {MAX_LENGTH} tokens, {HEADS} heads: "
        "products of indicators, loop over pairs",
        ratio=plain / fast,
        unit="times",
        aim=500,
        details={"products": fast, "loop": plain, "tuned loop": tuned},
        note=f"loops on {DOCUMENTS_OF_LOOP} documents, scaled; same numbers",
    )


def topic_sets(membership: Bool[np.ndarray, "words topics"]) -> list[set[int]]:
    """Return the topics of every token; special tokens have no topic."""
    word_sets = [set(np.flatnonzero(row).tolist()) for row in membership]
    return [set() for _ in range(corpora.FIRST_WORD)] + word_sets


def plain_loop(
    maps: Float[np.ndarray, "docs heads queries keys"],
    tokens: Integer[np.ndarray, "docs max_length"],
    topics: list[set[int]],
) -> Float[np.ndarray, "heads classes"]:
    """Return the mean weight by class for every head, pair by pair."""
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
            mass[head] += np.multiply(total, length / MAX_LENGTH)
            pairs[head] += count
    return mass / pairs


def tuned_loop(
    maps: Float[np.ndarray, "docs heads queries keys"],
    tokens: Integer[np.ndarray, "docs max_length"],
    topics: list[set[int]],
) -> Float[np.ndarray, "heads classes"]:
    """Return the result of `plain_loop` with lists and Python numbers in the inner loop."""
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
            mass[head] += np.multiply(total, length / MAX_LENGTH)
            pairs[head] += count
    return mass / pairs
