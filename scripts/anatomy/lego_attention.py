"""Heads of a layer: learned attention, and two hard-coded patterns.

Zhang et al. ("Unveiling Transformers with LEGO") find two kinds of heads in pretrained models.
*Association* heads attend to the other positions of the same token, *manipulation* heads to a short
fixed neighbourhood, like a convolution. Both are linear maps over positions that need no query and
no key, so they can be hard-coded in a layer. `MixedAttention` is the attention of such a layer:
each of its heads is learned, an association, or a convolution. The paper's LEGO v0 has the two
hard-coded kinds alone, its v1 all three; it does not state how many of each.

Short sequences are mixed by dense products with maps. Long ones (above `SHORT` positions) are mixed
in time linear in their length: association by sums over each distinct token, convolution directly.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from scripts.anatomy.settings import Heads

# Up to so many positions a dense product is faster on a CPU: by a third at 14 positions, while at
# 128 association by sums is three times as fast
SHORT = 32

WINDOW = 21  # offsets of a convolution head in a language model; our choice, the paper has none


# --- association --------------------------------------------------------------------------------


def partners(
    tokens: Int64[Tensor, "sentences length"],
    special: Int64[Tensor, "specials"] | None = None,
    present: Bool[Tensor, "sentences length"] | None = None,
) -> Bool[Tensor, "sentences length length"]:
    """Return which other positions (keys) hold the token of a position (query).

    Args:
        tokens: Token ids.
        special: Tokens without partners.
        present: False at padding, which has no partners either.
    """
    same = tokens[:, :, None] == tokens[:, None, :]
    same.diagonal(dim1=1, dim2=2).fill_(False)
    asking = _asking(tokens, special, present)
    return same if asking is None else same & asking[:, :, None] & asking[:, None, :]


def association(
    tokens: Int64[Tensor, "sentences length"],
    special: Int64[Tensor, "specials"] | None = None,
    present: Bool[Tensor, "sentences length"] | None = None,
) -> Float[Tensor, "sentences length length"]:
    """Return the hard-coded association map: equal weights on the partners, zero without any."""
    same = partners(tokens, special, present).float()
    return same / same.sum(dim=2, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class Groups:
    """The association map of long sequences, factored over distinct tokens.

    Attributes:
        group: For each position of the flattened sequences, the index of its token's sum.
        share: One over the number of partners, zero without any.
    """

    group: Int64[Tensor, "places"]
    share: Float[Tensor, "sentences length 1"]


Associates = Float[Tensor, "sentences length length"] | Groups


def associates(
    tokens: Int64[Tensor, "sentences length"],
    special: Int64[Tensor, "specials"] | None = None,
    present: Bool[Tensor, "sentences length"] | None = None,
    *,
    dense: bool | None = None,
) -> Associates:
    """Return the association map of all layers, dense or factored as `Groups`.

    Args:
        tokens: Token ids.
        special: Tokens without partners.
        present: False at padding, which has no partners either.
        dense: Whether to return the dense map; by default up to `SHORT` positions.
    """
    if tokens.shape[1] <= SHORT if dense is None else dense:
        return association(tokens, special, present)
    asking = _asking(tokens, special, present)
    own = tokens if asking is None else tokens.masked_fill(~asking, -1)
    ordered, order = own.sort(dim=1, stable=True)
    first = functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    # groups are numbered from 0 in each sequence; there are at most as many as positions
    group = torch.zeros_like(own).scatter(1, order, first.cumsum(dim=1) - 1)
    size = torch.zeros_like(own).scatter_add(1, group, torch.ones_like(own))
    others = size.gather(1, group) - 1
    share = (own >= 0) & (others > 0)
    start = torch.arange(len(own), device=own.device)[:, None] * own.shape[1]
    return Groups((start + group).flatten(), (share / others.clamp(min=1))[:, :, None])


def associate(
    V: Float[Tensor, "sentences length width"], same: Associates
) -> Float[Tensor, "sentences length width"]:
    """Return the mean of the values over each position's partners; zero without any.

    For `Groups` it is the sum over all positions of the token minus the position itself, divided by
    the number of partners: exact, in time linear in the length. Sums are never in half precision.
    """
    if isinstance(same, Tensor):
        return same.to(V.dtype) @ V
    rows = V.flatten(0, 1).to(torch.promote_types(V.dtype, torch.float32))
    sums = torch.zeros_like(rows).index_add(0, same.group, rows)
    others = sums.index_select(0, same.group) - rows
    return (others.view(V.shape) * same.share).to(V.dtype)


def _asking(
    tokens: Int64[Tensor, "sentences length"],
    special: Int64[Tensor, "specials"] | None,
    present: Bool[Tensor, "sentences length"] | None,
) -> Bool[Tensor, "sentences length"] | None:
    """Return which positions may associate; None for all."""
    if special is None or not len(special):
        return present
    ordinary = ~torch.isin(tokens, special)
    return ordinary if present is None else ordinary & present


# --- convolution --------------------------------------------------------------------------------


def convolution(
    kernel: Float[Tensor, "heads window"], length: int
) -> Float[Tensor, "heads length length"]:
    """Return the map of a convolution: position i attends to i + o with the kernel's weight of o.

    Offsets o go from -(window // 2) to window // 2, with zeros beyond the ends of the sentence.
    """
    position = torch.arange(length, device=kernel.device)
    tap = position[None, :] - position[:, None] + kernel.shape[1] // 2
    inside = (tap >= 0) & (tap < kernel.shape[1])
    return kernel[:, tap.clamp(0, kernel.shape[1] - 1)] * inside


def convolve(
    maps: Float[Tensor, "heads length length"], values: Float[Tensor, "sentences length width"]
) -> Float[Tensor, "sentences length width"]:
    """Return the values mixed over positions, each head's part of the width by its own map."""
    by_head = values.unflatten(2, (len(maps), -1))
    return torch.einsum("hij,bjhd->bihd", maps, by_head).flatten(2)


def slide(
    kernel: Float[Tensor, "kernels window"], values: Float[Tensor, "sentences length width"]
) -> Float[Tensor, "sentences length width"]:
    """Return `convolve` of `convolution` without maps; there is a kernel per head or channel.

    Torch convolves an image of one row with channels last in memory fastest. On a CPU the precision
    is at least single: torch 2.13 hangs in such a convolution in bfloat16 from a window of 15 on.
    """
    width, window = values.shape[2], kernel.shape[1]
    on_cpu = values.device.type == "cpu"
    dtype = torch.promote_types(values.dtype, torch.float32) if on_cpu else values.dtype
    by_channel = kernel.repeat_interleave(width // len(kernel), dim=0).to(dtype)
    image = values.transpose(1, 2).unsqueeze(2).to(dtype)
    with torch.autocast("cpu", enabled=False):
        moved = functional.conv2d(
            image, by_channel[:, None, None], padding=(0, window // 2), groups=width
        )
    return moved.squeeze(2).transpose(1, 2).to(values.dtype)


# --- learned attention --------------------------------------------------------------------------


def attend(
    Q: Float[Tensor, "sentences queries width"],
    K: Float[Tensor, "sentences keys width"],
    V: Float[Tensor, "sentences keys width"],
    *,
    heads: int,
    present: Bool[Tensor, "sentences keys"] | None = None,
    dropout: float = 0.0,
    maps: bool = False,
) -> tuple[
    Float[Tensor, "sentences queries width"], Float[Tensor, "sentences heads queries keys"] | None
]:
    """Return softmax attention to what is present, and its weights after dropout if `maps`.

    On a CPU plain products are 1.5 times as fast as the fused kernel for a few dozen positions,
    since its backward pass is slow there. Otherwise the fused kernel is faster.
    """
    Q, K, V = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (Q, K, V))
    if not maps and (Q.device.type != "cpu" or K.shape[2] > SHORT):
        mask = None if present is None else present[:, None, None]
        mixed = functional.scaled_dot_product_attention(Q, K, V, attn_mask=mask, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2), None
    length, spare = K.shape[2], _spare(K.shape[2])
    bias = _bias(Q, present, spare, length)
    keys, values = (functional.pad(part, (0, 0, 0, spare)).flatten(0, 1) for part in (K, V))
    scores = torch.baddbmm(bias, Q.flatten(0, 1), keys.mT, alpha=1 / math.sqrt(Q.shape[-1]))
    weights = functional.dropout(scores.softmax(dim=-1), dropout)
    mixed = (weights @ values).unflatten(0, (-1, heads))
    return mixed.transpose(1, 2).flatten(2), weights.unflatten(0, (-1, heads))[..., :length]


def _bias(
    Q: Float[Tensor, "sentences heads queries d_head"],
    present: Bool[Tensor, "sentences keys"] | None,
    spare: int,
    length: int,
) -> Float[Tensor, "maps 1 keys"]:
    """Return what is added to scores: minus infinity on spare keys, the least number on padding.

    Minus infinity on padding would give NaN for a sequence of padding alone.
    """
    if present is None:
        bias = Q.new_zeros(1, 1, length + spare)
        bias[:, :, length:] = -torch.inf
        return bias
    least = torch.finfo(Q.dtype).min
    bias = Q.new_zeros(present.shape).masked_fill(~present, least)
    bias = functional.pad(bias, (0, spare), value=-torch.inf)
    return bias.repeat_interleave(Q.shape[1], dim=0)[:, None]


def _spare(length: int) -> int:
    """Return the number of keys without weight that pad a row of attention to whole vectors.

    Torch's softmax handles the remainder of vectors of 16 one by one: rows of 14 take ten times as
    long as rows of 16. A small remainder is not worth padding.
    """
    over = length % 16
    return 16 - over if over > 6 else 0


# --- the module ---------------------------------------------------------------------------------


class MixedAttention(nn.Module):
    """Multi-head attention of learned, association and convolution heads, in this order.

    Args:
        heads: Number of heads of each kind.
        d_model: Width of the layer, a multiple of the number of heads.
        window: Number of offsets of a convolution; odd.
        by_channel: A kernel for every channel of the convolution heads, or one for each head.
        chained: Convolution heads also read the output of the association heads.
        dropout: Dropout of the learned heads' weights, in training.

    Raises:
        ValueError: The width is not a multiple of the heads, the window is even, or `chained`
            lacks one of the two kinds.
    """

    def __init__(
        self,
        heads: Heads,
        *,
        d_model: int,
        window: int = WINDOW,
        by_channel: bool = True,
        chained: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if heads.total == 0 or d_model % heads.total:
            raise ValueError(
                f"d_model: expected a multiple of the {heads.total} heads, got {d_model}"
            )
        if window % 2 == 0:
            raise ValueError(f"window: expected an odd number, got {window}")
        if chained and not (heads.association and heads.convolution):
            raise ValueError("chained: needs association and convolution heads")
        self.heads, self.by_channel, self.dropout = heads, by_channel, dropout
        d_head = d_model // heads.total
        kinds = (heads.learned, heads.association, heads.convolution)
        self.widths = [d_head * count for count in kinds]
        # queries and keys of the learned heads, values of all: one product
        self.W_QKV = nn.Linear(d_model, 2 * self.widths[0] + d_model)
        self.W_O = nn.Linear(d_model, d_model)
        if heads.convolution:
            kernels = self.widths[2] if by_channel else heads.convolution
            self.kernel = nn.Parameter(torch.empty(kernels, window))
            nn.init.normal_(self.kernel, std=window**-0.5)
        self.chained = chained
        if chained:
            self.W_chain = nn.Linear(self.widths[1], self.widths[2], bias=False)

    def forward(
        self,
        x: Float[Tensor, "sentences length d_model"],
        same: Associates | None = None,
        *,
        present: Bool[Tensor, "sentences length"] | None = None,
        indices: Int64[Tensor, "sentences indices"] | None = None,
        maps: bool = False,
    ) -> tuple[Float[Tensor, "sentences indices d_model"], Tensor | None]:
        """Return the output, everywhere or at `indices`, and the learned heads' weights if `maps`.

        Args:
            x: The layer's input.
            same: Result of `associates`, which association heads need.
            present: False at padding, which is not read.
            indices: Positions of the output, in its order; None for all.
            maps: Whether to return the weights.
        """
        Q, K, *V = self._project(x, indices)
        parts, weights = [], None
        if self.heads.learned:
            dropout = self.dropout if self.training else 0.0
            part, weights = attend(
                Q, K, V[0], heads=self.heads.learned, present=present, dropout=dropout, maps=maps
            )
            parts.append(part)
        if self.heads.association:
            other = associate(V[1], same)
            parts.append(at(other, indices))
        if self.heads.convolution:
            values = V[2] + self.W_chain(other) if self.chained else V[2]
            parts.append(at(self._convolve(values, present), indices))
        return self.W_O(torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]), weights

    def _project(
        self,
        x: Float[Tensor, "sentences length d_model"],
        indices: Int64[Tensor, "sentences indices"] | None,
    ) -> tuple[Tensor, ...]:
        """Return queries at `indices`, and keys and the values of each kind everywhere."""
        d_learned = self.widths[0]
        widths = [d_learned, *self.widths]
        if indices is None:
            return self.W_QKV(x).split([d_learned, *widths], dim=2)
        weight, bias = self.W_QKV.weight, self.W_QKV.bias
        Q = functional.linear(at(x, indices), weight[:d_learned], bias[:d_learned])
        others = functional.linear(x, weight[d_learned:], bias[d_learned:])
        return Q, *others.split(widths, dim=2)

    def _convolve(
        self,
        values: Float[Tensor, "sentences length width"],
        present: Bool[Tensor, "sentences length"] | None,
    ) -> Float[Tensor, "sentences length width"]:
        """Return the convolution heads' output; padding counts as zeros."""
        if present is not None:
            values = values * present[:, :, None]
        if self.by_channel or values.shape[1] > SHORT:
            return slide(self.kernel, values)
        return convolve(convolution(self.kernel, values.shape[1]), values)


def at(
    x: Float[Tensor, "sentences length width"], indices: Int64[Tensor, "sentences indices"] | None
) -> Float[Tensor, "sentences indices width"]:
    """Return the rows of x at the indices of each sentence; x itself if there are none."""
    if indices is None:
        return x
    sentence = torch.arange(len(x), device=x.device)[:, None]
    row = sentence * x.shape[1] + indices
    return x.flatten(0, 1).index_select(0, row.flatten()).unflatten(0, row.shape)
