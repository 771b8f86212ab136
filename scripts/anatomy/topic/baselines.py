"""Baselines of a corpus: the lowest possible loss and the best block-structured predictors.

No network is trained. Trained models are compared with these values.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.optimize import minimize, minimize_scalar
from scipy.special import digamma, log_softmax

from scripts.anatomy.topic.corpora import (
    END,
    FIRST_WORD,
    MASK,
    PAD,
    Corpus,
    token_counts,
    topic_counts,
    word_mask,
)
from scripts.anatomy.topic.theory import ValueBlocks

# BERT's masking, which the paper uses throughout
P_M, P_C, P_R = 0.15, 0.1, 0.1


def oracle_loss(words_per_topic: int, topics: int, alpha: float) -> float:
    """Return the cross-entropy (nats) of a predictor that knows each document's topic mixture.

    For LDA with disjoint uniform topics: ln v + E[entropy of theta]
    = ln v + psi(T alpha + 1) - psi(alpha + 1).
    """
    entropy = digamma(topics * alpha + 1) - digamma(alpha + 1)
    return float(np.log(words_per_topic) + entropy)


def bayes_loss(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    alpha: float,
    rng: np.random.Generator,
) -> float:
    """Return the cross-entropy of the exact posterior given the words that are not selected.

    With disjoint uniform topics the topic of every word is known, so the posterior is the
    Dirichlet-multinomial rule (n_k + alpha) / (n + T alpha), shared among v words. No model
    without access to the selected word itself can do better.
    """
    selected = _select(documents, rng)
    seen = topic_counts(np.where(selected, PAD, documents), membership)
    topic = _topic_of(documents, membership)
    topics = membership.shape[1]
    posterior = (seen + alpha) / (seen.sum(axis=1, keepdims=True) + topics * alpha)
    chance = np.take_along_axis(posterior, np.where(selected, topic, 0), axis=1)
    words_per_topic = len(membership) / topics
    return float(-np.log(chance[selected] / words_per_topic).mean())


@dataclass(frozen=True)
class BlockFit:
    """The best block-structured W_V on one-hot embeddings and uniform attention.

    Attributes:
        contrast: Entry within topics minus entry across topics.
        loss: Its loss on the same documents.
    """

    contrast: float
    loss: float


def fit_blocks_squared(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    rng: np.random.Generator,
    *,
    visible: bool,
) -> BlockFit:
    """Fit W_V by least squares: x within topics, y across, and z from each special token."""
    own, total, special, weight, targets = _block_features(documents, membership, rng, visible)
    docs, topics = own.shape
    v = len(membership) / topics
    # A row per (document, topic): the output on any of the topic's v words
    features = np.stack(
        [own, total[:, None] - own, *(np.broadcast_to(s[:, None], own.shape) for s in special.T)],
        axis=-1,
    ).reshape(docs * topics, -1)
    row_weight = np.repeat(weight, topics)
    mean_target = (targets / v).ravel()  # of a word of that topic
    gram = (features * row_weight[:, None]).T @ features
    solution = np.linalg.lstsq(gram, features.T @ (row_weight * mean_target), rcond=None)[0]
    output = features @ solution
    loss = v * np.sum(row_weight * (output**2 - 2 * output * mean_target)) / weight.sum() + 1
    return BlockFit(float(solution[0] - solution[1]), float(loss))


def fit_blocks_cross_entropy(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    rng: np.random.Generator,
    *,
    visible: bool,
) -> BlockFit:
    """Fit a block W_V by cross-entropy: only the contrast matters, special tokens weigh 0."""
    own, _, _, weight, targets = _block_features(documents, membership, rng, visible)
    v = len(membership) / own.shape[1]

    def loss(contrast: float) -> float:
        log_topic = log_softmax(contrast * own, axis=1)
        return float(np.log(v) - np.average((targets * log_topic).sum(axis=1), weights=weight))

    best = minimize_scalar(loss, bounds=(0, 50), method="bounded")
    return BlockFit(float(best.x), float(best.fun))


def best_attention_ratio(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    blocks: ValueBlocks,
    rng: np.random.Generator,
    *,
    p_m: float = P_M,
) -> float:
    """Return Theorem 3's R for given documents: the ratio with the least squared loss on them.

    The theorem's documents are infinitely long, and how MASK is attended to is not known; here
    documents have their own lengths, and MASK's weight is free. Otherwise attention has the
    theorem's form (same topic R, other words 1) and W_V the given blocks.
    """
    selected = _select(documents, rng, p_m)
    observed = _replace(documents, selected, len(membership), rng)
    counts = topic_counts(observed, membership)
    masks = (observed == MASK).sum(axis=1)
    shown_topic, true_topic = (
        _topic_of(tokens[selected], membership) for tokens in (observed, documents)
    )
    asking = observed[selected] >= FIRST_WORD  # MASK attends uniformly whatever R is
    row, query, target = (
        array[asking] for array in (np.nonzero(selected)[0], shown_topic, true_topic)
    )
    return _least_loss_ratio(counts[row], masks[row], query, target, blocks, membership)


def _least_loss_ratio(
    counts: Float[np.ndarray, "queries topics"],
    masks: Integer[np.ndarray, "queries"],
    query: Integer[np.ndarray, "queries"],
    target: Integer[np.ndarray, "queries"],
    blocks: ValueBlocks,
    membership: Bool[np.ndarray, "words topics"],
) -> float:
    """Return the R of least mean squared loss, given the topic counts of each query's document."""
    v = len(membership) / membership.shape[1]
    every = np.arange(len(query))
    own = counts[every, query]
    total, squares = counts.sum(axis=1), np.square(counts).sum(axis=1)
    same_target = query == target
    of_target = counts[every, target]
    x, y, z = blocks.same, blocks.different, blocks.mask_column

    def loss(log_weights: Float[np.ndarray, "2"]) -> float:
        ratio, of_mask = np.exp(log_weights)
        extra = (ratio - 1) * own  # weight that the query's topic gains
        weight = total + of_mask * masks + extra
        constant = y * (total + extra) + z * of_mask * masks  # output on words of any topic
        # outputs are (constant + (x - y) a_k) / weight with a_k the weight on topic k
        sum_a = total + extra
        sum_a2 = squares + 2 * own * extra + extra**2
        topics = counts.shape[1]
        norm = topics * constant**2 + 2 * constant * (x - y) * sum_a + (x - y) ** 2 * sum_a2
        aimed = constant + (x - y) * (of_target + np.where(same_target, extra, 0))
        return float(np.mean(v * norm / weight**2 - 2 * aimed / weight))

    return float(np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead").x[0]))


def _block_features(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    rng: np.random.Generator,
    visible: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return attention mass on topics, on all words and on special tokens; weights; target topics.

    A document's weight is its number of selected words. Target topics are the shares of the
    topics among a document's selected words.
    """
    selected = _select(documents, rng)
    observed = _replace(documents, selected, len(membership), rng)
    attended = observed if visible else np.where(selected, PAD, documents)
    counts = token_counts(attended, len(membership) + FIRST_WORD)
    mass = counts / np.maximum(
        counts.sum(axis=1, keepdims=True), 1
    )  # a document hidden whole has none
    own = mass[:, FIRST_WORD:] @ membership.astype(float)
    special = mass[:, MASK:FIRST_WORD]
    special = special[:, special.any(axis=0)]
    targets = topic_counts(np.where(selected, documents, PAD), membership)
    weight = targets.sum(axis=1)
    return own, own.sum(axis=1), special, weight, targets / np.maximum(weight, 1)[:, None]


def _topic_of(
    tokens: Integer[np.ndarray, "*positions"], membership: Bool[np.ndarray, "words topics"]
) -> Integer[np.ndarray, "*positions"]:
    """Return the topic of every word; the value for special tokens has no meaning."""
    return membership.argmax(axis=1)[np.maximum(tokens - FIRST_WORD, 0)]


def _select(
    documents: Integer[np.ndarray, "docs max_length"], rng: np.random.Generator, p_m: float = P_M
) -> Bool[np.ndarray, "docs max_length"]:
    return word_mask(documents) & (rng.random(documents.shape) < p_m)


def _replace(
    documents: Integer[np.ndarray, "docs max_length"],
    selected: Bool[np.ndarray, "docs max_length"],
    words: int,
    rng: np.random.Generator,
) -> Integer[np.ndarray, "docs max_length"]:
    """Return the documents after masking: selected words kept, random, or MASK."""
    fate = rng.random(documents.shape)
    random_word = rng.integers(FIRST_WORD, words + FIRST_WORD, documents.shape)
    replaced = np.where(fate < P_C, documents, np.where(fate < P_C + P_R, random_word, MASK))
    return np.where(selected, replaced, documents)


def released_pair_counts(
    documents: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    *,
    fixed: bool,
    count: int = 500,
    max_length: int = 100,
) -> dict[str, int]:
    """Return the number of ordered position pairs by class, as the released statistics count them.

    The released code cuts documents to 100 tokens with START among them and looks topics up by
    token id, not by word: every word gets the topic of the fourth word after it, START (id 2) gets
    topic 0, and the last four words get none ("empty"). `fixed` looks up by word and drops START.
    Pairs of the same token come first, then pairs with an empty token.
    """
    topics = membership.shape[1]
    table = np.full(len(membership) + FIRST_WORD, -1)
    first_row = FIRST_WORD if fixed else 0
    table[first_row : first_row + len(membership)] = membership.argmax(axis=1)
    counts = token_counts(documents[:count, int(fixed) : max_length], len(table))
    counts[:, END] = 0  # the released code drops it
    per_topic = np.stack([counts[:, table == k].sum(axis=1) for k in range(topics)], axis=1)
    empty = counts[:, table < 0].sum(axis=1)
    length = counts.sum(axis=1)
    same = np.square(counts).sum()
    with_topic = np.square(counts[:, table >= 0]).sum()
    return {
        "same": int(same),
        "topic": int(np.square(per_topic).sum() - with_topic),
        "different": int((np.square(length - empty) - np.square(per_topic).sum(axis=1)).sum()),
        "empty": int((np.square(length) - np.square(length - empty)).sum() - (same - with_topic)),
    }


def all_baselines(
    corpus: Corpus, alpha: float | None, rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """Return the loss floor and the best block fits of a corpus of disjoint equal topics."""
    baselines: dict[str, dict[str, float]] = {}
    words, topics = corpus.membership.shape
    if alpha is not None:
        baselines["floor"] = {
            "oracle": oracle_loss(words // topics, topics, alpha),
            "bayes": bayes_loss(corpus.train, corpus.membership, alpha, rng),
        }
    for context, visible in (("visible", True), ("hidden", False)):
        for loss, fit in (
            ("squared", fit_blocks_squared),
            ("cross_entropy", fit_blocks_cross_entropy),
        ):
            best = fit(corpus.train, corpus.membership, rng, visible=visible)
            baselines[f"{loss}_{context}"] = {"contrast": best.contrast, "loss": best.loss}
    return baselines
