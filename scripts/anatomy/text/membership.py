"""Which topics a word belongs to, by two rules on a fitted LDA, and how many that gives.

Rule A keeps a topic's most likely words; rule B keeps a word's topics unless they share it with
too many others (Li, Li & Risteski, ICML 2023). In the released code rule A switches
rule B off; here they combine, and a word belongs to the topics that both keep. A word that no
topic keeps belongs to none, and pairs with it are left out of all measurements.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Integer

if TYPE_CHECKING:
    from scripts.anatomy.text.lda import Topics  # importing gensim takes seconds


def membership(
    topics: "Topics", *, fraction: float = 1, threshold: float = 0
) -> Bool[np.ndarray, "words topics"]:
    """The topics of each word by both rules; fraction 1 or threshold 0 switches one off."""
    likely = top_fraction(topics.topic_words, fraction)
    return likely & unambiguous(topics.term_weights, threshold)


def top_fraction(
    topic_words: Float[np.ndarray, "topics words"], fraction: float
) -> Bool[np.ndarray, "words topics"]:
    """Rule A: each topic keeps int(words * fraction) + 1 words, its likeliest.

    Of equally likely words the first are kept. Fraction 1 keeps all words.
    """
    kept = int(topic_words.shape[1] * fraction) + 1
    order = np.argsort(-topic_words, axis=1, kind="stable")[:, :kept]
    likely = np.zeros(topic_words.shape, dtype=bool)
    np.put_along_axis(likely, order, True, axis=1)
    return likely.T


def unambiguous(
    term_weights: Float[np.ndarray, "topics words"], threshold: float
) -> Bool[np.ndarray, "words topics"]:
    """Rule B: each word keeps the topics with at least `threshold` of its weight over all topics.

    Weights are exp(E[log beta]), as in the released code; common and rare topics count alike.
    Threshold 0 keeps all topics; above 0.5 a word has one topic or none.
    """
    total = np.maximum(term_weights.sum(axis=0), np.finfo(float).tiny)  # a weight may underflow
    return (term_weights / total >= threshold).T


def summary(membership: Bool[np.ndarray, "words topics"]) -> dict[str, float]:
    """How many words have a topic, and how many topics those have on average (NaN: no word)."""
    topics = membership.sum(axis=1)
    with_topic = topics[topics > 0]
    mean = float(with_topic.mean()) if len(with_topic) else float("nan")
    return {"words": len(with_topic), "topics_per_word": mean}


def topics_per_document(
    bags: Iterable[Sequence[tuple[int, float]]], membership: Bool[np.ndarray, "words topics"]
) -> Integer[np.ndarray, "docs"]:
    """How many distinct topics the words of each document belong to.

    A document is a bag: pairs of a word's number and its weight, which does not matter here.
    """
    numbers = ([number for number, _ in bag] for bag in bags)
    return np.array([membership[words].any(axis=0).sum() for words in numbers], dtype=np.int64)


def effective_topics(mixtures: Float[np.ndarray, "docs topics"]) -> Float[np.ndarray, "docs"]:
    """exp(entropy) of each document's mixture: 1 for a single topic, K for K equal ones."""
    logs = np.log(np.where(mixtures > 0, mixtures, 1))
    return np.exp(-np.sum(mixtures * logs, axis=1))
