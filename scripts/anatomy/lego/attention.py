"""What the heads of a LEGO model do: learned attention, and the two patterns written down.

The paper (Zhang et al., "Unveiling Transformers with LEGO") finds two kinds of heads in pretrained
models. *Association* heads attend to the other places of the same token, *manipulation* heads to a
short fixed neighbourhood, like a convolution. Both are linear maps over places that need no query
and no key, so that they can be part of a layer as they stand.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional


def partners(
    tokens: Int64[Tensor, "sentences length"], special: Int64[Tensor, "specials"] | None = None
) -> Bool[Tensor, "sentences length length"]:
    """Which other places (keys) hold a place's (query's) token; `special` tokens have none."""
    same = tokens[:, :, None] == tokens[:, None, :]
    same.diagonal(dim1=1, dim2=2).fill_(False)
    if special is not None:
        same &= ~torch.isin(tokens, special)[:, :, None]
    return same


def association(
    tokens: Int64[Tensor, "sentences length"], special: Int64[Tensor, "specials"]
) -> Float[Tensor, "sentences length length"]:
    """The hard-coded association map: equal weights on the partners, and zero without one."""
    same = partners(tokens, special).float()
    return same / same.sum(dim=2, keepdim=True).clamp(min=1)


def convolution(
    kernel: Float[Tensor, "heads window"], length: int
) -> Float[Tensor, "heads length length"]:
    """The map of a convolution: place i attends to place i + o with the kernel's weight of o.

    Offsets o go from -(window // 2) to window // 2; beyond the sentence's ends there are zeros.
    """
    place = torch.arange(length, device=kernel.device)
    tap = place[None, :] - place[:, None] + kernel.shape[1] // 2
    inside = (tap >= 0) & (tap < kernel.shape[1])
    return kernel[:, tap.clamp(0, kernel.shape[1] - 1)] * inside


def convolve(
    maps: Float[Tensor, "heads length length"], values: Float[Tensor, "sentences length width"]
) -> Float[Tensor, "sentences length width"]:
    """The values mixed over places, each head's share of the width by its own map."""
    by_head = values.unflatten(2, (len(maps), -1))
    return torch.einsum("hij,bjhd->bihd", maps, by_head).flatten(2)


def attend(
    Q: Float[Tensor, "sentences queries width"],
    K: Float[Tensor, "sentences keys width"],
    V: Float[Tensor, "sentences keys width"],
    *,
    heads: int,
    dropout: float = 0.0,
    maps: bool = False,
) -> tuple[
    Float[Tensor, "sentences queries width"], Float[Tensor, "sentences heads queries keys"] | None
]:
    """Softmax attention, and its weights (after dropout, as in the library) if `maps`.

    On sentences of a few dozen places plain products beat the fused kernel on a CPU by half
    again, since its backward pass is slow there; on other devices it is the other way round.
    """
    Q, K, V = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (Q, K, V))
    if not maps and Q.device.type != "cpu":
        mixed = functional.scaled_dot_product_attention(Q, K, V, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2), None
    length, spare = K.shape[2], _spare(K.shape[2])
    bias = Q.new_zeros(1, 1, length + spare)
    bias[:, :, length:] = -torch.inf
    keys, values = (functional.pad(part, (0, 0, 0, spare)).flatten(0, 1) for part in (K, V))
    scores = torch.baddbmm(bias, Q.flatten(0, 1), keys.mT, alpha=1 / math.sqrt(Q.shape[-1]))
    weights = functional.dropout(scores.softmax(dim=-1), dropout)
    mixed = (weights @ values).unflatten(0, (-1, heads))
    return mixed.transpose(1, 2).flatten(2), weights.unflatten(0, (-1, heads))[..., :length]


def _spare(length: int) -> int:
    """Keys without weight that fill up the last vector of a row of attention.

    torch's softmax does what is left over from whole vectors of 16 one by one: rows of 14 take
    ten times as long as rows of 16. Where little is left over, filling up does not pay.
    """
    over = length % 16
    return 16 - over if over > 6 else 0
