"""Projections, the index of top tokens, vocabularies and search, on models planted for them."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    PreTrainedTokenizerFast,
)

from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.embedding import index, parameters, projection, search, tokens
from scripts.anatomy.embedding.index import Index, TopLists
from scripts.anatomy.embedding.settings import ReadingSettings
from scripts.anatomy.embedding.views import view


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def coarse(*shape: int, seed: int = 0) -> Tensor:
    """Small whole numbers: projections are exact in any order of summation, and full of ties."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def ordered(scores: list[float], k: int) -> list[int]:
    """The k best by score, then by lower id."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]


# --- top tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [normal, coarse])
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_extremes_in_blocks_are_those_of_the_whole_product(
    draw, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token lists computed in chunks equal those of the whole product, ties included."""
    monkeypatch.setattr(projection, "VECTORS_PER_CHUNK", chunk)
    vectors, W_E = draw(20, 6), draw(50, 6, seed=1)
    allowed = torch.arange(50) % 5 != 0
    actual = projection.extremes(vectors, W_E, k=9, allowed=allowed)
    ids = allowed.nonzero().squeeze(1).tolist()
    for row, scores in enumerate((vectors @ W_E.T)[:, allowed].tolist()):
        order = ordered(scores, len(scores))
        assert actual.ids_high[row].tolist() == [ids[i] for i in order[:9]]
        assert actual.ids_low[row].tolist() == [ids[i] for i in order[::-1][:9]]
        values = [scores[i] for i in order]
        assert actual.scores_high[row].tolist() == pytest.approx(values[:9], abs=1e-5)
        assert (-actual.scores_low[row]).tolist() == pytest.approx(values[::-1][:9], abs=1e-5)


def test_the_two_ends_never_share_a_token() -> None:
    """The two ends of a vector have no token in common."""
    actual = projection.extremes(torch.zeros(2, 3), normal(8, 3), k=4)
    assert actual.ids_high.tolist() == [[0, 1, 2, 3]] * 2
    assert actual.ids_low.tolist() == [[7, 6, 5, 4]] * 2


@pytest.mark.parametrize("draw", [normal, coarse])
@pytest.mark.parametrize("shift", [0.0, 4.0, -4.0])
def test_largest_by_absolute_value_comes_from_the_lists(draw, shift: float) -> None:
    """The largest absolute values are among the two ends."""
    vectors, W_E = draw(30, 5), draw(40, 5, seed=1)
    W_E = torch.cat([W_E, torch.ones(40, 1)], dim=1)
    vectors = torch.cat([vectors, torch.full((30, 1), shift)], dim=1)  # to all of one sign
    actual = index.largest(top_lists(vectors, W_E, k=20), 7)
    for ids, scores in zip(actual.tolist(), (vectors @ W_E.T).abs().tolist(), strict=True):
        assert len(set(ids)) == 7
        expected = sorted(scores, reverse=True)[:7]
        assert [scores[i] for i in ids] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("k", [0, 6])
def test_lists_that_do_not_fit_are_refused(k: int) -> None:
    """A k for which there are too few tokens is refused."""
    with pytest.raises(ValueError, match=f"k = {k}: two lists need between 2 and 11 tokens"):
        projection.extremes(normal(3, 2), normal(11, 2), k=k)
    with pytest.raises(ValueError, match="k = 12: there are 11 tokens"):
        projection.top_k(normal(3, 11), 12)


def test_weights_that_are_not_numbers_are_refused() -> None:
    """Vectors that are not finite are refused."""
    with pytest.raises(ValueError, match="not finite"):
        projection.extremes(normal(3, 2) / 0, normal(11, 2), k=2)


# --- the right inverse --------------------------------------------------------------------------


def test_dual_is_the_pseudo_inverse() -> None:
    """The dual is the pseudo-inverse."""
    W_E = normal(60, 7).double()
    inverse = projection.dual(W_E, W_E)
    torch.testing.assert_close(inverse, torch.linalg.pinv(W_E.T), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(W_E.T @ inverse, torch.eye(7).double(), rtol=0, atol=1e-12)
    x, y = normal(5, 7, seed=1).double(), normal(5, 7, seed=2).double()
    product = (x @ W_E.T) @ (projection.dual(y, W_E) @ W_E.T).T
    torch.testing.assert_close(product, x @ y.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("W_E", [normal(4, 7), normal(60, 7) * torch.tensor([1.0] * 6 + [0])])
def test_no_inverse_of_an_embedding_without_full_rank(W_E: Tensor) -> None:
    """An embedding without full rank has no dual, which is refused."""
    with pytest.raises(ValueError, match="no right inverse"):
        projection.dual(W_E, W_E)


# --- the index ----------------------------------------------------------------------------------


def top_lists(vectors: Tensor, W_E: Tensor, k: int) -> TopLists:
    actual = projection.extremes(vectors, W_E, k=k)
    n = len(vectors)
    return TopLists(
        np.full(n, -1),
        np.arange(n),
        vectors.norm(dim=1).numpy(),
        **{name: part.numpy() for name, part in actual._asdict().items()},
    )


def planted_gpt2() -> GPT2LMHeadModel:
    """Rows of W_E are orthogonal, and vectors are rows of it: the top token of each is known."""
    config = GPT2Config(vocab_size=32, n_embd=32, n_head=4, n_layer=2, n_positions=8)
    model = GPT2LMHeadModel(config)
    rows = torch.linalg.qr(normal(32, 32))[0]
    with torch.no_grad():
        model.transformer.wte.weight.copy_(rows)
        block = model.transformer.h[1]
        block.mlp.c_proj.weight[17] = 3 * rows[5]  # V stores values as rows
        block.mlp.c_fc.weight[:, 17] = -2 * rows[6]  # and K keys as columns
        block.attn.c_attn.weight[:, 32 * 2 + 8 * 3 + 1] = rows[7]  # W_V, head 3, column 1
        block.attn.c_attn.weight[:, 32 * 0 + 8 * 2 + 4] = rows[8]  # W_Q, head 2, column 4
        block.attn.c_attn.weight[:, 32 * 1 + 8 * 1 + 7] = rows[9]  # W_K, head 1, column 7
        block.attn.c_proj.weight[8 * 3 + 1] = rows[10]  # W_O, head 3, row 1
    return model


@torch.no_grad()
def written(model: torch.nn.Module, path: Path, **choices) -> Index:
    actual = view(model)
    blocks = parameters.parameter_lists(actual, **choices)
    index.write_index(path, blocks, d_vocab=len(actual.W_E))
    return Index(path)


def test_planted_vectors_are_indexed(tmp_path: Path) -> None:
    """Planted vectors appear in the index at their layer, group and number."""
    file = written(planted_gpt2(), tmp_path / "top.parquet", k=3)
    assert list(file.groups) == list(
        itertools.product([0, 1], ["K", "V", "W_Q", "W_K", "W_V", "W_O"])
    )
    for group, head, number, token, size in (
        ("V", -1, 17, 5, 3),
        ("W_V", 3, 1, 7, 1),
        ("W_Q", 2, 4, 8, 1),
        ("W_K", 1, 7, 9, 1),
        ("W_O", 3, 1, 10, 1),
    ):
        lists = file.read(1, group)
        at = np.flatnonzero((lists.head == head) & (lists.index == number)).item()
        assert lists.ids_high[at, 0] == token
        assert lists.scores_high[at, 0] == pytest.approx(size, rel=1e-5)
        assert lists.norm[at] == pytest.approx(size, rel=1e-5)
    keys = file.read(1, "K")
    assert keys.ids_low[17, 0] == 6 and keys.scores_low[17, 0] == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize(("d_vocab", "dtype"), [(32, np.uint16), (70_000, np.int32)])
def test_index_reads_back_as_written(tmp_path: Path, d_vocab: int, dtype: type) -> None:
    """An index reads back as it was written."""
    blocks = [
        (layer, group, top_lists(normal(n, 4, seed=n), normal(d_vocab, 4), k=3))
        for layer, group, n in [(0, "K", 6), (0, "V", 6), (1, "K", 9)]
    ]
    index.write_index(tmp_path / "top.parquet", blocks, d_vocab=d_vocab)
    file = Index(tmp_path / "top.parquet")
    assert file.d_vocab == d_vocab
    for layer, group, lists in blocks:
        actual = file.read(layer, group)
        assert actual.ids_high.dtype == dtype
        for name, value in vars(lists).items():
            np.testing.assert_array_equal(getattr(actual, name), value, err_msg=name)
    assert list(file.layer(0)) == ["K", "V"]
    assert file.layers == [0, 1] and file.top == 3
    with pytest.raises(ValueError, match="no vectors V in layer 1; it has K, V"):
        file.read(1, "V")


def test_a_broken_index_names_its_file(tmp_path: Path) -> None:
    """A damaged index raises an error that names its file."""
    path = tmp_path / "top.parquet"
    with pytest.raises(UnreadableArtifact, match="top.parquet: is missing"):
        Index(path)
    index.write_index(path, [(0, "K", top_lists(normal(6, 4), normal(9, 4), k=3))], d_vocab=9)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UnreadableArtifact, match="top.parquet: is not readable as an index"):
        Index(path)


@torch.no_grad()
def test_singular_directions_are_those_of_the_products(tmp_path: Path) -> None:
    """Singular directions are those of W_VO and W_QK."""
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=12,
        intermediate_size=10,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=1,
    )
    torch.manual_seed(0)
    actual = view(LlamaModel(config))
    layer = actual.layers[0]
    sides = parameters.singular_directions(layer, 2)
    for head in range(4):
        kv = head // 2
        products = {
            ("VO_in", "VO_out"): layer.W_V[kv] @ layer.W_O[head],
            ("QK_query", "QK_key"): layer.W_Q[head] @ layer.W_K[kv].T,
        }
        for (left, right), product in products.items():
            U, S, Vh = torch.linalg.svd(product.double())
            for i in range(2):
                one, other = sides[left][head, i], sides[right][head, i]
                rank_one = torch.outer(one, other).double() / S[i]
                expected = S[i] * torch.outer(U[:, i], Vh[i])
                torch.testing.assert_close(rank_one, expected, rtol=1e-4, atol=1e-6)
                assert one.norm() == pytest.approx(S[i].item(), rel=1e-4)
                assert one[one.abs().argmax()] > 0
    blocks = parameters.parameter_lists(actual, k=3, directions=2)
    index.write_index(tmp_path / "top.parquet", blocks, d_vocab=40)
    file = Index(tmp_path / "top.parquet")
    assert file.read(0, "VO_out").head.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert file.read(0, "W_K").head.tolist() == [0] * 3 + [1] * 3
    assert {"K_gate", "K_up"} < {group for _, group in file.groups}


@torch.no_grad()
def test_exact_reading_preserves_what_is_compared_with_the_stream() -> None:
    """Exact reading preserves the products with the stream."""
    model = planted_gpt2()
    model.transformer.wte.weight.copy_(normal(32, 32) + torch.eye(32))
    plain = view(model)
    exact = parameters.read_as(plain, ReadingSettings(inverse="pseudo"))
    state, W_E = normal(5, 32, seed=2), plain.W_E
    for one, other in zip(plain.layers, exact.layers, strict=True):
        through = (state @ W_E.T) @ (other.K["key"] @ W_E.T).T
        torch.testing.assert_close(through, state @ one.K["key"].T, rtol=1e-3, atol=1e-3)
        for name in ("W_Q", "W_K", "W_V"):
            through = (state @ W_E.T) @ W_E @ getattr(other, name)
            torch.testing.assert_close(through, state @ getattr(one, name), rtol=1e-3, atol=1e-3)
        assert torch.equal(one.V, other.V) and torch.equal(one.W_O, other.W_O)
    assert parameters.read_as(plain, ReadingSettings()) is plain
    assert parameters.read_as(plain, ReadingSettings(fold_norms=True)).layers[0].ff_norm is None


@torch.no_grad()
def test_untied_embeddings_read_each_side_of_the_stream() -> None:
    """Untied models read inputs with W_E and outputs with W_U."""
    sizes = {"hidden_size": 16, "intermediate_size": 10, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=40, num_hidden_layers=3, tie_word_embeddings=False, **sizes)
    torch.manual_seed(0)
    actual = view(LlamaForCausalLM(config))
    blocks = {
        (layer, group): lists
        for layer, group, lists in parameters.parameter_lists(actual, k=1, layers=[0, 2])
    }
    assert {layer for layer, _ in blocks} == {0, 2}
    of = actual.layers[2]
    for group, rows, W in [("V", of.V, actual.W_U), ("K_up", of.K["up"], actual.W_E)]:
        assert blocks[2, group].ids_high[:, 0].tolist() == (rows @ W.T).argmax(dim=1).tolist()


# --- vocabularies -------------------------------------------------------------------------------


def tokenizer(pieces: list[str], kind: str, special: list[str]) -> PreTrainedTokenizerFast:
    numbers = {piece: i for i, piece in enumerate(pieces)}
    if kind == "wordpiece":
        built = Tokenizer(models.WordPiece(numbers, unk_token=pieces[0]))
        built.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        built = Tokenizer(models.BPE(numbers, []))
        built.pre_tokenizer = pre_tokenizers.ByteLevel()
        built.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=built)
    fast.add_special_tokens({"additional_special_tokens": special})
    return fast


def test_wordpiece_vocabulary() -> None:
    """WordPiece continuations are marked, and filters keep the tokens they name."""
    pieces = ["[UNK]", "[unused3]", "play", "##ing", "#", "##s", "a", "é", "2"]
    read = tokens.read_vocabulary(tokenizer(pieces, "wordpiece", ["[UNK]"]), 11)
    assert read.texts[2:] == ("play", "ing", "#", "s", "a", "é", "2", "", "")
    assert tokens.labels(read)[2:7] == ["play", "·ing", "#", "·s", "a"]
    assert read.readable.tolist() == [False, False, *[True] * 7, False, False]
    kept = {
        keep: [read.texts[i] for i in np.flatnonzero(tokens.token_filter(read, keep=keep))]
        for keep in ("all", "ascii", "alphanumeric", "whole_word")
    }
    assert kept["all"] == ["play", "ing", "#", "s", "a", "é", "2"]
    assert kept["ascii"] == ["play", "ing", "#", "s", "a", "2"]
    assert kept["alphanumeric"] == ["play", "ing", "s", "a", "é", "2"]
    assert kept["whole_word"] == ["play"]


def test_byte_level_vocabulary() -> None:
    """Byte-level tokens are decoded, and those that continue a word are marked."""
    pieces = ["<s>", "ĠThe", "The", "the", "Ġcaf", "Ã©", "ING", ".", "Ġ", "Ċ", "Ãł", "Ġthe", "Ã"]
    read = tokens.read_vocabulary(tokenizer(pieces, "bytes", ["<s>"]), 13)
    assert tokens.labels(read)[1:] == [
        *["The", "The", "·the", "caf", "·é", "·ING", ".", "␣", "\\n", "·à", "the", "�"]
    ]
    assert not read.readable[0]
    whole = tokens.token_filter(read, keep="whole_word")
    assert np.flatnonzero(whole).tolist() == [1, 2, 4, 11]
    listed = tokens.token_filter(read, words=["THE", "ING"])
    assert np.flatnonzero(listed).tolist() == [1, 2, 3, 6, 11]


def test_a_tokenizer_of_another_model_is_refused() -> None:
    """A tokenizer that does not fit the embedding is refused."""
    actual = tokenizer(["[UNK]", "a", "b", "c"], "wordpiece", ["[UNK]"])
    with pytest.raises(ValueError, match="has 4 tokens, 1 more than the 3 rows"):
        tokens.read_vocabulary(actual, 3)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shit", "s***"),
        ("·Fucking", "·F******"),
        ("dick", "d***"),
        ("Dickens", "Dickens"),
        ("class", "class"),
        ("assess", "assess"),
        ("a bastard's shitty day", "a b******'s s***** day"),
    ],
)
def test_masked(text: str, shown: str) -> None:
    """Words on the list are masked, others are not."""
    assert tokens.masked(text) == shown


def test_texts_are_cut_to_length() -> None:
    """Texts are cut to the maximum length."""
    actual = tokens.cut(
        ["a b c a", "b"], tokenizer(["[UNK]", "a", "b", "c"], "wordpiece", ["[UNK]"]), 3
    )
    assert [ids.dtype for ids in actual] == [torch.long] * 2
    assert [len(ids) for ids in actual] == [3, 1]


# --- search -------------------------------------------------------------------------------------

TEXTS = [f"word{i}" for i in range(32)]


def test_search_ranks_by_the_mean_inner_product(tmp_path: Path) -> None:
    """Vectors are ranked by the mean inner product of the unit vector with the words."""
    file = written(planted_gpt2(), tmp_path / "top.parquet", k=3)
    best = search.search(file, search.token_ids(TEXTS, ["word5"]), top=2)[0]
    assert (best.layer, best.group, best.index, best.sign) == (1, "V", 17, 1)
    assert best.score == pytest.approx(1, rel=1e-5)  # a unit vector of the word itself
    low = search.search(file, search.token_ids(TEXTS, ["Word6"]), groups=["K"])[0]
    assert (low.group, low.index, low.sign, low.found) == ("K", 17, -1, 1)
    assert low.ids[0] == 6


def test_search_against_a_plain_loop(tmp_path: Path) -> None:
    """Scores equal those of a loop over the index."""
    W_E, words = normal(32, 8), {"a": np.array([3, 4]), "b": np.array([9]), "c": np.array([30])}
    lists = top_lists(normal(50, 8, seed=1), W_E, k=6)
    index.write_index(tmp_path / "top.parquet", [(2, "V", lists)], d_vocab=32)
    expected = []
    for row, (ids, scores) in itertools.product(
        range(50),
        [(lists.ids_high, lists.scores_high), (lists.ids_low, lists.scores_low)],
    ):
        of_token = dict(zip(ids[row].tolist(), scores[row].tolist(), strict=True))
        held = [[of_token[i] for i in ids.tolist() if i in of_token] for ids in words.values()]
        if any(held):
            score = sum(max(h) for h in held if h) / 3 / lists.norm[row]
            expected.append((score, row, 1 if ids is lists.ids_high else -1, sum(map(bool, held))))
    expected = sorted(expected, reverse=True)[:20]
    actual = search.search(Index(tmp_path / "top.parquet"), words)
    assert [(m.index, m.sign, m.found) for m in actual] == [e[1:] for e in expected]
    assert [m.score for m in actual] == pytest.approx([e[0] for e in expected], rel=1e-5)


def test_words_that_are_no_tokens_are_named() -> None:
    """Words that are no tokens are named."""
    texts = ["May", "may", "MAY", "june"]
    assert search.token_ids(texts, [" may "])["may"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="no single token of this vocabulary: julio"):
        search.token_ids(texts, ["june", "Julio"])


def test_search_does_without_torch_and_pandas(tmp_path: Path) -> None:
    """A search imports neither torch nor pandas."""
    path = tmp_path / "top.parquet"
    index.write_index(path, [(0, "K", top_lists(normal(6, 4), normal(9, 4), k=3))], d_vocab=9)
    code = f"""
import sys
from scripts.anatomy.embedding.search import Index, search
assert search(Index({str(path)!r}), {{"a": [2]}})
sys.exit(bool({{"torch", "pandas"}} & set(sys.modules)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
