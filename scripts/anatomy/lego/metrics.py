"""Loss and accuracies of a LEGO model by chain position.

Positions count along the chain, never along the sentence: 0 is the root. The first n_tr of them
are supervised.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

SOLVED = 0.9  # accuracy from which a position counts as reached


def loss(
    logits: Float[Tensor, "sentences positions classes"],
    values: Int64[Tensor, "sentences positions"],
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; of a single logit the binary one, as published."""
    if logits.shape[2] == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, :, 0], values.to(logits))
    return functional.cross_entropy(logits.flatten(0, 1), values.flatten())


def predict(
    logits: Float[Tensor, "sentences positions classes"],
) -> Int64[Tensor, "sentences positions"]:
    """Return the most likely values."""
    return (logits[:, :, 0] > 0).long() if logits.shape[2] == 1 else logits.argmax(dim=2)


@torch.inference_mode()
def predictions(
    model: nn.Module,
    tokens: Int64[Tensor, "sentences length"],
    indices: Int64[Tensor, "sentences positions"],
    *,
    batch_size: int = 500,
    **options: int,
) -> Int64[np.ndarray, "sentences positions"]:
    """Return the predictions of a model in evaluation mode; `options` are passed to it."""
    parts = zip(tokens.split(batch_size), indices.split(batch_size), strict=True)
    predicted = [predict(model(part, where, **options)) for part, where in parts]
    return torch.cat(predicted).cpu().numpy()


def accuracy(
    predicted: Int64[np.ndarray, "sentences positions"],
    values: Int64[np.ndarray, "sentences positions"],
) -> Float[np.ndarray, "positions"]:
    """Return A_k, the share of sentences in which position k is right."""
    return (predicted == values).mean(axis=0)


def reach(accuracies: Float[np.ndarray, "positions"]) -> int:
    """Return R, the last position up to which all are at 0.9 or more; -1 if none is."""
    below = np.flatnonzero(accuracies < SOLVED)
    return int(below[0] if len(below) else len(accuracies)) - 1


def first_time(
    history: Float[np.ndarray, "checkpoints positions"],
    steps: Int64[np.ndarray, "checkpoints"],
    *,
    threshold: float = 0.99,
) -> Float[np.ndarray, "positions"]:
    """Return T99, the first step at which each position reaches the threshold, or infinity."""
    solved = history >= threshold
    return np.where(solved.any(axis=0), steps[solved.argmax(axis=0)], np.inf)
