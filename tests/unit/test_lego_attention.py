"""Hard-coded heads against their definition, in both forms; padding, precision, compilation."""

import re

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scripts.anatomy.flops import count
from scripts.anatomy.lego_attention import (
    SHORT,
    Groups,
    MixedAttention,
    associate,
    associates,
    association,
    attend,
    convolution,
    convolve,
    slide,
)
from scripts.anatomy.settings import Heads

LENGTH = 14
D_MODEL = 24
SPECIAL = torch.tensor([0, 1])
ALL_KINDS = ["0/0/4", "4/0/0", "0/4/0", "2/2/0", "1/1/2"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=dtype)


def ids(count: int, length: int, *, most: int = 12, seed: int = 0) -> Tensor:
    """Tokens that repeat, special ones among them."""
    return torch.randint(0, most, (count, length), generator=generator(seed))


def lengths_to_present(lengths: list[int], max_length: int) -> Tensor:
    return torch.arange(max_length) < torch.tensor(lengths)[:, None]


def mixer(split: str, **options: object) -> MixedAttention:
    """A module in which every parameter matters."""
    module = MixedAttention(Heads.parse(split), d_model=D_MODEL, **{"window": 5} | options)
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=index) / 3)
    return module.eval()


def output(module: MixedAttention, x: Tensor, tokens: Tensor, present: Tensor | None = None):
    same = associates(tokens, SPECIAL, present)
    return module(x, same, present=present)[0]


# --- association --------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True], ids=["sums", "map"])
def test_association_is_the_mean_over_partners(dense: bool) -> None:
    """Association returns the mean of the partners' values, in both forms."""
    tokens = torch.tensor([[0, 5, 6, 5, 7, 5, 0, 6, 1]])
    values = normal(1, 9, 2)
    expected = torch.zeros_like(values)  # no partner, no special token: nothing
    fives = [1, 3, 5]
    for index in fives:
        expected[0, index] = values[0, [other for other in fives if other != index]].mean(dim=0)
    expected[0, 2], expected[0, 7] = values[0, 7], values[0, 2]
    found = associate(values, associates(tokens, SPECIAL, dense=dense))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["32", "64"]
)
@pytest.mark.parametrize("most", [3, 12, 1000], ids=["few", "some", "many tokens"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_sums_are_exact(dtype: torch.dtype, tolerance: float, most: int, padded: bool) -> None:
    """Sums over groups equal the dense map, in values and gradients."""
    tokens = ids(4, 90, most=most)
    present = lengths_to_present([90, 61, 1, 0], 90) if padded else None
    grad = normal(4, 90, 6, seed=1, dtype=dtype)
    results = []
    for dense in (True, False):
        same = associates(tokens, SPECIAL, present, dense=dense)
        values = normal(4, 90, 6, dtype=dtype).requires_grad_()
        found = associate(values, same)
        found.backward(grad)
        results.append((found.detach(), values.grad))
    assert results[0][0].abs().max() > 0.1
    for by_map, by_sums in zip(*results, strict=True):
        torch.testing.assert_close(by_sums, by_map, rtol=0, atol=tolerance)


def test_form_by_length() -> None:
    """Long sequences use groups, short ones the dense map, unless `dense` is set."""
    assert isinstance(associates(ids(2, SHORT)), Tensor)
    assert isinstance(associates(ids(2, SHORT + 1)), Groups)
    assert isinstance(associates(ids(2, SHORT), dense=False), Groups)
    assert isinstance(associates(ids(2, SHORT + 1), dense=True), Tensor)


def test_special_tokens_and_padding_have_no_partners() -> None:
    """Special tokens and padding neither have partners nor are partners."""
    tokens = torch.tensor([[0, 4, 1, 4, 1, 4, 4]])
    present = lengths_to_present([5], 7)
    expected = torch.zeros(7, 7)
    expected[1, 3] = expected[3, 1] = 1.0
    torch.testing.assert_close(association(tokens, SPECIAL, present)[0], expected)
    found = associate(torch.eye(7)[None], associates(tokens, SPECIAL, present, dense=False))
    torch.testing.assert_close(found[0], expected)


# --- convolution --------------------------------------------------------------------------------


def test_convolution_is_a_convolution() -> None:
    """The map of a convolution has the kernel at each offset, and zeros beyond the ends."""
    kernel = normal(2, 5, dtype=torch.float64)
    values = normal(3, LENGTH, 6, seed=1, dtype=torch.float64)
    for found in (convolve(convolution(kernel, LENGTH), values), slide(kernel, values)):
        for channel in range(6):
            for sentence in range(3):
                # numpy turns the kernel around; offset +2 means what comes two places later
                taps = kernel[channel // 3].numpy()[::-1]
                expected = np.convolve(values[sentence, :, channel].numpy(), taps, mode="same")
                np.testing.assert_allclose(found[sentence, :, channel], expected, atol=1e-12)


@pytest.mark.parametrize("length", [4, 40], ids=["shorter than the window", "longer"])
def test_one_kernel_per_channel(length: int) -> None:
    """Each channel is convolved with its own kernel."""
    kernel, values = normal(6, 21, dtype=torch.float64), normal(2, length, 6, dtype=torch.float64)
    expected = functional.conv1d(values.mT, kernel[:, None], padding=10, groups=6).mT
    torch.testing.assert_close(slide(kernel, values), expected)


# --- learned attention --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [7, 20, 50], ids=["filled up", "as it is", "fused"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("maps", [False, True], ids=["", "maps"])
def test_attention_equals_torch(length: int, padded: bool, maps: bool) -> None:
    """Attention, its weights and its gradients equal torch's own."""
    Q, K, V = normal(3, 2, length, 12, dtype=torch.float64)
    Q = Q[:, :4]
    present = lengths_to_present([length, length - 3], length) if padded else None
    found, weights = attend(Q, K, V, heads=3, present=present, maps=maps)
    expected = functional.scaled_dot_product_attention(
        *(part.unflatten(2, (3, 4)).transpose(1, 2) for part in (Q, K, V)),
        attn_mask=None if present is None else present[:, None, None],
    )
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2))
    if maps:
        torch.testing.assert_close(weights.sum(dim=3), torch.ones_like(weights[..., 0]))
        assert not padded or weights[1, :, :, -3:].abs().max() == 0


# --- the module ---------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ALL_KINDS)
@pytest.mark.parametrize("by_channel", [True, False], ids=["channel", "head"])
def test_padding_changes_nothing(split: str, by_channel: bool) -> None:
    """The output at present tokens does not depend on padding."""
    module = mixer(split, by_channel=by_channel).double()
    tokens = ids(3, 60)
    x = normal(3, 60, D_MODEL, dtype=torch.float64)
    lengths = [60, 37, 20]  # in both forms when they are on their own
    present = lengths_to_present(lengths, 60)
    batched = output(module, x, tokens, present)
    for row, length in enumerate(lengths):
        alone = output(module, x[row : row + 1, :length], tokens[row : row + 1, :length])
        torch.testing.assert_close(batched[row : row + 1, :length], alone)
    other = torch.where(present[:, :, None], x, normal(3, 60, D_MODEL, seed=9).double())
    ids_elsewhere = torch.where(present, tokens, 5)
    again = output(module, other, ids_elsewhere, present)
    torch.testing.assert_close(again[present], batched[present])


def test_a_sequence_of_padding_alone() -> None:
    """A sequence of padding alone gives finite outputs and gradients."""
    for length in (20, 60):
        module = mixer("1/1/2")
        present = lengths_to_present([length, 0], length)
        x = normal(2, length, D_MODEL, seed=2)
        found = output(module, x, ids(2, length), present)
        found.sum().backward()
        assert found.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("split", ALL_KINDS)
@pytest.mark.parametrize("length", [20, 60], ids=["short", "long"])
def test_every_parameter_is_trained(split: str, length: int) -> None:
    """Every parameter of the module has a nonzero gradient."""
    module = mixer(split)
    output(module, normal(2, length, D_MODEL), ids(2, length)).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("split", ALL_KINDS)
@pytest.mark.parametrize("length", [20, 60], ids=["short", "long"])
def test_half_precision(split: str, length: int) -> None:
    """The module runs under bfloat16 autocast, near its single-precision output."""
    module = mixer(split, window=21)
    x, tokens = normal(2, length, D_MODEL, seed=3), ids(2, length, most=4)
    exact = output(module, x, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = output(module, x, tokens, lengths_to_present([length, length], length))
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert (found - exact).abs().max() < 0.03 * exact.abs().max()


def test_sums_in_half_precision_keep_their_digits() -> None:
    """Association by sums stays exact in half precision over a thousand positions."""
    tokens = torch.full((1, 1000), 7)
    values = (normal(1, 1000, 3) + 1).bfloat16()
    found = associate(values, associates(tokens)).double()
    expected = (values.double().sum(dim=1, keepdim=True) - values.double()) / 999
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=2**-8, atol=0)


@pytest.mark.parametrize("length", [20, 60], ids=["short", "long"])
def test_the_module_compiles_as_a_whole(length: int) -> None:
    """torch.compile compiles the module without a graph break."""
    torch._dynamo.reset()
    module = mixer("1/1/2")
    x, tokens = normal(2, length, D_MODEL, seed=3), ids(2, length)
    present = lengths_to_present([length, 11], length)
    compiled = torch.compile(output, fullgraph=True, backend="aot_eager")
    expected, found = (run(module, x, tokens, present) for run in (output, compiled))
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert module.W_QKV.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 26}, "d_model.*got 26"),
        ({"heads": Heads(learned=0)}, "d_model.*0 heads"),
        ({"window": 20}, "window.*got 20"),
        ({"heads": Heads.parse("0/2/2"), "chained": True}, "chained: needs association and conv"),
    ],
)
def test_module_arguments_that_are_refused(options: dict, message: str) -> None:
    """Arguments that do not fit together are refused with their name."""
    options = {"heads": Heads.parse("1/1/2"), "d_model": D_MODEL} | options
    with pytest.raises(ValueError, match=message):
        MixedAttention(options.pop("heads"), **options)


# --- splits -------------------------------------------------------------------------------------


def test_split_round_trip() -> None:
    """A split is parsed in the order in which it is printed."""
    heads = Heads.parse("6/5/1")
    assert (heads.association, heads.convolution, heads.learned) == (6, 5, 1)
    assert (heads.split, heads.total) == ("6/5/1", 12)


@pytest.mark.parametrize("split", ["6/6", "1/2/3/4", "a/b/c", "-1/1/2", "", "1//2"])
def test_splits_that_are_refused(split: str) -> None:
    """Strings that are not a split are refused."""
    with pytest.raises(ValueError, match=re.escape(repr(split))):
        Heads.parse(split)


def test_split_of_another_total() -> None:
    """A split with another total than the layer's heads is refused."""
    Heads.parse("6/6/0").check_total(12)
    message = r"^the split 6/5/0 \(association/convolution/learned\) has 11 heads, a layer has 12$"
    with pytest.raises(ValueError, match=message):
        Heads.parse("6/5/0").check_total(12)


# --- operations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_attention_counts_the_same_by_every_kernel(fused: bool) -> None:
    """Fused and plain attention have the same count of operations."""
    Q, K, V = (part.requires_grad_() for part in normal(3, 2, 64, 12))
    present = lengths_to_present([64, 50], 64)

    def forward() -> Tensor:
        return attend(Q, K, V, heads=3, present=present, maps=not fused)[0]

    products = 2 * 2 * 64 * 64 * 12 * 2
    assert count(forward) == products
    assert count(lambda: forward().sum().backward()) == 3 * products


def test_a_convolution_counts_its_own_channels() -> None:
    """The backward pass of a depth-wise convolution counts each channel once."""
    kernel, values = normal(6, 5).requires_grad_(), normal(2, 40, 6).requires_grad_()
    forward = 2 * 2 * 40 * 6 * 5
    assert count(lambda: slide(kernel, values)) == forward
    assert count(lambda: slide(kernel, values).sum().backward()) == 3 * forward
    assert count(lambda: slide(kernel, values.detach()).sum().backward()) == 2 * forward
