"""Alignment of two models: kernels against projections that are written down, and matching."""

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel, LlamaConfig, LlamaForCausalLM

from scripts.anatomy import artifacts, seeding
from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.embedding import aggregation, alignment
from scripts.anatomy.embedding.alignment import Kernels
from scripts.anatomy.embedding.parameters import output_embedding
from scripts.anatomy.embedding.views import ModelView, view
from scripts.anatomy.lego_attention_bert import replace_attention
from scripts.anatomy.models import checkpoints
from scripts.anatomy.settings import Heads

ROOT = Path(__file__).parents[2]
D_VOCAB = 70
IDS = torch.arange(D_VOCAB)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def bert(seed: int = 0, *, width: int = 16, layers: int = 3, d_ff: int = 24) -> ModelView:
    """A tiny encoder with random weights, in double precision."""
    config = BertConfig(
        vocab_size=D_VOCAB, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=d_ff, max_position_embeddings=8,
    )  # fmt: skip
    return view(filled(BertModel(config), seed))


def llama(seed: int = 0) -> ModelView:
    """A tiny decoder with gates, shared key heads, and an output embedding of its own."""
    config = LlamaConfig(
        vocab_size=D_VOCAB, hidden_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=20, tie_word_embeddings=False,
    )  # fmt: skip
    return view(filled(LlamaForCausalLM(config), seed))


def filled(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.copy_(noise + 0.3)
    return model


def turned(model: ModelView, seed: int = 5) -> ModelView:
    """The same model in coordinates that are rotated: it computes the same."""
    R = torch.linalg.qr(normal(*[model.W_E.shape[1]] * 2, seed=seed))[0]
    layers = [
        replace(
            layer,
            K={name: rows @ R for name, rows in layer.K.items()},
            V=layer.V @ R,
            W_Q=R.T @ layer.W_Q,
            W_K=R.T @ layer.W_K,
            W_V=R.T @ layer.W_V,
            W_O=layer.W_O @ R,
        )
        for layer in model.layers
    ]
    W_E = model.W_E @ R
    return replace(model, W_E=W_E, W_U=W_E, layers=layers)


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1])


# --- correlations -------------------------------------------------------------------------------


def test_correlations_against_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Correlations equal those of projections onto all tokens."""
    monkeypatch.setattr(alignment, "TOKENS_PER_CHUNK", 32)  # two blocks and a rest
    W_A, W_B = normal(D_VOCAB, 6) + 3, normal(D_VOCAB, 9, seed=1) * normal(9, seed=2) - 1
    for one, other, d_A, d_B in ((W_A, W_B, 6, 9), (W_B, W_A, 9, 6)):
        X, Y = normal(5, d_A, seed=3), normal(4, d_B, seed=4)
        actual = alignment.correlations(X, Y, alignment.kernel(one, other))
        for i in range(5):
            for j in range(4):
                expected = pearson((one @ X[i]).numpy(), (other @ Y[j]).numpy())
                assert float(actual[i, j]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("second", ["alike", "narrow", "decoder"])
def test_scores_of_models_against_projections(second: str) -> None:
    """Scores of groups are means of absolute correlations of projections."""
    A = llama(1) if second == "decoder" else bert(0)
    B = {"alike": bert(1), "narrow": bert(2, width=8, layers=2, d_ff=10), "decoder": llama(2)}[
        second
    ]
    actual = alignment.model_scores(A, B, alignment.kernels(A, B, (IDS, IDS)))
    names = ["K_gate", "K_up"] if second == "decoder" else ["K"]
    assert list(actual) == [*names, "V", "W_Q", "W_K", "W_V", "W_O"]
    for name, S in actual.items():
        assert S.shape == (len(A.layers), len(B.layers))
        for place in np.ndindex(S.shape):
            projected = [
                rows @ (output_embedding(model) if name in ("V", "W_O") else model.W_E).T
                for model, layer in zip((A, B), place, strict=True)
                for rows in [alignment.groups(model.layers[layer])[name].flatten(0, -2)]
            ]
            expected = np.corrcoef(*projected)[: len(projected[0]), len(projected[0]) :]
            assert abs(S[place] - np.abs(expected).mean()) < 1e-8


def test_blocks_hold_the_scores_of_layers() -> None:
    """Blocks hold the scores of each group at its rows and columns."""
    A, B = bert(0), bert(1)
    kernels = alignment.kernels(A, B, (IDS, IDS))
    blocks = alignment.block_scores(A, B, kernels)
    names = [*alignment.groups(A.layers[0])]
    assert blocks.shape == (18, 18)
    for place, (name, S) in enumerate(alignment.model_scores(A, B, kernels).items()):
        assert names[place] == name
        np.testing.assert_allclose(blocks[place::6, place::6], S, rtol=1e-12)
    across = alignment.correlations(A.layers[1].K["key"], B.layers[2].V, kernels.read)
    assert blocks[6, 13] == pytest.approx(float(across.abs().mean()))
    itself = alignment.block_scores(A, turned(A), alignment.kernels(A, turned(A), (IDS, IDS)))
    assert alignment.assign(itself).b.tolist() == [*range(18)]


def test_raw_coordinates_are_the_control() -> None:
    """Raw coordinates score Pearson correlations of the vectors themselves."""
    A, B = bert(0), bert(1)
    actual = alignment.model_scores(A, B, alignment.raw_coordinates(16))["V"]
    for a, b in np.ndindex(actual.shape):
        pairs = [[pearson(x, y) for y in B.layers[b].V] for x in A.layers[a].V]
        assert actual[a, b] == pytest.approx(np.abs(pairs).mean(), abs=1e-10)


def test_a_rotated_copy_is_seen_over_tokens_and_not_in_coordinates() -> None:
    """A rotation changes no score over tokens, but those over raw coordinates."""
    A = bert(0, width=16, layers=6, d_ff=300)
    B = turned(A)
    over_tokens = alignment.model_scores(A, B, alignment.kernels(A, B, (IDS, IDS)))
    itself = alignment.model_scores(A, A, alignment.kernels(A, A, (IDS, IDS)))
    for name, S in over_tokens.items():
        np.testing.assert_allclose(S, itself[name], atol=1e-10)
    one = alignment.correlations(
        A.layers[2].V, B.layers[2].V, alignment.kernels(A, B, (IDS, IDS))[0]
    )
    torch.testing.assert_close(one.diagonal(), torch.ones(300, dtype=torch.float64))
    apart = alignment.correlations(A.layers[2].V, B.layers[2].V, alignment.raw_coordinates(16)[0])
    assert apart.diagonal().abs().mean() < 0.4
    rng = seeding.numpy_generator(0, "test")
    assert alignment.summary(over_tokens, rng, 100)["all"]["right_share"] == 1


def test_permuted_layers_are_matched() -> None:
    """Layers in another order are matched with their originals."""
    A = bert(0, layers=5)
    order = [3, 0, 4, 2, 1]
    B = replace(turned(A), layers=[turned(A).layers[number] for number in order])
    scores = alignment.model_scores(A, B, alignment.kernels(A, B, (IDS, IDS)))
    for S in scores.values():
        assert [order[b] for b in alignment.assign(S).b] == [*range(5)]


def test_zero_vectors_correlate_zero() -> None:
    """A vector of zeros correlates 0, not NaN."""
    X = torch.cat([torch.zeros(1, 6, dtype=torch.float64), normal(2, 6)])
    W = normal(D_VOCAB, 6)
    actual = alignment.correlations(X, X, alignment.kernel(W, W))
    assert actual.isfinite().all()
    assert (actual[0] == 0).all()
    assert float(actual[1, 1]) == pytest.approx(1)


def test_single_precision_is_enough_for_scores() -> None:
    """Scores in single precision agree with double precision."""
    A, B = bert(0), bert(1)

    def single(model: ModelView) -> ModelView:
        def of(part: Tensor) -> Tensor:
            return part.float()

        layers = [
            replace(
                layer, K={n: of(k) for n, k in layer.K.items()}, V=of(layer.V), W_Q=of(layer.W_Q),
                W_K=of(layer.W_K), W_V=of(layer.W_V), W_O=of(layer.W_O),
            )
            for layer in model.layers
        ]  # fmt: skip
        return replace(model, W_E=of(model.W_E), W_U=None, layers=layers)

    double = alignment.model_scores(A, B, alignment.kernels(A, B, (IDS, IDS)))
    A, B = single(A), single(B)
    for name, S in alignment.model_scores(A, B, alignment.kernels(A, B, (IDS, IDS))).items():
        np.testing.assert_allclose(S, double[name], rtol=1e-5)


def test_controls_differ_in_one_respect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each control differs from the alignment in one respect only."""
    A, B = bert(0), turned(bert(0))
    actual = {
        (name, seed): kernels
        for name, seed, kernels in alignment.controls(A, B, (IDS, IDS), [0, 1])
    }
    assert list(actual) == [
        ("features", None),
        ("identity", None),
        ("shuffled", 0),
        ("shuffled", 1),
    ]
    x, y = A.layers[0].V[:1], B.layers[1].V[:1]
    same = alignment.correlations(x, y, actual["identity", None].read)
    assert float(same) == pytest.approx(pearson(A.W_E @ x[0], A.W_E @ y[0]))
    assert not torch.equal(actual["shuffled", 0].read.AB, actual["shuffled", 1].read.AB)
    itself = alignment.kernels(A, B, (IDS, IDS)).read
    for seed in (0, 1):
        torch.testing.assert_close(actual["shuffled", seed].read.B, itself.B)
    wide = alignment.controls(A, bert(0, width=8), (IDS, IDS), [0])
    assert [name for name, *_ in wide] == ["shuffled"]


def test_the_score_of_random_vectors() -> None:
    """The score of random vectors follows from the width and shared directions."""
    W = normal(2000, 40)
    draw = torch.Generator().manual_seed(0)
    alike = alignment.chance(alignment.kernel(W, W), draw)
    assert alike == pytest.approx(math.sqrt(2 / math.pi / 40), rel=0.05)
    W[:, 0] *= 30  # one direction that all vectors share
    assert alignment.chance(alignment.kernel(W, W), draw) > 0.7


# --- matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 1), (1, 4)])
def test_assignment_and_margin_against_all_assignments(shape: tuple[int, int]) -> None:
    """The best assignment and its margins equal those of an exhaustive search."""
    S = np.random.default_rng(sum(shape)).random(shape)
    wide = S if shape[0] <= shape[1] else S.T
    sums = {
        order: wide[range(len(wide)), order].sum()
        for order in permutations(range(wide.shape[1]), len(wide))
    }
    best = max(sums, key=sums.get)
    actual = alignment.assign(S)
    pairs = {*zip(actual.a.tolist(), actual.b.tolist(), strict=True)}
    expected = {*enumerate(best)} if shape[0] <= shape[1] else {(b, a) for a, b in enumerate(best)}
    assert pairs == expected
    for a, b, margin in zip(*actual, strict=True):
        row, column = (a, b) if shape[0] <= shape[1] else (b, a)
        others = [total for order, total in sums.items() if order[row] != column]
        if others:
            assert margin == pytest.approx(sums[best] - max(others))
        else:
            assert math.isnan(margin)


def test_centring_takes_out_what_a_layer_has_with_all() -> None:
    """Centring leaves what is specific to a pair of layers."""
    S = np.add.outer([0.0, 1.0, 5.0], [2.0, 0.0, 1.0])
    specific = np.eye(3)
    assert np.abs(alignment.centred(S)).max() < 1e-12
    np.testing.assert_allclose(alignment.centred(S + specific), specific - 1 / 3)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((3, 3), ([0, 1, 2], [0, 1, 2])),
        ((6, 3), ([1, 3, 5], [0, 1, 2])),
        ((3, 12), ([0, 1, 2], [3, 7, 11])),
        ((2, 5), ([0, 1], [1, 4])),
    ],
)
def test_the_same_depth(layers: tuple[int, int], expected: tuple[list[int], list[int]]) -> None:
    """Layers of the same relative depth end with the last ones."""
    actual = alignment.same_depth(*layers)
    assert tuple(part.tolist() for part in actual) == expected


def test_p_values() -> None:
    """The p values are exact for few layers and uniform for random scores."""
    rng = seeding.numpy_generator(0, "test")
    assert alignment.p_value(np.eye(4), rng) == pytest.approx(1 / 24)  # of all 24
    assert alignment.p_value(np.eye(12), rng, draws=500) == pytest.approx(1 / 501)
    assert alignment.p_value(np.zeros((4, 4)), rng) == 1
    assert alignment.p_value(1 - np.eye(12), rng, draws=500) == 1
    assert alignment.p_value(np.eye(6)[[1, 3, 5]], rng) == pytest.approx(1 / 120)
    draws = [
        alignment.p_value(np.random.default_rng(n).random((12, 12)), rng, draws=99)
        for n in range(200)
    ]
    assert np.mean(np.array(draws) <= 0.1) == pytest.approx(0.1, abs=0.06)


def test_records_of_groups_and_of_all() -> None:
    """Records by group and over all groups have the expected numbers."""
    scores = {"K": np.eye(3), "V": np.eye(3)[[1, 0, 2]]}
    actual = alignment.summary(scores, seeding.numpy_generator(0, "test"), 100)
    assert actual["K"] | {"margin": 0} == {
        "mean": pytest.approx(1 / 3), "matched": 1, "contrast": pytest.approx(2 / 3),
        "same_depth": 1, "same_depth_contrast": pytest.approx(2 / 3), "right": 3, "right_share": 1,
        "right_centred": 3, "margin": 0, "p": pytest.approx(1 / 6),
    }  # fmt: skip
    assert (actual["V"]["right"], actual["V"]["same_depth"]) == (1, pytest.approx(1 / 3))
    assert actual["all"]["right"] == 4
    assert actual["all"]["right_share"] == pytest.approx(4 / 6)
    assert actual["all"]["right_centred"] == 4
    table = [*alignment.rows(scores)]
    assert len(table) == 18
    matched = [(r["layer_a"], r["layer_b"]) for r in table if r["group"] == "V" and r["matched"]]
    assert matched == [(0, 1), (1, 0), (2, 2)]
    assert all(math.isnan(r["margin"]) != r["matched"] for r in table)


def test_wide_scores_are_matched_with_and_without_what_layers_share() -> None:
    """Scores of unequal depths are matched with and without centring."""
    S = np.eye(6)[:, [1, 3, 5]]
    S[0] += 5
    rng = seeding.numpy_generator(0, "test")
    record = alignment.summary({"V": S}, rng, 1000)["V"]
    assert (record["right"], record["right_centred"]) == (2, 3)
    table = pd.DataFrame(alignment.rows({"V": S}))
    for column, layers in (("matched", {0}), ("matched_centred", {1})):
        assert layers <= {*table[table[column]]["layer_a"]}


def test_summaries_subtract_the_controls() -> None:
    """Summaries subtract each control, and the first step from the last."""

    def summaries(level: float) -> dict[str, dict[str, float]]:
        record = dict.fromkeys(aggregation.CONTROLLED, level)
        return {"K": record, "all": record | {"mean": 2 * level}}

    actual = aggregation.aligned(
        {"embedding": summaries(5.0), "features": summaries(2.0)}, [summaries(1.0), summaries(0.5)]
    )
    assert actual["above_features"]["all"]["mean"] == 6
    assert actual["above_shuffled"]["K"]["matched"] == [4, 4.5]
    assert actual["shuffled"]["all"]["mean"] == [2, 1]
    assert "above_features" not in aggregation.aligned(
        {"embedding": summaries(1.0)}, [summaries(1.0)]
    )
    rows = [
        {"step": step, "seed_a": 0, "seed_b": other, "measure": measure, "group": group} | record
        for step in (0, 10, 500)
        for other in (1, 2)
        for measure, factor in (("embedding", 1), ("features", 0.5), ("shuffled", 0))
        for group, record in summaries(factor * (step + other)).items()
    ]
    over = aggregation.over_training(pd.DataFrame(rows))
    assert over["steps"] == {"first": 0, "last": 500}
    assert over["last"]["embedding"]["K"]["contrast"] == [501, 502]
    assert over["gain"]["embedding"]["all"]["mean"] == [1000, 1000]
    assert over["above_features"]["K"]["right_share"] == [250.5, 251]
    assert over["above_shuffled"]["K"]["right_share"] == [501, 502]


def test_published_matches_recur_up_to_rounding() -> None:
    """Published matches recur if scores differ by no more than rounding."""
    S = np.eye(4)
    assert alignment.agreement(S, [0, 1, 2, 3]) == 1
    assert alignment.agreement(S, [1, 0, 2, 3]) == 0.5
    S[:2, :2] = [[1, 1], [1, 1 + 5e-5]]
    assert alignment.agreement(S, [1, 0, 2, 3]) == 1
    with pytest.raises(ValueError, match=r"\[0, 1\] matches no 4 x 4 layers"):
        alignment.agreement(S, [0, 1])
    with pytest.raises(ValueError, match="matches no 4 x 4 layers"):
        alignment.agreement(S, [0, 1, 2, 4])


def test_published_numbers_are_those_of_the_figure() -> None:
    """The published assignments in the overlay have 58 matches on the diagonal."""
    overlay = yaml.safe_load((ROOT / "config/multiberts.yaml").read_text("utf-8"))
    published = overlay["embedding"]["alignment"]["pairs"]["multiberts"]["published"]
    right = {
        measure: {name: sum(a == b for a, b in enumerate(order)) for name, order in groups.items()}
        for measure, groups in published.items()
    }
    for groups in published.values():
        assert list(groups) == ["K", "V", "W_K", "W_Q", "W_V", "W_O"]
        assert all(sorted(order) == [*range(12)] for order in groups.values())
    assert [*right["embedding"].values()] == [12, 10, 12, 8, 6, 10]
    assert sum(right["embedding"].values()) == 58
    assert sum(right["features"].values()) == 5


# --- vocabularies -------------------------------------------------------------------------------


def test_shared_ids() -> None:
    """Shared ids are those of the same tokens, with an offset if given."""
    words = "a b c d e".split()
    for there, offset in ((words, 0), (["x", "y", *words, "z"], 2), ([*words, "new"], 0)):
        one, other = alignment.shared_ids(words, there, offset)
        assert [there[i] for i in other] == [words[i] for i in one] == words


@pytest.mark.parametrize(
    ("there", "offset", "message"),
    [
        (
            ["a", "x", "c"],
            0,
            "2 of 4 ids of a are not the same tokens in b: 1 ('b', there 'x'), 3 ",
        ),
        (["a", "b", "c"], 0, "1 of 4 ids of a are not the same tokens in b: 3 ('d', not there)"),
        (
            list("abcd"),
            1,
            "4 of 4 ids of a plus 1 are not the same tokens in b: 0 ('a', there 'b')",
        ),
        (list("xabcd"), 0, ", ..."),
    ],
)
def test_vocabularies_that_differ(there: list[str], offset: int, message: str) -> None:
    """Vocabularies that differ are refused."""
    with pytest.raises(ValueError, match="the vocabularies differ: ") as caught:
        alignment.shared_ids(list("abcd"), there, offset)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_singular_embedding_is_refused() -> None:
    """An embedding without full rank is refused."""
    W, other = normal(D_VOCAB, 6), normal(D_VOCAB, 6, seed=1)
    both = alignment.kernel(W, other)
    actual = alignment.conditions(Kernels(both, both))
    for side, E in (("a", W), ("b", other)):
        assert actual[side] == pytest.approx(float(torch.linalg.cond(E - E.mean(dim=0))))
    other[:, 5] = other[:, 0] + other[:, 1]
    worse = alignment.kernel(W, other)
    message = r"the embedding of b, in 6 dimensions, is singular \(condition number .*\): vectors"
    with pytest.raises(ValueError, match=message):
        alignment.conditions(Kernels(both, worse))


# --- checkpoints --------------------------------------------------------------------------------


def pretrained(folder: Path, heads: Heads, seed: int = 0) -> tuple[Path, Path]:
    """Configuration and checkpoints as the pretraining study leaves them, of three steps."""
    config = BertConfig(
        vocab_size=D_VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=8, pad_token_id=0,
    )  # fmt: skip
    model = BertForMaskedLM(config)
    replace_attention(model, heads=heads, window=3)
    kept = []
    for step in range(3):
        filled(model, seed + step)
        kept.append({name: p.detach().clone() for name, p in model.named_parameters()})
    model.save_pretrained(folder)
    stacked = {name: torch.stack([part[name] for part in kept]) for name in kept[0]}
    file = folder / "checkpoints.safetensors"
    artifacts.write_tensors(file, {"step": torch.tensor([0, 5, 50]), **stacked})
    return folder / "config.json", file


def test_a_checkpoint_is_the_model_at_its_step(tmp_path: Path) -> None:
    """A model at a checkpoint has the weights of that step."""
    files = pretrained(tmp_path, Heads(learned=4))
    assert checkpoints.steps(files[1]) == [0, 5, 50]
    stored = artifacts.read_tensors(files[1], framework="torch")
    for place in range(3):
        actual = view(checkpoints.model_at(*files, place))
        fused = stored["bert.encoder.layer.1.attention.self.mixing.W_QKV.weight"][place].float()
        parts = [matrix.movedim(0, 1).flatten(1).T for matrix in (
            actual.layers[1].W_Q, actual.layers[1].W_K, actual.layers[1].W_V
        )]  # fmt: skip
        torch.testing.assert_close(torch.cat(parts), fused)
        output = stored["bert.encoder.layer.0.attention.self.mixing.W_O.weight"][place].float()
        torch.testing.assert_close(actual.layers[0].W_O.flatten(0, 1).T, output)
        values = stored["bert.encoder.layer.0.output.dense.weight"][place].float()
        torch.testing.assert_close(actual.layers[0].V.T, values)


def test_a_checkpoint_computes_what_the_model_did(tmp_path: Path) -> None:
    """A stored checkpoint computes what the model computed."""
    config = BertConfig(
        vocab_size=D_VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=8, pad_token_id=0,
    )  # fmt: skip
    model = BertForMaskedLM(config).eval()
    replace_attention(model, heads=Heads(learned=4))
    model.save_pretrained(tmp_path)
    tensors = {name: p.detach()[None] for name, p in model.named_parameters()}
    artifacts.write_tensors(tmp_path / "c.safetensors", {"step": torch.tensor([7]), **tensors})
    plain = checkpoints.model_at(tmp_path / "config.json", tmp_path / "c.safetensors", 0)
    ids = torch.randint(1, D_VOCAB, (2, 8), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        plain(ids).last_hidden_state, model.bert(ids).last_hidden_state, atol=1e-5, rtol=1e-4
    )


def test_checkpoints_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Checkpoints with heads that are not learned, and damaged ones, are refused."""
    mixed = pretrained(tmp_path / "mixed", Heads(learned=2, association=2))
    with pytest.raises(ValueError, match="only learned heads"):
        checkpoints.model_at(*mixed, 0)
    config, file = pretrained(tmp_path / "base", Heads(learned=4))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UnreadableArtifact, match="checkpoints.safetensors: has no readable"):
        checkpoints.model_at(config, file, 0)
