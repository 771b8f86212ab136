"""Masking as BERT's, and what can be known of a masked token without any context.

Of the tokens that are no special ones each is selected with probability `share`; a selected one
becomes [MASK], a random token, or stays as it is. The loss is on the selected ones only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, Integer

from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings
from scripts.anatomy.pretraining.tokenizer import Special


@dataclass(frozen=True)
class Masked:
    """Rows as a model sees them, and what it has to predict.

    Attributes:
        observed: The ids after masking.
        place: Which of the rows' flattened places were selected, in order.
        target: The true ids there.
    """

    observed: Int64[np.ndarray, "rows length"]
    index: Int64[np.ndarray, "selected"]
    target: Int64[np.ndarray, "selected"]

    @property
    def repeated(self) -> Bool[np.ndarray, "selected"]:
        """Whether the target can be seen elsewhere in its row."""
        row, _ = np.divmod(self.index, self.observed.shape[1])
        seen = (self.observed[row] == self.target[:, None]).sum(axis=1)
        return seen > (self.observed.ravel()[self.index] == self.target)


def ordinary(d_tokens: int, special: Special) -> Int64[np.ndarray, "ordinary"]:
    """The ids that are no special tokens: what can stand in for another."""
    return np.setdiff1d(np.arange(d_tokens), special)


def mask(
    tokens: Integer[np.ndarray, "rows length"],
    masking: PretrainingMaskingSettings,
    *,
    candidates: Int64[np.ndarray, "ordinary"],
    special: Special,
    rng: np.random.Generator,
) -> Masked:
    """Select and replace tokens at random.

    Args:
        tokens: The true ids.
        masking: The probabilities.
        candidates: What random tokens are drawn from (`ordinary`).
        special: Ids of the special tokens, which are never selected.
        rng: Draws everything.
    """
    selected = rng.random(tokens.shape) < masking.mask_prob
    selected &= ~np.isin(tokens, special)
    index = np.flatnonzero(selected)
    observed = tokens.astype(np.int64)
    target = observed.ravel()[index]
    fate = rng.random(len(index))
    stand_in = np.where(
        fate < masking.keep_prob + masking.random_prob,
        rng.choice(candidates, len(index)),
        special.mask,
    )
    observed.ravel()[index] = np.where(fate < masking.keep_prob, target, stand_in)
    return Masked(observed, index, target)


def baselines(
    held: Sequence[Masked],
    counts: Integer[np.ndarray, "d_tokens"],
    masking: PretrainingMaskingSettings,
    special: Special,
) -> dict[str, float]:
    """The loss, in nats, of the best guesses that look at no other place.

    `unigram` knows how often tokens occur in the training text (with one more of each, so that
    none is impossible). `no_context` also sees what stands at the place itself: a token that is
    not [MASK] may have been kept. By Bayes, with u for unigram frequencies and V ordinary tokens,

        p(target t | observed o) = u_t (kept [t = o] + random / V) / (kept u_o + random / V).
    """
    candidates = ordinary(len(counts), special)
    u = np.zeros(len(counts))
    u[candidates] = counts[candidates] + 1
    u /= u.sum()
    target = np.concatenate([part.target for part in held])
    observed = np.concatenate([part.observed.ravel()[part.index] for part in held])
    unigram = -np.log(u[target])
    random = masking.random_prob / len(candidates)
    visible = observed != special.mask
    seen, true = observed[visible], target[visible]
    known = masking.keep_prob * (true == seen) + random
    aware = unigram.copy()
    aware[visible] -= np.log(known / (masking.keep_prob * u[seen] + random))
    return {"unigram": float(unigram.mean()), "no_context": float(aware.mean())}
