"""Compare attention by pair class in a pretrained model with a loop over pairs.

The loop is the procedure of the paper (Li, Li & Risteski, ICML 2023): for every assignment of
topics to words and every head, it goes over the ordered pairs of positions, checks whether the
words are equal or their topic sets intersect, and adds the weight to that class. Both methods get
the same maps, of MiniLM on documents of random tokens, and give the same numbers, which is checked.
The loop runs on one document and two assignments and is scaled up; its cost grows with the number
of either. It leaves out bootstrap replicates and the means by distance, which the other method
includes.

The statistics should also cost little compared with the forward pass; the share is reported.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from benchmarks.comparison import Result, seconds
from scripts.anatomy import assets
from scripts.anatomy.models import loading
from scripts.anatomy.text import measures
from scripts.anatomy.text.settings import FilterSettings, TextMeasurementSettings
from scripts.anatomy.text.word_tokens import WordTokens

DOCUMENTS = 8
MAX_LENGTH = 128
SHARE_OF_WORDS = 0.5  # of the tokens; the others are pieces, stop words and special tokens
WORDS, TOPICS, SHARE_OF_TOPICS = 8000, 25, 0.05
CASES = 3 * (len(FilterSettings().grid()) + 1)  # three seeds, each with a shuffled control
CASES_OF_LOOP = 2
SHARE_AIM = 100 / 3

Topics = Sequence[Sequence[set[int]]]


def measure() -> Result:
    """Check that both methods agree, and time them and the forward pass."""
    rng = np.random.default_rng(0)
    model = loading.model(assets.files("minilm")[1].parent)
    readings = [reading(rng) for _ in range(DOCUMENTS)]
    memberships = rng.random((CASES, WORDS, TOPICS)) < SHARE_OF_TOPICS
    maps = [maps for maps, _ in measures._read(model, readings)]
    words = [reading.words for reading in readings]
    few, one = memberships[:CASES_OF_LOOP], maps[0].numpy()
    topics = topic_sets(few)

    def ours(count: int, cases: Bool[np.ndarray, "cases words topics"]) -> measures.Attention:
        return measures.tally(
            zip(maps[:count], words[:count], strict=True), torch.from_numpy(cases), causal=False,
            max_length=MAX_LENGTH, replicates=TextMeasurementSettings().replicates, rng=rng,
        )  # fmt: skip

    tally = ours(1, few)
    mass, pairs = plain_loop(one, words[0], topics, causal=False)
    np.testing.assert_allclose(tally.mass[0], mass, rtol=1e-6)
    np.testing.assert_array_equal(tally.pairs[0], pairs)
    fast, plain, forward = seconds(
        lambda: ours(DOCUMENTS, memberships),
        lambda: plain_loop(one, words[0], topics, causal=False),
        lambda: list(measures._read(model, readings)),
        repeats=5,
    )
    plain *= DOCUMENTS * CASES / CASES_OF_LOOP
    share = 100 * fast / forward
    return Result(
        what=f"attention by class, {DOCUMENTS} documents of {MAX_LENGTH} tokens, {CASES} cases, "
        "MiniLM: sums of pairs, loop over pairs",
        ratio=plain / fast,
        unit="times",
        aim=200,
        details={"sums": fast, "loop": plain, "forward pass": forward, "sums, % of it": share},
        note=f"loop on 1 document and {CASES_OF_LOOP} cases, scaled; same numbers; of the forward "
        f"pass at most {SHARE_AIM:.0f} %: {'met' if share <= SHARE_AIM else 'NOT MET'}",
    )


def reading(rng: np.random.Generator) -> WordTokens:
    """Return a document of random tokens, some of which are words."""
    words = rng.integers(0, WORDS, MAX_LENGTH)
    words[rng.random(MAX_LENGTH) > SHARE_OF_WORDS] = -1
    return WordTokens(rng.integers(1000, 30_000, MAX_LENGTH), words, split=0, cut=False)


def topic_sets(memberships: Bool[np.ndarray, "cases words topics"]) -> list[list[set[int]]]:
    """Return the topics of every word, case by case."""
    return [[set(np.flatnonzero(row).tolist()) for row in member] for member in memberships]


def plain_loop(
    maps: Float[np.ndarray, "layers heads n n"],
    words: Int[np.ndarray, "n"],
    topics: Topics,
    *,
    causal: bool,
) -> tuple[Float[np.ndarray, "cases classes layers heads"], Float[np.ndarray, "cases classes"]]:
    """Return the summed weights, relative to uniform attention, and the number of pairs."""
    layers, heads, n, _ = maps.shape
    mass, pairs = np.zeros((len(topics), 3, layers, heads)), np.zeros((len(topics), 3))
    for case, topics_of in enumerate(topics):
        for layer in range(layers):
            for head in range(heads):
                total, count = [0.0, 0.0, 0.0], [0, 0, 0]
                for i, query in enumerate(words):
                    for j, key in enumerate(words):
                        if i == j or (causal and j > i) or query < 0 or key < 0:
                            continue
                        if not topics_of[query] or not topics_of[key]:
                            continue
                        if query == key:
                            kind = 0
                        elif topics_of[query] & topics_of[key]:
                            kind = 1
                        else:
                            kind = 2
                        total[kind] += float(maps[layer, head, i, j]) * (i + 1 if causal else n)
                        count[kind] += 1
                mass[case, :, layer, head] = total
        pairs[case] = count
    return mass, pairs
