"""Floating-point operations by torch's counter, with three corrections.

The counter includes products of matrices, convolutions and attention, with 2 operations per
multiplication. It ignores sums over tokens, norms, softmax and other elementwise operations.

- Torch does not count the fused attention kernel of a CPU at all.
- For the backward passes of fused kernels, torch counts the scores once more, since these are not
  stored. Here the same attention has the same count, whichever kernel computes it.
- For the backward pass of a depth-wise convolution, torch counts each channel with all others.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

Shape = Sequence[int]
aten = torch.ops.aten


def count(run: Callable[[], object]) -> int:
    """Return the operations of `run`, including its backward passes."""
    with FlopCounterMode(display=False, custom_mapping=CORRECTED) as counter:
        run()
    return counter.get_total_flops()


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any
) -> int:
    """Return the operations of four products; the forward pass has two."""
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
    """Return those of the forward pass, once for each of values and kernel with a gradient."""
    sites = values if transposed else grad  # positions of the kernel
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
