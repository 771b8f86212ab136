"""Robustness, related pairs and hidden states against plain loops over tiny random models."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from scripts.anatomy.embedding import hidden_states, parameter_similarity, robustness
from scripts.anatomy.embedding.hidden_states import Readings
from scripts.anatomy.embedding.index import TopLists
from scripts.anatomy.embedding.parameters import output_embedding, parameter_lists
from scripts.anatomy.embedding.projection import dual
from scripts.anatomy.embedding.views import view

D_VOCAB = 60


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- robustness ---------------------------------------------------------------------------------


def keep_k(scores: list[float], k: int) -> np.ndarray:
    """The k coordinates of largest absolute value, and zeros."""
    kept = sorted(range(len(scores)), key=lambda i: -abs(scores[i]))[:k]
    return np.array([score if i in kept else 0 for i, score in enumerate(scores)])


def test_right_inverse_keeps_everything_when_all_is_kept() -> None:
    """With all coordinates kept, the right inverse keeps every inner product."""
    actual = robustness.inner_products_kept(normal(20, 8), normal(D_VOCAB, 8), [3, D_VOCAB])
    last = {record["inverse"]: record for record in actual if record["k"] == D_VOCAB}
    assert last["E+"]["cosine"] == pytest.approx(1, abs=1e-6)
    assert last["E+"]["cosine_with_diagonal"] == pytest.approx(1, abs=1e-6)
    assert last["E^T"]["cosine"] < 0.999


@pytest.mark.parametrize("sparse", [0.0, 0.5])
@pytest.mark.parametrize("columns", [16, 8192])
def test_robustness_against_a_plain_loop(
    sparse: float, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inner products equal those of a loop, with sparse or dense multiplication."""
    monkeypatch.setattr(robustness, "SPARSE", sparse)
    monkeypatch.setattr(robustness, "COLUMNS_PER_CHUNK", columns)
    X, W_E = normal(10, 8).double(), normal(D_VOCAB, 8, seed=1).double()
    actual = iter(robustness.inner_products_kept(X, W_E, [1, 5, 40]))
    for right in (X, dual(X, W_E)):
        for k in (1, 5, 40):
            record = next(actual)
            pairs = []
            for i in range(10):
                for j in range(10):
                    one, other = (keep_k((W_E @ v).tolist(), k) for v in (X[i], right[j]))
                    pairs.append((i == j, (X[i] @ X[j]).item(), one @ other))
            for name, kept in (
                ("cosine", [p for p in pairs if not p[0]]),
                ("cosine_with_diagonal", pairs),
            ):
                true, cut = np.array([p[1:] for p in kept]).T
                expected = true @ cut / np.linalg.norm(true) / np.linalg.norm(cut)
                assert record[name] == pytest.approx(expected, rel=1e-9)
            assert record["k"] == k


def test_transpose_beats_the_inverse_for_few_coordinates_only() -> None:
    """With decaying singular values E^T is ahead for few coordinates only (Appendix A)."""
    actual = robustness.inner_products_kept(normal(60, 64), normal(2000, 64, seed=1), [40, 1900])
    cosine = {(record["inverse"], record["k"]): record["cosine"] for record in actual}
    # E's spectrum is flat here, so that the inverse is nearly the transpose: give it a decaying one
    scale = torch.linspace(0.02, 1, 64)
    uneven = robustness.inner_products_kept(
        normal(60, 64), normal(2000, 64, seed=1) * scale, [40, 1900]
    )
    decayed = {(record["inverse"], record["k"]): record["cosine"] for record in uneven}
    assert cosine["E+", 40] == pytest.approx(cosine["E^T", 40], abs=0.1)
    assert decayed["E^T", 40] > decayed["E+", 40] + 0.2
    assert decayed["E^T", 1900] < decayed["E+", 1900]


def test_huge_vectors_do_not_overflow() -> None:
    """Vectors with large entries have finite similarities."""
    X = normal(10, 8)
    plain, huge = (
        robustness.inner_products_kept(vectors, normal(D_VOCAB, 8, seed=1), [30])
        for vectors in (X, X * 1e15)
    )
    assert huge[0]["cosine"] == pytest.approx(plain[0]["cosine"], rel=1e-5)


def test_samples_are_different_rows() -> None:
    """Sampled rows are distinct."""
    matrices = [torch.arange(3.0)[:, None], torch.arange(3.0, 10)[:, None]]
    draw = torch.Generator().manual_seed(0)
    assert sorted(robustness.sample_rows(matrices, 10, draw).flatten().tolist()) == list(range(10))
    assert len(set(robustness.sample_rows(matrices, 6, draw).flatten().tolist())) == 6
    with pytest.raises(ValueError, match="a sample of 11 from 10 vectors"):
        robustness.sample_rows(matrices, 11, draw)


@pytest.mark.parametrize(
    ("n", "ks", "message"), [(1, [3], "at least two vectors"), (4, [3, 61], "between 1 and 60")]
)
def test_robustness_of_nothing_is_refused(n: int, ks: list[int], message: str) -> None:
    """Robustness without vectors or coordinates is refused."""
    with pytest.raises(ValueError, match=message):
        robustness.inner_products_kept(normal(n, 8), normal(D_VOCAB, 8), ks)


# --- related pairs ------------------------------------------------------------------------------


def lists(ids_high: np.ndarray, heads: int = 0) -> TopLists:
    """Lists of which only the high side matters; of `heads` heads, or of a feed-forward block."""
    n, k = ids_high.shape
    size = n // heads if heads else n
    high = np.broadcast_to(np.arange(k, 0, -1.0), (n, k))
    return TopLists(
        head=np.arange(n) // size if heads else np.full(n, -1),
        index=np.arange(n) % size,
        norm=np.ones(n),
        ids_high=ids_high,
        scores_high=high,
        ids_low=ids_high + 1000,
        scores_low=-high,
    )


def draw_ids(n: int, k: int, seed: int, d_vocab: int = 20) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(d_vocab, k, replace=False) for _ in range(n)], dtype=np.uint16)


def test_jaccard_against_sets() -> None:
    """The Jaccard index equals that of Python's sets."""
    one, other = draw_ids(50, 8, 0), draw_ids(50, 8, 1)
    expected = [len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(one, other, strict=True)]
    assert parameter_similarity.jaccard(one, other).tolist() == expected


@pytest.mark.parametrize("signed", [True, False])
def test_pairs_that_were_planted(signed: bool) -> None:
    """Planted pairs have their known similarity, shuffled pairs almost none."""
    ids = draw_ids(200, 6, 0, d_vocab=500)
    half = np.where(np.arange(6) < 3, ids, ids + 500)  # 3 of 6 shared: 3 of 9 in the union
    layer = {"K_gate": lists(ids), "K_up": lists(half), "V": lists(ids)}
    draw = np.random.default_rng(0)
    actual = {
        r["pair"]: r for r in parameter_similarity.pair_similarities(layer, draw, signed=signed)
    }
    assert actual["K_gate-V"]["similarity"] == 1 and actual["K_gate-V"]["error"] == 0
    assert actual["K_up-V"]["similarity"] == pytest.approx(1 / 3)
    assert actual["K_gate-K_up"]["similarity"] == pytest.approx(1 / 3)
    assert 0 < actual["K_gate-V"]["shuffled"] < 0.05
    first = {
        r["pair"]: r
        for r in parameter_similarity.pair_similarities(layer, draw, k=3, signed=signed)
    }
    assert first["K_up-V"]["similarity"] == 1
    with pytest.raises(ValueError, match="k = 7: the index holds the 6 top tokens"):
        parameter_similarity.pair_similarities(layer, draw, k=7)


def test_absolute_similarity_takes_both_ends() -> None:
    """With absolute values, a vector and its negative are alike."""
    high, low = draw_ids(4, 5, 0), draw_ids(4, 5, 1) + 100
    scores = np.broadcast_to(np.array([5.0, 4, 3, 2, 1]), (4, 5))
    plus = TopLists(np.full(4, -1), np.arange(4), np.ones(4), high, scores, low, scores - 0.5)
    minus = TopLists(np.full(4, -1), np.arange(4), np.ones(4), low, scores - 0.5, high, scores)
    layer, draw = {"K": plus, "V": minus}, np.random.default_rng(0)
    assert parameter_similarity.pair_similarities(layer, draw)[0]["similarity"] == 1
    assert parameter_similarity.pair_similarities(layer, draw, signed=True)[0]["similarity"] == 0


def test_shared_key_heads_are_paired_with_each_of_their_queries() -> None:
    """With grouped queries each query head is paired with its own key head."""
    keys = draw_ids(6, 5, 0, d_vocab=500)  # two key heads of three, for four query heads
    queries = np.concatenate([keys[:3], keys[:3], keys[3:], keys[3:]])
    layer = {"W_Q": lists(queries, heads=4), "W_K": lists(keys, heads=2)}
    layer |= {"W_V": lists(keys, heads=2), "W_O": lists(queries, heads=4)}
    actual = parameter_similarity.pair_similarities(layer, np.random.default_rng(0))
    assert [(r["pair"], r["similarity"], r["pairs"]) for r in actual] == [
        ("W_V-W_O", 1, 12),
        ("W_Q-W_K", 1, 12),
    ]


def test_paired_lists_are_side_by_side() -> None:
    """The lists of a pair lie beside each other."""
    keys, queries = lists(draw_ids(6, 5, 0), heads=2), lists(draw_ids(12, 5, 1), heads=4)
    one, other = parameter_similarity.paired(queries, keys)
    assert one.head.tolist() == np.repeat([0, 1, 2, 3], 3).tolist()
    assert other.head.tolist() == np.repeat([0, 0, 1, 1], 3).tolist()
    assert one.index.tolist() == other.index.tolist() == [0, 1, 2] * 4


def test_published_shuffle_stays_inside_head_0() -> None:
    """The published shuffle of W_Q and W_K stays within head 0."""
    ids = np.zeros((12, 4), dtype=int) + np.arange(4)  # three heads of four sub-heads
    ids += 10 * (np.arange(12) // 4)[:, None]  # alike in a head, disjoint between heads
    layer = {"W_Q": lists(ids, heads=3), "W_K": lists(ids, heads=3)}
    layer |= {"W_V": lists(ids, heads=3), "W_O": lists(ids, heads=3)}
    for shuffle, expected in (("published", 1.0), ("layer", 4 / 12)):
        shuffled = [
            parameter_similarity.pair_similarities(
                layer, np.random.default_rng(seed), shuffle=shuffle
            )
            for seed in range(100)
        ]
        mean = {i: np.mean([actual[i]["shuffled"] for actual in shuffled]) for i in range(2)}
        assert mean[0] == pytest.approx(4 / 12, abs=0.05)  # W_V and W_O: all of the layer
        assert mean[1] == pytest.approx(expected, abs=0.05)


# --- hidden states ------------------------------------------------------------------------------

SIZES = {"vocab_size": D_VOCAB, "max_position_embeddings": 32}
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=D_VOCAB, n_positions=32, n_embd=12, n_head=3, n_layer=3)
    ),
    "bert": lambda: BertForMaskedLM(
        BertConfig(
            **SIZES,
            hidden_size=12,
            num_attention_heads=3,
            num_hidden_layers=3,
            intermediate_size=20,
        )
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            hidden_size=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=3,
            intermediate_size=20,
        )
    ),
    "opt": lambda: OPTForCausalLM(
        OPTConfig(
            **SIZES,
            hidden_size=12,
            word_embed_proj_dim=12,
            num_attention_heads=3,
            num_hidden_layers=3,
            ffn_dim=20,
        )
    ),
}


def build(name: str):
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return model


def documents(*lengths: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(D_VOCAB, (n,), generator=draw) for n in lengths]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_activations_are_the_coefficients_of_the_rows(name: str) -> None:
    """Recorded activations are the coefficients of the parameter rows."""
    model, tokens = build(name), documents(9)[0]
    actual, seen = hidden_states.activations(model, tokens), view(model)
    reported = model(input_ids=tokens[None], output_hidden_states=True).hidden_states
    assert len(actual.states) == len(actual.attention) == len(actual.feed_forward) == 3
    for layer in range(2):  # what the library reports last is after the final norm
        torch.testing.assert_close(actual.states[layer], reported[layer + 1][0])
    if name == "bert":
        return
    for layer in range(3):  # pre-norm: what a layer adds is the coefficients times the rows
        of = seen.layers[layer]
        added = actual.attention[layer] @ of.W_O.flatten(0, 1) + of.b_O
        added = added + actual.feed_forward[layer] @ of.V + of.b_out
        expected = actual.states[layer] - reported[layer][0]
        torch.testing.assert_close(added, expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def slow_overlaps(model, texts: list[Tensor], k: int, m: int, skip: int, published: bool):
    """R_k of every token, group and target: (layer, group, target) to a list, with sets."""
    seen, norm = view(model), hidden_states.final_norm(model)
    W_U = output_embedding(seen)
    gated = "gate" in seen.layers[0].K
    scores: dict[tuple, list[float]] = {}
    for text in texts:
        actual = hidden_states.activations(model, text)
        for t in range(skip, len(text)):
            tops = [(norm(s[t]) @ W_U.T).topk(k).indices.tolist() for s in actual.states]
            for layer, of in enumerate(seen.layers):
                heads, d_head = len(of.W_Q), of.W_Q.shape[2]
                rows = {"W_O": of.W_O.flatten(0, 1)}
                rows["W_V"] = torch.stack(
                    [of.W_V[seen.kv_head(h)][:, j] for h in range(heads) for j in range(d_head)]
                )
                keys = {"K" if n == "key" else f"K_{n}": r for n, r in of.K.items()}
                for group, vectors in {**rows, **keys, "V": of.V}.items():
                    attention = group in rows
                    c = (actual.attention if attention else actual.feed_forward)[layer][t].tolist()
                    size = not published and (attention or gated)
                    best = sorted(range(len(c)), key=lambda i: -(abs(c[i]) if size else c[i]))[:m]
                    union = set()
                    for i in best:
                        turned = size and c[i] < 0 and group not in ("K", "K_gate")
                        E = W_U if group in ("V", "W_O") else seen.W_E
                        projected = E @ vectors[i] * (-1 if turned else 1)
                        union |= set(projected.topk(k).indices.tolist())
                    for target, top in (("same", tops[layer]), ("last", tops[-1])):
                        value = len(union & set(top)) / k
                        scores.setdefault((layer, group, target), []).append(value)
    return scores


@torch.no_grad()
def index_of(model, k: int) -> dict[int, dict[str, TopLists]]:
    actual: dict[int, dict[str, TopLists]] = {}
    for layer, group, of_group in parameter_lists(view(model), k=k):
        actual.setdefault(layer, {})[group] = of_group
    return actual


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_overlaps_against_a_plain_loop(name: str, published: bool) -> None:
    """Overlaps equal those of a loop over tokens and layers."""
    model, texts = build(name), documents(7, 1, 12)
    m = 8 if name == "bert" else 3  # so many that GELU's small negative values are among them
    readings = hidden_states.read_documents(
        model, texts, output_embedding(view(model)), k=6, m=m, skip=1, published=published
    )
    assert readings.document.tolist() == [0] * 6 + [2] * 11
    draw = np.random.default_rng(0)
    baseline = hidden_states.other_document(readings.document, draw)
    expected = slow_overlaps(model, texts, 6, m, 1, published)
    records = [
        record
        for layer, groups in index_of(model, 6).items()
        for record in hidden_states.overlaps(readings, layer, groups, baseline)
    ]
    assert {(r["layer"], r["group"], r["target"]) for r in records} == set(expected)
    for record in records:
        values = expected[record["layer"], record["group"], record["target"]]
        assert record["aligned"] == pytest.approx(np.mean(values))


def test_overlap_against_sets() -> None:
    """The overlap counts each shared token once, for each state."""
    union, targets = draw_ids(600, 9, 0, 30), draw_ids(600, 5, 1, 30)
    union[:, 5:] = union[:, :4]
    expected = [len({*u} & {*t}) / 5 for u, t in zip(union, targets, strict=True)]
    assert hidden_states.overlap(union, targets).tolist() == pytest.approx(expected)


@torch.no_grad()
def test_only_allowed_tokens_are_targets() -> None:
    """Only allowed tokens are scored."""
    model, allowed = build("gpt2"), torch.arange(D_VOCAB) % 3 == 0
    W_E = view(model).W_E
    actual = hidden_states.read_documents(model, documents(5, 6), W_E, k=4, m=2, allowed=allowed)
    state = hidden_states.activations(model, documents(5, 6)[0]).states[1][2]
    scores = hidden_states.final_norm(model)(state) @ W_E.T
    expected = scores.masked_fill(~allowed, -math.inf).topk(4).indices
    assert actual.targets[1, 1].tolist() == expected.tolist()


def test_random_states_come_from_every_other_document() -> None:
    """Baseline states come from every other document."""
    document = np.repeat([0, 1, 2], [2, 5, 3])
    seen = set()
    for seed in range(200):
        pairs = hidden_states.other_document(document, np.random.default_rng(seed))
        assert pairs["attention"] is pairs["feed_forward"]
        assert pairs["attention"].active.tolist() == list(range(10))
        seen |= set(enumerate(pairs["attention"].target.tolist()))
    different = {(i, j) for i in range(10) for j in range(10) if document[i] != document[j]}
    assert seen == different
    with pytest.raises(ValueError, match="at least two"):
        hidden_states.other_document(np.zeros(4, dtype=int), np.random.default_rng(0))


def test_published_baseline_scores_the_first_thousand_tokens() -> None:
    """The published baseline scores the first thousand tokens."""
    document = np.repeat(np.arange(30), 100)
    actual = hidden_states.published_baseline(document, np.random.default_rng(0))
    for pairs in actual.values():
        assert pairs.target.tolist() == list(range(1000))
    assert sorted(actual["attention"].active.tolist()) == list(range(1000))
    assert actual["feed_forward"].active.max() > 2500


def test_errors_of_means_are_over_documents() -> None:
    """Standard errors of means are computed over documents."""
    rng, sizes = np.random.default_rng(0), [40] * 50
    document = np.repeat(np.arange(50), sizes)
    of_document = rng.normal(size=50)
    assert hidden_states.mean_error(of_document[document], document) == pytest.approx(
        of_document.std(ddof=1) / math.sqrt(50)
    )
    assert math.isnan(hidden_states.mean_error(np.ones(4), np.zeros(4, dtype=int)))


def test_planted_overlap() -> None:
    """A planted overlap is 1, that of random states 0."""
    # token t of two documents has the active vector t and the hidden state of its list
    ids = np.arange(8 * 3).reshape(8, 3)
    active = hidden_states.Active(np.arange(8).reshape(8, 1, 1), np.zeros((8, 1, 1), dtype=bool))
    readings = Readings(
        layers=(0,),
        document=np.repeat([0, 1], 4),
        targets=ids[:, None, :],
        last=ids,
        active={"feed_forward": active, "attention": active},
        widths={"feed_forward": 8, "attention": 8},
    )
    baseline = hidden_states.other_document(readings.document, np.random.default_rng(0))
    for record in hidden_states.overlaps(readings, 0, {"V": lists(ids)}, baseline):
        assert record["aligned"] == 1 and record["random"] == 0 and record["tokens"] == 8


def test_some_layers_are_read_as_all_are() -> None:
    """Reading some layers gives their rows of reading all layers."""
    model, texts = build("llama"), documents(7, 9)
    actual = [
        hidden_states.read_documents(model, texts, view(model).W_E, k=6, layers=layers)
        for layers in (None, [0, 2])
    ]
    baseline = hidden_states.other_document(actual[0].document, np.random.default_rng(0))
    groups = index_of(model, 6)
    for layer in (0, 2):
        one, other = (hidden_states.overlaps(r, layer, groups[layer], baseline) for r in actual)
        assert one == other


def test_nothing_to_read_is_refused() -> None:
    """Documents without any position to read are refused."""
    model = build("gpt2")
    with pytest.raises(ValueError, match="no document has a token after its first 1"):
        hidden_states.read_documents(model, documents(1, 1), view(model).W_E, k=4)
    with pytest.raises(ValueError, match="m = 100: there are 12 vectors"):
        hidden_states.read_documents(model, documents(3), view(model).W_E, k=4, m=100)


def test_sampled_states_leave_out_first_positions() -> None:
    """Sampled hidden states leave out the first positions."""
    model, texts = build("gpt2"), documents(6, 9)
    draw = torch.Generator().manual_seed(0)
    actual = hidden_states.sample_states(model, texts, draw, per_document=10)
    assert len(actual) == 20
    outputs = [hidden_states.activations(model, text).states for text in texts]
    rest = {tuple(row) for states in outputs for s in states for row in s[1:].tolist()}
    assert {tuple(row) for row in actual.tolist()} <= rest
