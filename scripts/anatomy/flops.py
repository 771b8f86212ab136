"""Floating-point operations as torch's counter finds them, put right where it is wrong.

The counter sees products of matrices, convolutions and attention, 2 operations a multiplication;
sums over tokens, norms, softmax and what else goes element by element are nothing to it. Three
things are put right. The fused attention kernel of a CPU is unknown to it and counts as nothing.
Fused kernels' backward passes count the scores once more than plain products do, since they do not
store them; here the same attention is the same number, whichever kernel computes it. And in the
backward pass of a depth-wise convolution each channel counts as if it met all the others.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

Shape = Sequence[int]
aten = torch.ops.aten


def count(run: Callable[[], object]) -> int:
    """Operations of what `run` does; backward passes count if it has them."""
    with FlopCounterMode(display=False, custom_mapping=CORRECTED) as counter:
        run()
    return counter.get_total_flops()


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any
) -> int:
    """Four products, where the forward pass has two."""
    return 2 * sdpa_flop_count(query, key, value)


def _convolution_backward(
    grad: Shape,
    values: Shape,
    kernel: Shape,
    bias: Shape | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: int,
    wanted: Sequence[bool],
    **_: Any,
) -> int:
    """As many operations as the forward pass, for each of values and kernel that has a gradient."""
    sites = values if transposed else grad  # where the kernel is laid
    forward = 2 * sites[0] * prod(sites[2:]) * prod(kernel)
    return forward * sum(wanted[:2])


CORRECTED = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._scaled_dot_product_flash_attention_backward: _attention_backward,
    aten._scaled_dot_product_efficient_attention_backward: _attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward: _attention_backward,
    aten.convolution_backward: _convolution_backward,
}
