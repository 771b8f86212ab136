"""Masking as in BERT, and baselines for a masked token without any context.

Each ordinary token is selected with probability `mask_prob`. A selected token becomes [MASK] or a
random token, or is kept. The loss is on the selected positions only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, Integer

from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings
from scripts.anatomy.pretraining.tokenizer import Special


@dataclass(frozen=True)
class Masked:
    """Masked rows and their targets.

    Attributes:
        observed: The ids after masking.
        index: Indices of the selected positions in the flattened rows, in order.
        target: The true ids at these positions.
    """

    observed: Int64[np.ndarray, "rows length"]
    index: Int64[np.ndarray, "selected"]
    target: Int64[np.ndarray, "selected"]

    @property
    def repeated(self) -> Bool[np.ndarray, "selected"]:
        """Return whether the target is visible elsewhere in its row."""
        row, _ = np.divmod(self.index, self.observed.shape[1])
        seen = (self.observed[row] == self.target[:, None]).sum(axis=1)
        return seen > (self.observed.ravel()[self.index] == self.target)


def ordinary(d_tokens: int, special: Special) -> Int64[np.ndarray, "ordinary"]:
    """Return the ids of ordinary tokens, which random tokens are drawn from."""
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
        candidates: Ids that random tokens are drawn from (`ordinary`).
        special: Ids of the special tokens, which are never selected.
        rng: Random generator.
    """
    selected = rng.random(tokens.shape) < masking.mask_prob
    selected &= ~np.isin(tokens, special)
    index = np.flatnonzero(selected)
    observed = tokens.astype(np.int64)
    target = observed.ravel()[index]
    fate = rng.random(len(index))
    replacement = np.where(
        fate < masking.keep_prob + masking.random_prob,
        rng.choice(candidates, len(index)),
        special.mask,
    )
    observed.ravel()[index] = np.where(fate < masking.keep_prob, target, replacement)
    return Masked(observed, index, target)


def baselines(
    batches: Sequence[Masked],
    counts: Integer[np.ndarray, "d_tokens"],
    masking: PretrainingMaskingSettings,
    special: Special,
) -> dict[str, float]:
    """Return the losses, in nats, of the best guesses that use no other position.

    `unigram` uses token frequencies of the training text, with one more of each token, so that none
    is impossible. `no_context` also uses the observed token at the position: if it is not [MASK],
    it may have been kept. By Bayes, with unigram frequencies u, V ordinary tokens, and p_c =
    keep_prob and p_r = random_prob,

        p(target t | observed o) = u_t (p_c [t = o] + p_r / V) / (p_c u_o + p_r / V).
    """
    candidates = ordinary(len(counts), special)
    u = np.zeros(len(counts))
    u[candidates] = counts[candidates] + 1
    u /= u.sum()
    target = np.concatenate([part.target for part in batches])
    observed = np.concatenate([part.observed.ravel()[part.index] for part in batches])
    unigram = -np.log(u[target])
    random = masking.random_prob / len(candidates)
    visible = observed != special.mask
    seen, true = observed[visible], target[visible]
    known = masking.keep_prob * (true == seen) + random
    aware = unigram.copy()
    aware[visible] -= np.log(known / (masking.keep_prob * u[seen] + random))
    return {"unigram": float(unigram.mean()), "no_context": float(aware.mean())}
