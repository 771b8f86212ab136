"""Mimicking: training that gives a random network the two attention patterns and nothing else.

The paper asks whether pretraining helps because of what a model knows or because of how its heads
attend. So it trains a random network's maps towards two targets, before any task: in every layer
head 0 towards a convolution and head 1 towards association. The other heads, the feed-forward
layers and the embeddings are free. Constants are those of the released code.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from scripts.anatomy.lego_attention import convolution, partners

Pattern = Literal["convolution", "association"]
HEADS: tuple[Pattern, ...] = ("convolution", "association")  # of head 0 and of head 1
WEIGHTS = (1.0, 2.0, 4.0, 2.0, 1.0)  # of the convolution, at offsets -2 to 2
SMOOTHING = 1e-3


def association_target(
    tokens: Int64[Tensor, "sentences length"],
) -> Float[Tensor, "sentences length length"]:
    """Attention to the other places of the same token; uniform where there is none.

    All tokens count, punctuation as well. Smoothing comes before the rows are normalised, so that
    a place keeps the less of it, the more partners it has.
    """
    return _normalised(partners(tokens).float() + SMOOTHING)


def convolution_target(length: int) -> Float[Tensor, "length length"]:
    """Attention to two places on each side and to the place itself, cut off at the ends."""
    return _normalised(convolution(torch.tensor([WEIGHTS]), length)[0] + SMOOTHING)


def shuffled(
    tokens: Int64[Tensor, "sentences length"], generator: torch.Generator
) -> Int64[Tensor, "sentences length"]:
    """Every sentence's tokens in an order of its own, drawn anew.

    The association target of these is the control: partners as many as before, all wrong.
    """
    order = torch.rand(tokens.shape, generator=generator).argsort(dim=1)
    return tokens.gather(1, order.to(tokens.device))


def divergence(
    maps: Float[Tensor, "*any queries keys"], target: Float[Tensor, "*any queries keys"]
) -> Float[Tensor, "*any"]:
    """KL(model || target), mean over queries, the model's map smoothed like the target.

    The model is on the left, the reverse of what distillation does. Perfect maps do not reach 0,
    since smoothing moves a target that is smooth already once more.
    """
    model = _normalised(maps + SMOOTHING)
    return (model * (model / target).log()).sum(dim=-1).mean(dim=-1)


def loss(
    maps: Float[Tensor, "sentences layers heads length length"],
    tokens: Int64[Tensor, "sentences length"],
    *,
    patterns: Sequence[Pattern] = HEADS,
) -> Float[Tensor, ""]:
    """Divergences of heads 0 and 1 from their targets, summed over layers, mean over sentences.

    Args:
        maps: The model's attention.
        tokens: What the association target is made of; `shuffled` ones for the control.
        patterns: Which of the two to mimic. Each keeps its head, so that the controls with only
            one of them change nothing else.

    Raises:
        ValueError: A layer has not got both heads.
    """
    if maps.shape[2] < len(HEADS):
        raise ValueError(f"mimicking needs 2 learned heads a layer, this model has {maps.shape[2]}")
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
