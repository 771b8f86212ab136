"""What a LEGO model is trained on and judged by, position by position along the chain.

Positions are those of the chain, never of the sentence: 0 is the root. The first n_tr of them are
supervised.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

SOLVED = 0.9  # accuracy up to which a position counts as reached


def loss(
    logits: Float[Tensor, "sentences positions classes"],
    values: Int64[Tensor, "sentences positions"],
) -> Float[Tensor, ""]:
    """Mean over positions and sentences; on one logit the binary cross-entropy, as published."""
    if logits.shape[2] == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, :, 0], values.to(logits))
    return functional.cross_entropy(logits.flatten(0, 1), values.flatten())


def predict(
    logits: Float[Tensor, "sentences positions classes"],
) -> Int64[Tensor, "sentences positions"]:
    """The likeliest values."""
    return (logits[:, :, 0] > 0).long() if logits.shape[2] == 1 else logits.argmax(dim=2)


@torch.inference_mode()
def predictions(
    model: nn.Module,
    tokens: Int64[Tensor, "sentences length"],
    places: Int64[Tensor, "sentences positions"],
    *,
    at_once: int = 500,
    **options: int,
) -> Int64[np.ndarray, "sentences positions"]:
    """What a model (in evaluation mode) predicts; `options` go to it, such as `iterations`."""
    parts = zip(tokens.split(at_once), places.split(at_once), strict=True)
    found = [predict(model(part, where, **options)) for part, where in parts]
    return torch.cat(found).cpu().numpy()


def accuracy(
    predicted: Int64[np.ndarray, "sentences positions"],
    values: Int64[np.ndarray, "sentences positions"],
) -> Float[np.ndarray, "positions"]:
    """A_k, the share of sentences in which position k is right."""
    return (predicted == values).mean(axis=0)


def reach(accuracies: Float[np.ndarray, "positions"]) -> int:
    """R, the last position up to which all are at 0.9 or more; -1 if not even the root is."""
    below = np.flatnonzero(accuracies < SOLVED)
    return int(below[0] if len(below) else len(accuracies)) - 1


def first_time(
    history: Float[np.ndarray, "checkpoints positions"],
    steps: Int64[np.ndarray, "checkpoints"],
    *,
    threshold: float = 0.99,
) -> Float[np.ndarray, "positions"]:
    """T99, the first step at which each position is at the threshold; infinity if none is."""
    solved = history >= threshold
    return np.where(solved.any(axis=0), steps[solved.argmax(axis=0)], np.inf)
