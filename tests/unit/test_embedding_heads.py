"""Heads as factors over the vocabulary, the numbers that claims are about, and pages."""

import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

from scripts.anatomy import html_pages
from scripts.anatomy.embedding import aggregation, heads
from scripts.anatomy.embedding.views import view


def test_factors_are_the_heads_of_the_library() -> None:
    """The factors are those of the model's heads."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=17, hidden_size=12, num_attention_heads=3, num_hidden_layers=2,
        intermediate_size=20,
    )  # fmt: skip
    model = BertModel(config).double()
    seen = view(model)
    actual = {
        (h.layer, h.head, h.matrix): h for h in heads.heads(seen, seen.W_E, seen.W_E, layers=[1])
    }
    assert len(actual) == 6
    attention = model.encoder.layer[1].attention
    E = model.embeddings.word_embeddings.weight
    rows = slice(8, 12)  # head 2
    W_V = attention.self.value.weight[rows].T
    W_O = attention.output.dense.weight[:, rows].T
    W_Q, W_K = (getattr(attention.self, name).weight[rows].T for name in ("query", "key"))
    vo, qk = actual[1, 2, "VO"], actual[1, 2, "QK"]
    assert torch.allclose(vo.A @ vo.B.T, E @ W_V @ W_O @ E.T)
    assert torch.allclose(qk.A @ qk.B.T, E @ W_Q @ W_K.T @ E.T)


def test_query_heads_share_their_key_head() -> None:
    """Query heads of a group share its keys and values."""
    config = LlamaConfig(
        vocab_size=11, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
        num_hidden_layers=1, intermediate_size=8,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaModel(config)
    seen = view(model)
    actual = [
        h for h in heads.heads(seen, seen.W_E, seen.W_E, layers=[0], most=2) if h.matrix == "QK"
    ]
    assert [h.head for h in actual] == [0, 3]
    W_K = model.layers[0].self_attn.k_proj.weight[4:8].T  # the second group's
    assert torch.allclose(actual[1].B, seen.W_E @ W_K, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (6, None, [0, 1, 2, 3, 4, 5]),
        (6, 9, [0, 1, 2, 3, 4, 5]),
        (30, 4, [0, 10, 19, 29]),
        (5, 1, [0]),
    ],
)
def test_spaced(count: int, most: int | None, expected: list[int]) -> None:
    """Numbers are evenly spaced from the first to the last, or all if so many are wanted."""
    assert heads.spaced(count, most) == expected


def test_word_numbers_join_spellings() -> None:
    """Tokens that differ by case or space have the same word number."""
    numbers = heads.word_numbers(["Cat", " cat", "cats", "CAT "])
    assert numbers[0] == numbers[1] == numbers[3] != numbers[2]


def test_layers_above_the_baseline_are_counted_by_seed() -> None:
    """Layers above the baseline are counted for each seed."""
    rows = [
        {"mode": "m", "pair": "K-V", "seed": seed, "layer": layer, "same": 2.0, "other": other}
        for seed, others in ((0, [1, 1, 3, 1]), (1, [1, 1, 1, 1]))
        for layer, other in enumerate(others)
    ]
    actual = aggregation.by_layer(pd.DataFrame(rows), ["mode", "pair"], above="same", below="other")
    record = actual["m"]["K-V"]
    assert record["layers"] == 4
    assert record["layers_above"] == [0.75, 1.0]
    assert record["ratio"] == pytest.approx([2 / 1.5, 2.0])


def test_robustness_is_summarised_by_kind_and_k() -> None:
    """Robustness is summarised by kind of vectors and k."""
    scores = {10: (0.5, 0.2), 100: (0.6, 0.6), 1000: (0.4, 0.9)}
    rows = [
        {"vectors": "normal", "seed": seed, "k": k, "inverse": inverse, "cosine": score,
         "cosine_with_diagonal": score / 2}
        for seed in (0, 1)
        for k, pair in scores.items()
        for inverse, score in zip(("E^T", "E+"), pair, strict=True)
    ]  # fmt: skip
    actual = aggregation.robustness(pd.DataFrame(rows))["normal"]
    assert actual["k10"]["gain"] == pytest.approx([0.3, 0.3])
    assert actual["k1000"]["with_diagonal"]["gain"] == pytest.approx([-0.25, -0.25])
    assert actual["crossing"] == [10, 10]


def test_tokens_cannot_break_a_page() -> None:
    """Tokens in a page are escaped."""
    table = html_pages.table(
        pd.DataFrame({"name": ["<b>"], "tokens": [html_pages.chips(["<script>", "a&b"])]})
    )
    page = html_pages.page("a < b", "x & y", {"<h>": table})
    assert "<script>" not in page
    assert "<b>" not in page.replace("<body>", "")
    assert "<i>&lt;script&gt;</i><i>a&amp;b</i>" in page
    assert '<a href="#s0">&lt;h&gt;</a>' in page
