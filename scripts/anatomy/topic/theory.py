"""Exact optima of a one-layer transformer on documents of disjoint topics.

The setting of Theorems 1 to 3 of Li, Li & Risteski (ICML 2023): T topics of v words each, all
different and equally likely within their topic. A document mixes tau distinct topics in equal
parts and is infinitely long, so that it is its distribution over words. The model is trained
with the squared loss on masked words; there are no positions, residual connections or norms.

Token 0 is MASK; the words of topic t are the tokens 1 + t v to (t + 1) v. A matrix that predicts
(an embedding Gram matrix, or W_V with one-hot embeddings) has a row per predicted token and a
column per context token. Symbols used throughout:

    c   = 1 - (1 - p_c) p_m        share of the context that shows the true word
    p_0 = p_m (1 - p_c - p_r)      share of the context that is MASK
    g   = p_m p_r / (T c)

The formulas are derived here from the definition of the model. What each theorem states is taken
from the paper's abstract, code and summaries, not from its full text, so that its conventions and
constants may differ. Everything is float64 and dimensionless: probabilities,
ratios, and squared errors against a one-hot target.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

MAX_DOCUMENTS = 20_000  # topic subsets that are enumerated; more would fill memory


@dataclass(frozen=True)
class TheorySetting:
    """Data and masking that the theorems assume.

    Each position is selected with probability p_m. A selected position keeps its word with
    probability p_c, shows a random one with p_r, and MASK otherwise: p_c and p_r are conditional
    on selection. A random word is uniform over the T v words (the released code draws from all
    its 104 token ids, special ones included). The defaults are BERT's.

    Attributes:
        topics: T, at least 2.
        words_per_topic: v.
        tau: Topics in a document. The optima are determined for tau < T only.
        p_m: Probability that a position is selected, in (0, 1).
        p_c: Probability that a selected position keeps its word.
        p_r: Probability that a selected position shows a random word; p_c + p_r <= 1.
        visible: Whether selected positions can be attended to, as the theorems have it. The
            released code hides them: its context is clean, c = 1 and p_0 = 0, while the query
            is still the word, a random word or MASK.

    Raises:
        ValueError: A value is out of range.
    """

    topics: int
    words_per_topic: int
    tau: int = 1
    p_m: float = 0.15
    p_c: float = 0.1
    p_r: float = 0.1
    visible: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check(self.topics >= 2, f"topics={self.topics} must be at least 2")
        _check(self.words_per_topic >= 1, f"words_per_topic={self.words_per_topic} must be >= 1")
        _check(1 <= self.tau <= self.topics, f"tau={self.tau} must lie in 1..{self.topics}")
        _check(0 < self.p_m < 1, f"p_m={self.p_m} must lie strictly between 0 and 1")
        _check(self.p_c >= 0, f"p_c={self.p_c} must not be negative")
        _check(self.p_r >= 0, f"p_r={self.p_r} must not be negative")
        total = self.p_c + self.p_r
        _check(total <= 1, f"p_c + p_r = {self.p_c} + {self.p_r} must not exceed 1")

    @property
    def n_words(self) -> int:
        """Return T v, the number of words, MASK not counted."""
        return self.topics * self.words_per_topic

    @property
    def c(self) -> float:
        """Return the share of the context that shows the true word: c = 1 - (1 - p_c) p_m."""
        return 1 - (1 - self.p_c) * self.p_m if self.visible else 1.0

    @property
    def p_mask(self) -> float:
        """Return the share of the context that is MASK: p_0 = p_m (1 - p_c - p_r)."""
        # p_c + p_r first: 1 - 0.7 - 0.3 is not 0 in floating point, 1 - (0.7 + 0.3) is
        return self.p_m * (1 - (self.p_c + self.p_r)) if self.visible else 0.0

    @property
    def p_random(self) -> float:
        """Return the share of the context that is a random word: p_m p_r = 1 - c - p_0."""
        return self.p_m * self.p_r if self.visible else 0.0

    @property
    def s_in(self) -> float:
        """Return the share of the context that is a given word of a topic in the document."""
        return self.c / (self.tau * self.words_per_topic) + self.s_out

    @property
    def s_out(self) -> float:
        """Return the share of the context that is a given word of a topic not in the document."""
        return self.p_random / self.n_words


def document_contexts(setting: TheorySetting) -> Float[np.ndarray, "docs tokens"]:
    """Return the observed token distribution p~ of every document, a row for each set of topics.

    p~ is p_0 on MASK, s_in on words of the document's topics and s_out on other words. Rows
    follow `itertools.combinations`, sum to 1, and are equally likely.

    Raises:
        ValueError: There are more than 20,000 sets.
    """
    words = np.where(_words_present(setting), setting.s_in, setting.s_out)
    return np.pad(words, ((0, 0), (1, 0)), constant_values=setting.p_mask)


def document_targets(setting: TheorySetting) -> Float[np.ndarray, "docs tokens"]:
    """Return the true word's distribution q in every document: 1/(tau v) on its words, 0 on MASK.

    Rows are in the order of `document_contexts`, with the same limit on their number.
    """
    words = _words_present(setting) / (setting.tau * setting.words_per_topic)
    return np.pad(words, ((0, 0), (1, 0)))


def embedding_gram_family(
    setting: TheorySetting,
    u: Float[np.ndarray, " tokens"],
    *,
    rng: np.random.Generator | None = None,
) -> Float[np.ndarray, "tokens tokens"]:
    """Return a member of the family of optimal Gram matrices E = W_E^T W_E (Theorem 1).

    With uniform attention, identity W_V, tied head and no bias the model outputs E p~, and the
    squared loss is least where E p~ = q in every document. That holds if, and for tau < T only
    if, there are reals u_i, one a token (u_0 for MASK), with

        sum of E_il over the words l of topic t'  =  u_i + (1/c) [t' is the topic of i],
        sum of E_0l over the words l of topic t'  =  u_0,
        E_i0 = -[(1 - p_0) u_i + g] / (v p_0),     E_00 = -(1 - p_0) u_0 / (v p_0).

    Single entries are free, block-row sums are not: E is constant within a block row without
    `rng`, and random around that with it. The same family, with W_V in the place of E, is optimal
    in Theorem 2 without penalty. It also contains matrices that are
    not Gram matrices. Compare Li, Li & Risteski (ICML 2023), Theorem 1; derived here.

    Raises:
        ValueError: `u` has not T v + 1 entries; or no context is MASK (p_0 = 0) and `u` is not
            the one that then remains, u_i = -g on words and u_0 = 0.
    """
    u = np.asarray(u, dtype=np.float64)
    T, v = setting.topics, setting.words_per_topic
    _check(u.shape == (1 + T * v,), f"u has shape {u.shape}, not ({1 + T * v},)")
    E = np.repeat(u[:, None] / v, 1 + T * v, axis=1)
    E[1:, 1:] += same_topic(setting) / (setting.c * v)
    if rng is not None:
        noise = rng.normal(scale=1 / v, size=(1 + T * v, T, v))
        noise -= noise.mean(axis=2, keepdims=True)  # leaves every block-row sum as it is
        E[:, 1:] += noise.reshape(1 + T * v, T * v)
    E[:, 0] = _mask_column(setting, u)
    return E


def theorem1_residual(E: Float[np.ndarray, "tokens tokens"], setting: TheorySetting) -> float:
    """Return the largest |E p~ - q| of all documents and tokens; 0 exactly at an optimum.

    Rows of E are predicted tokens. Enumerates every document: ValueError beyond 20,000.
    """
    error = document_contexts(setting) @ E.T - document_targets(setting)
    return float(np.abs(error).max())


def gram_contrast(setting: TheorySetting) -> float:
    """Return the mean same-topic minus the mean different-topic entry of an optimal E or W_V.

    It is 1/(c v), for every tau < T and every member of the family. The means run over whole
    blocks, the diagonal included, since only block-row sums are determined. Li, Li & Risteski (ICML
    2023), Theorems 1 and 2; derived here.

    Raises:
        ValueError: tau = T, where topics cannot be distinguished.
    """
    _needs_absent_topics(setting)
    return 1 / (setting.c * setting.words_per_topic)


@dataclass(frozen=True)
class ValueBlocks:
    """The three values that an optimal W_V has for one-hot embeddings; its MASK row is 0.

    Attributes:
        same: x, from a word to a word of its own topic, itself included.
        different: y, from a word to a word of another topic.
        mask_column: z, from MASK to every word.
    """

    same: float
    different: float
    mask_column: float


def optimal_value(setting: TheorySetting, *, l2: float = 0.0) -> ValueBlocks:
    """Return the W_V that minimises E ||W_V p~ - e||^2 + l2 ||W_V||_F^2 (Theorem 2).

    Attention is uniform and e is the one-hot true word of a selected position. At l2 = 0 this is
    the limit l2 -> 0+, the minimum-norm member of Theorem 1's family, the same for every tau < T.
    With D = p_0^2 T v + (1 - p_0)^2,

        y = -[p_0^2 T v + (1 - p_0) p_m p_r] / (T v c D),   x = y + 1/(c v),   z = p_0 / D.

    (z is -[(1 - p_0) y + p_m p_r/(T v c)]/p_0 with y put in, which needs no division by p_0.)
    With hidden positions x = 1/v and y = z = 0. Compare Li, Li & Risteski (ICML 2023), Theorem 2;
    derived here. That the penalty is the squared Frobenius norm of W_V alone is the
    usual reading; the paper's scaling of it is not known.

    Raises:
        ValueError: l2 < 0; or l2 = 0 and tau = T, where these formulas do not hold.
    """
    _check(l2 >= 0, f"l2={l2} must not be negative")
    if l2 > 0:
        return _ridge_blocks(setting, l2)
    _needs_absent_topics(setting)
    rest, n_words = 1 - setting.p_mask, setting.n_words
    D = setting.p_mask**2 * n_words + rest**2
    y = -(setting.p_mask**2 * n_words + rest * setting.p_random) / (n_words * setting.c * D)
    return ValueBlocks(y + gram_contrast(setting), y, setting.p_mask / D)


def finite_value(setting: TheorySetting, *, length: int, l2: float = 0.0) -> ValueBlocks:
    """Return the minimiser of `optimal_value` for documents of `length` words, not infinitely many.

    This goes beyond the paper and is derived here. With N words the share of MASK differs from
    document to document, so W_V is no longer free to trade the MASK column against the other
    entries: z moves towards y. And the selected position itself is one of the N: with probability
    p_c it shows the word that is asked for. The loss is averaged over selected positions (averaged
    within documents first, it moves by less than 1 %). Block means of W_V solve M (x, y, z) = b
    with M = E[A A^T] and b = E[A 1{target in row's topic}]/v, where N A counts, over N - 1
    independent observed tokens and the selected one, those of the row's topic, of other topics and
    MASK. W_V also has a larger diagonal then, which block means include and do not depend on.
    """
    _check(length >= 1, f"length={length} must be positive")
    _check(setting.visible, "derived for visible positions only")
    T, v, N = setting.topics, setting.words_per_topic, length
    present = setting.tau / T
    M, b = np.zeros((3, 3)), np.zeros(3)
    for inside, chance in ((1, present), (0, 1 - present)):
        in_topic = setting.p_random / T + setting.c * inside / setting.tau
        others = np.array([in_topic, 1 - setting.p_mask - in_topic, setting.p_mask])
        own = _selected_shares(setting, inside / setting.tau)
        covariance = np.diag(others) - np.outer(others, others)
        second = (N - 1) * covariance + (N - 1) ** 2 * np.outer(others, others) + np.diag(own)
        cross = (N - 1) * np.outer(others, own)
        M += chance * (second + cross + cross.T) / N**2
        target = _selected_shares(setting, 1.0)  # seen where the target is of the row's topic
        b += chance * inside / setting.tau * ((N - 1) * others + target) / (N * v)
    x, y, z = np.linalg.solve(M + l2 * np.diag([v, (T - 1) * v, 1]), b)
    return ValueBlocks(float(x), float(y), float(z))


def _selected_shares(setting: TheorySetting, of_topic: float) -> Float[np.ndarray, "3"]:
    """Return the chances that a selected position shows the row's topic, another topic, or MASK.

    `of_topic` is the chance that its true word is of the row's topic.
    """
    kept, random = setting.p_c, setting.p_r
    inside = kept * of_topic + random / setting.topics
    return np.array([inside, kept + random - inside, 1 - kept - random])


def value_matrix(
    blocks: ValueBlocks, same_topic: Bool[np.ndarray, "words words"]
) -> Float[np.ndarray, "tokens tokens"]:
    """Return W_V in full: blocks over words, the MASK column, and a MASK row of zeros."""
    W_V = np.zeros((1 + len(same_topic), 1 + len(same_topic)))
    W_V[1:, 0] = blocks.mask_column
    W_V[1:, 1:] = np.where(same_topic, blocks.same, blocks.different)
    return W_V


def attention_loss(
    R: Float[np.ndarray, "*batch"], setting: TheorySetting, blocks: ValueBlocks | None = None
) -> Float[np.ndarray, "*batch"]:
    """Return the expected squared loss under attention by topic, with W_V frozen (Theorem 3).

    A query word gives weight c_1 to itself, c_2 to other words of its topic, c_3 to words of
    other topics. The loss depends on these through R alone:

        R = [c_1 + (v - 1) c_2] / (v c_3),   the mean weight on own-topic words over c_3.

    If a query gives a topic k the mass A_k, and MASK the mass A_0, each word of topic k has
    output f_k = (x - y) A_k + y (1 - A_0) + z A_0. With S = v sum_k f_k^2, the loss is

        S - 2 f_own + 1                            correct query, probability p_c
        S - 2 [f_own + (tau - 1) f_in]/tau + 1     random query in the document, p_r tau/T
        S - 2 f_in + 1                             random query not in it, p_r (1 - tau/T)
        the second line at R = 1                   MASK query, 1 - p_c - p_r

    Conventions: MASK as a key has weight c_3, and MASK as a query attends uniformly. Those of the
    paper are not known. Setting: Li, Li & Risteski (ICML 2023), Theorem 3; this loss is derived
    here.

    Args:
        R: Attention ratios, positive.
        setting: Data and masking.
        blocks: The frozen W_V; by default Theorem 2's, `optimal_value(setting)`.

    Returns:
        The loss at every R: a squared norm (not a mean over outputs), per selected position.

    Raises:
        ValueError: An R is not positive; or `blocks` is left out and tau = T.
    """
    blocks = blocks or optimal_value(setting)
    R = np.asarray(R, dtype=np.float64)
    loss = np.ones_like(R)
    for query in _queries(setting):
        output = _outputs(np.ones_like(R) if query.is_mask else R, setting, blocks, query)
        loss += query.probability * (output.square_sum - 2 * output.on_target)
    return loss


def optimal_attention_ratio(setting: TheorySetting, blocks: ValueBlocks | None = None) -> float:
    """Return R*, the attention ratio of least loss: Theorem 3's optimum, computed numerically.

    With visible positions R* = 1 at tau = 1 and at p_c = 0. Otherwise R* > 1: words of the query's
    own topic get more attention. R* is below `vanishing_mask_ratio` (checked numerically on
    thousands of settings, not proved). c_1 and c_2 are not determined beyond R*. The paper brackets
    R* by multiples of tau - 1 and of T whose constants are not known; this is the exact value for
    `attention_loss`, with its conventions.

    It is the root of dL/d(log R), which stays exact to rounding where the loss itself is too
    flat to compare (R* above some hundred); relative error below 1e-9.

    Raises:
        ValueError: tau = T; or R does not affect the loss (p_c = p_r = 0, or tau = 1 with
            hidden positions); or the loss has no minimum for R in 1e-4..1e8 (as where the context
            is clean and p_r = 0: R* is infinite).
    """
    from scipy.optimize import brentq  # costs half a second, and trainings do not need it

    _needs_absent_topics(setting)
    blocks = blocks or optimal_value(setting)

    def slope(log_R: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch"]:
        return _loss_slope(np.exp(log_R), setting, blocks)

    # a grid, since a W_V other than Theorem 2's may give more than one local minimum
    grid = np.linspace(math.log(1e-4), math.log(1e8), 200)
    slopes = slope(grid)
    _check(bool(slopes.any()), f"R has no effect on the loss in {setting}")
    cells = np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
    _check(len(cells) > 0, f"the loss has no minimum for R in 1e-4..1e8 in {setting}")
    minima = [math.exp(brentq(slope, grid[i], grid[i + 1], xtol=1e-12)) for i in cells]
    return min(minima, key=lambda R: float(attention_loss(R, setting, blocks)))


def attention_ratio_limit(tau: int, p_m: float, p_c: float) -> float:
    """Return the limit of R* for T -> infinity at fixed tau, with selected positions visible.

        R* = (tau - c)/(1 - c) + c (tau - 1) / [(tau - c)(1 - c)],   1 - c = (1 - p_c) p_m

    It depends neither on v nor on p_r, is 1 at tau = 1, and grows as tau/(1 - c): a document of
    many topics needs sharper attention. Derived here, from correct queries alone, as random ones
    lose their influence on R in this limit. Compare Li, Li & Risteski (ICML 2023), Theorem 3.

    Raises:
        ValueError: tau < 1, p_m not in (0, 1), or p_c not in (0, 1): without correct queries
            (p_c = 0) R* is 1 at every T, and with p_c = 1 nothing is masked and it is infinite.
    """
    _check(tau >= 1, f"tau={tau} must be at least 1")
    _check(0 < p_m < 1, f"p_m={p_m} must lie strictly between 0 and 1")
    _check(0 < p_c < 1, f"p_c={p_c} must lie strictly between 0 and 1")
    hidden_share = (1 - p_c) * p_m
    c = 1 - hidden_share
    return ((tau - c) + c * (tau - 1) / (tau - c)) / hidden_share


def vanishing_mask_ratio(T: int, p_c: float, p_r: float) -> float:
    """Return the limit of R* for p_m -> 0 at fixed T: 1 + T p_c/p_r, for tau from 2 to T - 1.

    This is also R* itself, at any p_m, if selected positions are hidden from attention: in both
    cases the context is clean, and R is finite only because a random query word (p_r) suggests a
    wrong topic. Derived here.

    Raises:
        ValueError: p_r = 0, where R* is infinite; or T or p_c is out of range.
    """
    _check(T >= 2, f"T={T} must be at least 2")
    _check(p_c >= 0, f"p_c={p_c} must not be negative")
    _check(p_r > 0, f"p_r={p_r} must be positive: without random queries R* is infinite")
    return 1 + T * p_c / p_r


class _Query(NamedTuple):
    """A case of what a selected position shows, and what it then has to predict.

    Attributes:
        probability: Probability of the case.
        in_document: Whether the word shown is of a topic of the document.
        own_share: Probability that the true word is of the topic of the word shown; otherwise it
            is of another topic of the document.
        is_mask: Whether it shows MASK, which attends uniformly: as an in-document word at R = 1.
    """

    probability: float
    in_document: bool
    own_share: float
    is_mask: bool = False


def _queries(setting: TheorySetting) -> list[_Query]:
    """Return the cases of `attention_loss`: correct, random inside, random outside, MASK."""
    p_c, p_r, tau = setting.p_c, setting.p_r, setting.tau
    present = tau / setting.topics
    cases = [_Query(p_c, True, 1.0), _Query(p_r * present, True, 1 / tau)]
    if tau < setting.topics:
        cases.append(_Query(p_r * (1 - present), False, 0.0))
    return [*cases, _Query(1 - (p_c + p_r), True, 1 / tau, is_mask=True)]


class _TopicMasses(NamedTuple):
    """Attention mass on one topic of each kind, on MASK, and the number of topics of the kind."""

    own: Float[np.ndarray, "*batch"]
    inside: Float[np.ndarray, "*batch"]
    outside: Float[np.ndarray, "*batch"]
    mask: Float[np.ndarray, "*batch"]
    n_inside: int
    n_outside: int


class _Outputs(NamedTuple):
    """Outputs for a query: S = v sum_k f_k^2, its mean on the true word; their slopes in log R."""

    square_sum: Float[np.ndarray, "*batch"]
    on_target: Float[np.ndarray, "*batch"]
    square_sum_slope: Float[np.ndarray, "*batch"]
    on_target_slope: Float[np.ndarray, "*batch"]


def _topic_masses(
    R: Float[np.ndarray, "*batch"], setting: TheorySetting, *, query_in_document: bool
) -> _TopicMasses:
    """Return the attention masses: weight times share of the context, divided by their total."""
    R = np.asarray(R, dtype=np.float64)
    if not (R > 0).all():
        raise ValueError(f"R={R.min()} must be positive")
    n_inside = setting.tau - query_in_document
    n_outside = setting.topics - 1 - n_inside
    inside = setting.words_per_topic * setting.s_in
    outside = setting.words_per_topic * setting.s_out
    own = R * (inside if query_in_document else outside)
    total = own + n_inside * inside + n_outside * outside + setting.p_mask
    masses = own / total, inside / total, outside / total, setting.p_mask / total
    return _TopicMasses(*masses, n_inside, n_outside)


def _outputs(
    R: Float[np.ndarray, "*batch"], setting: TheorySetting, blocks: ValueBlocks, query: _Query
) -> _Outputs:
    """Return the outputs f_k = (x - y) A_k + y (1 - A_0) + z A_0 on words of topic k (0 on MASK).

    With log R, the own mass changes by A_own (1 - A_own) and any other mass A by -A A_own.
    """
    A = _topic_masses(R, setting, query_in_document=query.in_document)
    contrast, from_mask = blocks.same - blocks.different, blocks.mask_column - blocks.different
    shared = blocks.different + from_mask * A.mask
    own, inside, outside = (contrast * mass + shared for mass in (A.own, A.inside, A.outside))
    # summed, not 1 - A.own, which would lose all digits at large R
    rest = A.n_inside * A.inside + A.n_outside * A.outside + A.mask
    d_own = A.own * (contrast * rest - from_mask * A.mask)
    d_inside, d_outside = (
        -A.own * (contrast * mass + from_mask * A.mask) for mass in (A.inside, A.outside)
    )
    squares = own**2 + A.n_inside * inside**2 + A.n_outside * outside**2
    d_squares = own * d_own + A.n_inside * inside * d_inside + A.n_outside * outside * d_outside
    other_share = 1 - query.own_share
    return _Outputs(
        setting.words_per_topic * squares,
        query.own_share * own + other_share * inside,
        2 * setting.words_per_topic * d_squares,
        query.own_share * d_own + other_share * d_inside,
    )


def _loss_slope(
    R: Float[np.ndarray, "*batch"], setting: TheorySetting, blocks: ValueBlocks
) -> Float[np.ndarray, "*batch"]:
    """Return the derivative of `attention_loss` in log R."""
    slope = np.zeros_like(np.asarray(R, dtype=np.float64))
    for query in _queries(setting):
        if not query.is_mask:
            output = _outputs(R, setting, blocks, query)
            slope += query.probability * (output.square_sum_slope - 2 * output.on_target_slope)
    return slope


def _ridge_blocks(setting: TheorySetting, l2: float) -> ValueBlocks:
    """Return the ridge solution (M + l2 diag(v, (T-1) v, 1)) (x, y, z) = b for one row of W_V.

    By symmetry a row has three values. What they multiply is (m, 1 - p_0 - m, p_0), with
    m = p_m p_r/T + c I/tau the share of the row's topic and I ~ Bernoulli(tau/T) whether it is in
    the document; M is the second moment of that vector, b = E[I (...)]/(tau v). Derived here.
    """
    T, v, p_in = setting.topics, setting.words_per_topic, setting.tau / setting.topics
    m = setting.p_random / T + np.array([0, setting.c / setting.tau])
    features = np.stack([m, 1 - setting.p_mask - m, np.full(2, setting.p_mask)], axis=1)
    M = features.T @ np.diag([1 - p_in, p_in]) @ features
    b = p_in * features[1] / (setting.tau * v)
    x, y, z = np.linalg.solve(M + l2 * np.diag([v, (T - 1) * v, 1]), b)
    return ValueBlocks(float(x), float(y), float(z))


def _mask_column(
    setting: TheorySetting, u: Float[np.ndarray, " tokens"]
) -> Float[np.ndarray, " tokens"]:
    """Return E_i0 = -[(1 - p_0) u_i + g]/(v p_0), without g in MASK's own row.

    The bracket is the excess that row i predicts from words alone; the MASK column cancels it.
    Without MASK in the context nothing can, so the bracket must be 0; the column is free and set
    to 0.
    """
    surplus = (1 - setting.p_mask) * u
    surplus[1:] += _g(setting)
    if setting.p_mask > 0:
        return -surplus / (setting.words_per_topic * setting.p_mask)
    excess = np.abs(surplus).max()
    _check(bool(excess < 1e-12), f"no MASK in the context: u must be -g (0 on MASK), off {excess}")
    return np.zeros_like(u)


def _words_present(setting: TheorySetting) -> Bool[np.ndarray, "docs words"]:
    """Return which words occur in the document of every set of tau topics."""
    count = math.comb(setting.topics, setting.tau)
    if count > MAX_DOCUMENTS:
        sets = f"{setting.tau} of {setting.topics} topics"
        raise ValueError(f"{count} sets of {sets}; at most {MAX_DOCUMENTS} are enumerated")
    subsets = np.array(list(combinations(range(setting.topics), setting.tau)))
    present = (subsets[:, :, None] == np.arange(setting.topics)).any(axis=1)
    return np.repeat(present, setting.words_per_topic, axis=1)


def same_topic(setting: TheorySetting) -> Bool[np.ndarray, "words words"]:
    """Return whether two words share their topic."""
    topic = np.repeat(np.arange(setting.topics), setting.words_per_topic)
    return topic[:, None] == topic


def _g(setting: TheorySetting) -> float:
    """Return what random words add to the block-row sums: g = p_m p_r / (T c)."""
    return setting.p_random / (setting.topics * setting.c)


def _needs_absent_topics(setting: TheorySetting) -> None:
    """Raise ValueError if tau = T: all documents are then alike and the optimum is another."""
    _check(setting.tau < setting.topics, f"tau={setting.tau} must be below topics={setting.topics}")


def _check(condition: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)
