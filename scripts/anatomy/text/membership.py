"""Assign words to topics by two rules on a fitted LDA.

Rule A keeps a topic's most likely words; rule B keeps a word's topics unless they share it with
too many others (Li, Li & Risteski, ICML 2023). In the released code rule A disables
rule B; here a word belongs to the topics that both rules keep. A word without a topic is in no
measured pair.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

if TYPE_CHECKING:
    from scripts.anatomy.text.lda import Topics  # importing gensim takes seconds


def membership(
    topics: "Topics", *, fraction: float = 1, threshold: float = 0
) -> Bool[np.ndarray, "words topics"]:
    """Return the topics of each word by both rules; fraction 1 or threshold 0 disables one."""
    likely = top_fraction(topics.topic_words, fraction)
    return likely & unambiguous(topics.term_weights, threshold)


def top_fraction(
    topic_words: Float[np.ndarray, "topics words"], fraction: float
) -> Bool[np.ndarray, "words topics"]:
    """Return the topics of each word by rule A.

    A topic keeps its int(words * fraction) + 1 likeliest words, the first ones of a tie.
    Fraction 1 keeps all words.
    """
    kept = int(topic_words.shape[1] * fraction) + 1
    order = np.argsort(-topic_words, axis=1, kind="stable")[:, :kept]
    likely = np.zeros(topic_words.shape, dtype=bool)
    np.put_along_axis(likely, order, True, axis=1)
    return likely.T


def unambiguous(
    term_weights: Float[np.ndarray, "topics words"], threshold: float
) -> Bool[np.ndarray, "words topics"]:
    """Return the topics of each word by rule B: those with at least `threshold` of its weight.

    Weights are exp(E[log beta]), as in the released code, whatever the frequency of the topic.
    Threshold 0 keeps all topics; above 0.5 a word has one topic or none.
    """
    total = np.maximum(term_weights.sum(axis=0), np.finfo(float).tiny)  # a weight may underflow
    return (term_weights / total >= threshold).T


def summary(membership: Bool[np.ndarray, "words topics"]) -> dict[str, float]:
    """Return the number of words with a topic, and their mean number of topics (NaN: no word)."""
    topics = membership.sum(axis=1)
    with_topic = topics[topics > 0]
    mean = float(with_topic.mean()) if len(with_topic) else float("nan")
    return {"words": len(with_topic), "topics_per_word": mean}


def effective_topics(mixtures: Float[np.ndarray, "docs topics"]) -> Float[np.ndarray, "docs"]:
    """Return exp(entropy) of each document's mixture: 1 for one topic, K for K equal ones."""
    logs = np.log(np.where(mixtures > 0, mixtures, 1))
    return np.exp(-np.sum(mixtures * logs, axis=1))
