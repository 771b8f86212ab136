"""What heads cost: operations against their formula, clocks and memory against known work."""

import time

import pytest
import torch

from scripts.anatomy.lego_attention import SHORT
from scripts.anatomy.pretraining import cost
from scripts.anatomy.pretraining.settings import PretrainingVariantSettings, SizeSettings
from scripts.anatomy.settings import Heads

SIZE = SizeSettings(n_layers=2, d_model=32, d_ff=48, n_heads=4)
D_VOCAB, WINDOW = 60, 5
SPLITS = ["0/0/4", "2/2/0", "1/1/2", "0/1/3", "4/0/0"]


def variant(split: str, window: int = WINDOW) -> PretrainingVariantSettings:
    return PretrainingVariantSettings(heads=Heads.parse(split), window=window)


def blocks(
    split: str, length: int, *, size: SizeSettings = SIZE, window: int = WINDOW
) -> cost.Blocks:
    model = cost.model(variant(split, window), size, d_vocab=D_VOCAB, max_length=length)
    return cost.blocks_of(model, cost.text(2, length, D_VOCAB))


def formula(heads: Heads, *, d: int, length: int, window: int) -> int:
    """Operations of the attention block: products with weights, then those of each kind of heads.

    Association counts where it is a product with a map, as it is in short sequences.
    """
    d_l, d_a, d_c = (
        count * d // heads.total for count in (heads.learned, heads.association, heads.convolution)
    )
    weights = 2 * length * (2 * d * d_l + 2 * d * d)
    dense = 2 * length**2 * d_a if length <= SHORT else 0
    return weights + 4 * length**2 * d_l + dense + 2 * length * window * d_c


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("length", [16, 40, 128])
def test_counted_operations_are_those_of_the_formula(split: str, length: int) -> None:
    """Counted operations equal the formula."""
    measured = blocks(split, length)
    expected = formula(Heads.parse(split), d=32, length=length, window=WINDOW)
    assert cost.flops(measured, "attention") == expected
    feed_forward = 2 * 2 * length * 32 * 48
    assert cost.flops(measured, "encoder") == SIZE.n_layers * (expected + feed_forward)


def test_bert_base_has_the_published_size() -> None:
    """BERT-base has 109.5 M parameters and 22.35 GFLOP for 128 tokens."""
    size = SizeSettings()
    with torch.device("meta"):
        base, v0 = (
            cost.model(variant(split, 21), size, d_vocab=30522, max_length=512)
            for split in ("0/0/12", "6/6/0")
        )
    parameters = [cost.parameters(model) for model in (base, v0)]
    assert parameters[0]["parameters"] == pytest.approx(109.5e6, rel=1e-3)
    assert parameters[1]["parameters"] == pytest.approx(95.4e6, rel=1e-3)
    assert parameters[0]["attention_parameters"] == pytest.approx(2.362e6, rel=1e-3)
    assert parameters[1]["attention_parameters"] == pytest.approx(1.189e6, rel=2e-3)
    layer = formula(Heads.parse("0/0/12"), d=768, length=128, window=21) + 4 * 128 * 768 * 3072
    assert 12 * layer == pytest.approx(22.35e9, rel=1e-3)


@pytest.fixture(scope="module")
def table() -> object:
    variants = {"base": variant("0/0/4"), "v0": variant("2/2/0"), "odd": variant("1/1/2", 9)}
    return cost.table(variants, SIZE, d_vocab=D_VOCAB, lengths=[16, 64], batch=2, repeats=2)


def test_the_table_is_relative_to_the_first_variant(table: object) -> None:
    """Ratios are relative to the first variant at the same length."""
    assert list(table["variant"]) == ["base", "v0", "odd"] * 2
    assert list(table["length"]) == [16] * 3 + [64] * 3
    assert list(table["split"])[:3] == ["0/0/4", "2/2/0", "1/1/2"]
    assert list(table["window"])[:3] == [WINDOW, WINDOW, 9]
    for _, rows in table.groupby("length"):
        for key in cost.MEASURED:
            assert (rows[key] > 0).all()
            assert rows[f"{key}_ratio"].tolist() == (rows[key] / rows[key].iloc[0]).tolist()
    v0 = table[(table["variant"] == "v0") & (table["length"] == 64)].iloc[0]
    assert v0["attention_flops_ratio"] < 0.5
    assert v0["attention_parameters"] < v0["parameters"]


def test_ratios_by_variant(table: object) -> None:
    """Ratios are nested by variant and length."""
    found = cost.ratios(table)
    assert list(found) == ["base", "v0", "odd"]
    assert set(found["base"]["length16"].values()) == {1.0}
    row = table[(table["variant"] == "v0") & (table["length"] == 64)].iloc[0]
    assert found["v0"]["length64"]["encoder_flops"] == row["encoder_flops_ratio"]
    assert found["v0"]["parameters"] == row["parameters_ratio"]


def test_heads_that_do_not_fit() -> None:
    """Heads that do not fit the size are refused."""
    with pytest.raises(ValueError, match="the split 1/1/1 .* has 3 heads, a layer has 4"):
        cost.table(
            {"odd": variant("1/1/1")}, SIZE, d_vocab=D_VOCAB, lengths=[8], batch=1, repeats=1
        )


def test_peak_memory() -> None:
    """Peak memory is the maximum held at a time, including temporaries."""

    def run() -> None:
        one, two = torch.empty(250_000), torch.empty(125_000)
        del one
        three = torch.empty(100_000)
        del two, three

    assert cost.peak_bytes(run, "cpu") == pytest.approx(1_500_000, rel=0.01)
    kept = torch.empty(250_000)
    assert cost.peak_bytes(lambda: kept.sum(), "cpu") < 10_000


def test_a_step_leaves_nothing_behind() -> None:
    """A step leaves no gradients."""
    measured = blocks("1/1/2", 40)
    peaks = [cost.peak_bytes(lambda: measured.step("encoder"), "cpu") for _ in range(3)]
    assert peaks[1] == peaks[2]
    weights = sum(p.numel() for p in measured.encoder.encoder.parameters())
    assert peaks[0] > 4 * weights  # their gradients, at least
    assert all(parameter.grad is None for parameter in measured.encoder.parameters())
    assert measured.inputs.grad is None


def test_variants_take_turns() -> None:
    """Variants are timed in turn."""
    calls = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.02)

    fast, slower = cost.interleaved([lambda: calls.append("fast"), slow], repeats=3)
    assert calls == ["fast", "slow"] * 4
    assert fast < 0.02 <= slower


def test_the_text_has_no_padding_and_repeats() -> None:
    """The text for timing has repeats and no padding."""
    tokens = cost.text(4, 128, D_VOCAB)
    assert tokens.min() > cost.PAD and tokens.max() < D_VOCAB
    assert all(len(row.unique()) < 100 for row in tokens)
    assert torch.equal(tokens, cost.text(4, 128, D_VOCAB))
