"""Mimicking: train a random network to have the two attention patterns and nothing else.

The paper asks whether pretraining helps because of what a model knows or because of how its heads
attend. It therefore trains the attention maps of a random network, before any task: in every layer
head 0 towards a convolution and head 1 towards association. The other heads, the feed-forward
layers and the embeddings have no target. Constants are those of the released code.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from scripts.anatomy.lego_attention import convolution, partners

Pattern = Literal["convolution", "association"]
HEADS: tuple[Pattern, ...] = ("convolution", "association")  # head 0 and head 1
WEIGHTS = (1.0, 2.0, 4.0, 2.0, 1.0)  # of the convolution, at offsets -2 to 2
SMOOTHING = 1e-3


def association_target(
    tokens: Int64[Tensor, "sentences length"],
) -> Float[Tensor, "sentences length length"]:
    """Return attention to the other positions of the same token; uniform where there is none.

    All tokens count, including punctuation. Rows are smoothed before they are normalised, so the
    smoothing weighs less at positions with more partners.
    """
    return _normalised(partners(tokens).float() + SMOOTHING)


def convolution_target(length: int) -> Float[Tensor, "length length"]:
    """Return attention to the position itself and two on each side, cut off at the ends."""
    return _normalised(convolution(torch.tensor([WEIGHTS]), length)[0] + SMOOTHING)


def shuffled(
    tokens: Int64[Tensor, "sentences length"], generator: torch.Generator
) -> Int64[Tensor, "sentences length"]:
    """Return the tokens of each sentence in a random order of its own.

    Their association target is the control: as many partners as before, all wrong.
    """
    order = torch.rand(tokens.shape, generator=generator).argsort(dim=1)
    return tokens.gather(1, order.to(tokens.device))


def divergence(
    maps: Float[Tensor, "*any queries keys"], target: Float[Tensor, "*any queries keys"]
) -> Float[Tensor, "*any"]:
    """Return KL(model || target), mean over queries, with the model's map smoothed as the target.

    The model is on the left, unlike in distillation. Perfect maps do not reach 0, since the model's
    map is smoothed once more than the target.
    """
    model = _normalised(maps + SMOOTHING)
    return (model * (model / target).log()).sum(dim=-1).mean(dim=-1)


def loss(
    maps: Float[Tensor, "sentences layers heads length length"],
    tokens: Int64[Tensor, "sentences length"],
    *,
    patterns: Sequence[Pattern] = HEADS,
) -> Float[Tensor, ""]:
    """Return the divergence of heads 0 and 1, summed over layers, mean over sentences.

    Args:
        maps: The model's attention.
        tokens: Tokens of the association target; `shuffled` ones for the control.
        patterns: Which of the two to mimic. Each keeps its head, so that controls with only one
            pattern change nothing else.

    Raises:
        ValueError: A layer has fewer than two learned heads.
    """
    if maps.shape[2] < len(HEADS):
        raise ValueError(f"mimicking needs 2 learned heads per layer, got {maps.shape[2]}")
    total = maps.new_zeros(())
    if "convolution" in patterns:
        target = convolution_target(tokens.shape[1]).to(maps)
        total = total + divergence(maps[:, :, 0], target).sum(dim=1).mean()
    if "association" in patterns:
        target = association_target(tokens).to(maps)[:, None]
        total = total + divergence(maps[:, :, 1], target).sum(dim=1).mean()
    return total


def _normalised(weights: Float[Tensor, "*any keys"]) -> Float[Tensor, "*any keys"]:
    return weights / weights.sum(dim=-1, keepdim=True)
