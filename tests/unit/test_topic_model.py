"""The models compared with their definition, computed position by position."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel as LibraryBert

from scripts.anatomy.models import loading
from scripts.anatomy.topic import corpora, experiment, theory
from scripts.anatomy.topic.bert import TopicBert, save_for_transformers
from scripts.anatomy.topic.corpora import END, FIRST_WORD, MASK, PAD, START
from scripts.anatomy.topic.masking import MaskedBatch, mask
from scripts.anatomy.topic.model import TopicTransformer, objective
from scripts.anatomy.topic.settings import (
    BertModelSettings,
    CompactModelSettings,
    InitSettings,
    TopicMaskingSettings,
    TopicVariantSettings,
)
from scripts.anatomy.training import RunState

WORDS = 8
D_VOCAB = WORDS + FIRST_WORD
DOCUMENTS = [  # ragged, with repeated words
    [START, 4, 4, 9, 11, 4, 5, END],
    [START, 7, END],
    [6, 6, 6, 10, 8],
    [START, 11, 10, 9, 8, 7, 6, 5, 4, END],
]


class DoubleBatch(MaskedBatch):
    """A batch whose counts have double precision, for exact comparisons."""

    def counts(self, d_vocab: int) -> Tensor:
        return super().counts(d_vocab).double()


def batch(context: str = "visible", *, seed: int = 0, double: bool = False) -> MaskedBatch:
    """The documents above, masked."""
    tokens = torch.tensor([document + [PAD] * (10 - len(document)) for document in DOCUMENTS])
    masking = TopicMaskingSettings(
        mask_prob=0.4, keep_prob=0.2, random_prob=0.3, context=context, random_tokens="all"
    )
    result = mask(tokens, masking, D_VOCAB, torch.Generator().manual_seed(seed))
    if context == "hidden":  # the document of one word would have nothing to attend to
        assert result.attended.any(dim=1).all()
    kind = DoubleBatch if double else MaskedBatch
    return kind(result.tokens, result.observed, result.selected, result.hidden)


def compact(
    settings: CompactModelSettings, *, seed: int = 0, scale: float = 0.5, double: bool = True
) -> TopicTransformer:
    """Return a random model whose trained parts all affect the output."""
    generator = torch.Generator().manual_seed(seed)
    block = torch.randn(D_VOCAB, D_VOCAB, generator=generator)
    init = InitSettings(distribution="normal", scale=scale)
    model = TopicTransformer(D_VOCAB, settings, init, generator, block)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("b_", "norm")):
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.double() if double else model


SWITCHES = {
    "embedding": ["one_hot", "trained"],
    "attention": ["uniform", "trained"],
    "value": ["trained", "identity", "block"],
    "head": ["identity", "tied", "trained"],
    "d_model": [None, 5, D_VOCAB + 3],
    "input_norm": [False, True],
    "biases": [False, True],
}


def all_settings() -> Iterator[CompactModelSettings]:
    """Yield every valid combination of the switches."""
    for values in itertools.product(*SWITCHES.values()):
        switches = dict(zip(SWITCHES, values, strict=True))
        if switches["d_model"] and switches["input_norm"] != switches["biases"]:
            continue  # covered at the width of the vocabulary
        try:
            settings = CompactModelSettings(**switches, value_gain=3 if "block" in values else 1)
            settings.check_width(D_VOCAB)
        except ValueError:
            continue
        yield settings


def label(settings: CompactModelSettings) -> str:
    """Return the settings that differ from the defaults."""
    return "-".join(
        f"{k}:{v}" for k, v in settings if v != CompactModelSettings.model_fields[k].default
    )


ALL_SETTINGS = [*all_settings()]
every_model = pytest.mark.parametrize("settings", ALL_SETTINGS, ids=label)


def dense(model: TopicTransformer, batch: MaskedBatch) -> Tensor:
    """Return the model's predictions, one document and one query at a time, over positions."""
    p, settings = dict(model.named_parameters()) | dict(model.named_buffers()), model.settings

    def embedded(token: int) -> Tensor:
        z = p["W_E"][:, token]
        if settings.input_norm:
            z = z + p["token_type"]
            z = (z - z.mean()) / torch.sqrt(((z - z.mean()) ** 2).mean() + 1e-12)
            z = z * p["norm.weight"] + p["norm.bias"]
        return z

    rows = []
    for d in range(len(batch.tokens)):
        keys = [
            embedded(int(batch.observed[d, i]))
            for i in range(batch.tokens.shape[1])
            if batch.tokens[d, i] != PAD and not (batch.hidden and batch.selected[d, i])
        ]
        for j in range(batch.tokens.shape[1]):
            if not batch.selected[d, j]:
                continue
            query = embedded(int(batch.observed[d, j]))
            scores = torch.zeros(len(keys), dtype=query.dtype)
            if settings.attention == "trained":
                scores = torch.stack([(p["W_K"] @ z) @ (p["W_Q"] @ query) for z in keys])
                scores = scores / math.sqrt(len(query))
            weights = torch.exp(scores) / torch.exp(scores).sum()
            hidden = sum(w * (p["W_V"] @ z) for w, z in zip(weights, keys, strict=True))
            if settings.biases:
                hidden = hidden + p["b_V"]
            output = hidden
            if settings.head == "tied":
                output = p["W_E"].T @ hidden
            elif settings.head == "trained":
                output = p["W_U"] @ hidden
            rows.append(output + p["b_U"] if settings.biases else output)
    return torch.stack(rows)


# --- the compact model --------------------------------------------------------------------------


def test_all_values_of_switches_are_covered() -> None:
    for name, values in SWITCHES.items():
        assert {getattr(settings, name) for settings in ALL_SETTINGS} == set(values)
    assert len(ALL_SETTINGS) > 100


@every_model
def test_predictions_and_gradients_equal_attention_over_positions(
    settings: CompactModelSettings,
) -> None:
    model = compact(settings)
    for number, context in enumerate(("visible", "hidden")):
        given = batch(context, seed=number, double=True)
        outputs = model(given), dense(model, given)
        torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
        # gradients of a sum with a different weight for every output
        weight = torch.linspace(-1, 1, outputs[0].numel(), dtype=torch.float64)
        trained = dict(model.named_parameters())
        fast, slow = (
            torch.autograd.grad((output.flatten() * weight).sum(), [*trained.values()])
            for output in outputs
        )
        for name, one, other in zip(trained, fast, slow, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=name)
            assert one.abs().max() > 0, name


@pytest.mark.parametrize(
    "settings",
    [
        CompactModelSettings(attention="trained"),
        CompactModelSettings(embedding="trained", attention="trained", head="tied", d_model=5),
        CompactModelSettings(input_norm=True, biases=True),
    ],
    ids=label,
)
def test_single_precision_is_close_to_double(settings: CompactModelSettings) -> None:
    single, double = (compact(settings, double=double) for double in (False, True))
    torch.testing.assert_close(
        single(batch()).double(), double(batch(double=True)), rtol=1e-5, atol=1e-5
    )


@every_model
def test_parameters_are_exactly_what_is_trained(settings: CompactModelSettings) -> None:
    model = compact(settings, double=False)
    expected = {
        "W_E": settings.embedding == "trained",
        "W_K": settings.attention == "trained",
        "W_Q": settings.attention == "trained",
        "W_V": settings.value == "trained",
        "W_U": settings.head == "trained",
        "token_type": settings.input_norm,
        "norm.weight": settings.input_norm,
        "norm.bias": settings.input_norm,
        "b_V": settings.biases,
        "b_U": settings.biases,
    }
    trained = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert trained.keys() == {name for name, is_trained in expected.items() if is_trained}
    frozen = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert frozen.keys() == {"W_E", "W_V"} - trained.keys()
    assert model.state_dict().keys() == trained.keys() | frozen.keys()  # all parts are stored
    output = model(batch())
    output.square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    for name, parameter in model.named_parameters():
        assert not parameter.equal(trained[name]), name
    for name, buffer in model.named_buffers():
        assert buffer.grad is None
        assert buffer.equal(frozen[name]), name


@pytest.mark.parametrize("value", ["identity", "block"])
def test_the_frozen_value_matrix_and_its_gain(value: str) -> None:
    gain = 57 if value == "block" else 1
    settings = CompactModelSettings(value=value, attention="trained", value_gain=gain)
    block = torch.arange(D_VOCAB**2, dtype=torch.float32).reshape(D_VOCAB, D_VOCAB)
    model = TopicTransformer(D_VOCAB, settings, InitSettings(), torch.Generator(), block)
    # the gain is a factor on the block matrix, and what is stored is what is used
    expected = torch.eye(D_VOCAB) if value == "identity" else 57 * block
    assert model.W_V.equal(expected)
    torch.testing.assert_close(model(batch()), dense(model, batch()), rtol=1e-5, atol=1e-4)


def test_one_hot_embeddings_of_a_larger_width() -> None:
    model = compact(CompactModelSettings(head="tied", d_model=D_VOCAB + 3))
    assert model.W_E.shape == (D_VOCAB + 3, D_VOCAB)
    assert model.W_E.T.matmul(model.W_E).equal(torch.eye(D_VOCAB, dtype=torch.float64))


def test_uniform_attention_ignores_the_query() -> None:
    model = compact(CompactModelSettings())
    given = batch(double=True)
    other = DoubleBatch(given.tokens, given.observed, ~given.selected & (given.tokens > 3), False)
    for d in range(len(DOCUMENTS)):
        rows = torch.cat([model(b)[b.document == d] for b in (given, other)])
        assert len(rows) > 0
        torch.testing.assert_close(rows, rows[:1].expand_as(rows))


def test_near_zero_scores_are_almost_uniform_attention() -> None:
    uniform = compact(CompactModelSettings(head="trained"))
    trained = compact(CompactModelSettings(head="trained", attention="trained"))
    trained.load_state_dict(uniform.state_dict(), strict=False)
    outputs = []
    for scale in (0.0, 1e-4, 1.0):
        nn.init.constant_(trained.W_Q, scale)
        outputs.append((trained(batch(double=True)) - uniform(batch(double=True))).abs().max())
    assert outputs[0] < 1e-12
    assert 0 < outputs[1] < 1e-3 < outputs[2]


def test_predictions_ignore_word_order_and_padding() -> None:
    model = compact(CompactModelSettings(attention="trained"))
    given = batch(double=True)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(5))
    shuffled, padded = (
        DoubleBatch(move(given.tokens), move(given.observed), move(given.selected), False)
        for move in (lambda t: t[:, order], lambda t: functional.pad(t, (0, 4)))
    )
    torch.testing.assert_close(model(padded), model(given))
    for d in range(len(DOCUMENTS)):
        one, other = (model(b)[b.document == d] for b in (given, shuffled))
        torch.testing.assert_close(one.sort(dim=0).values, other.sort(dim=0).values)


@pytest.mark.parametrize(
    ("distribution", "low", "high", "mean", "sd"),
    [
        ("normal", -math.inf, math.inf, 0, 0.02),
        ("uniform", 0, 0.02, 0.01, 0.02 / math.sqrt(12)),
        ("library", -0.05, 0.05, 0, 0.05 / math.sqrt(3)),  # 1/sqrt(400)
    ],
)
def test_initial_weights(
    distribution: str, low: float, high: float, mean: float, sd: float
) -> None:
    settings = CompactModelSettings(
        embedding="trained", attention="trained", head="trained", d_model=400, biases=True
    )
    init = InitSettings(distribution=distribution, scale=0.02)
    model = TopicTransformer(D_VOCAB, settings, init, torch.Generator().manual_seed(0))
    for name in ("W_K", "W_Q", "W_V", "W_U"):
        weight = getattr(model, name)
        n = weight.numel()
        assert low <= weight.min() <= weight.max() <= high
        assert weight.mean().item() == pytest.approx(mean, abs=5 * sd / math.sqrt(n))
        assert weight.std().item() == pytest.approx(sd, rel=0.06)
    assert not model.W_K.equal(model.W_Q)
    embedding_sd = 1 if distribution == "library" else sd
    assert model.W_E.std().item() == pytest.approx(embedding_sd, rel=0.06)
    assert not model.b_V.any() and not model.b_U.any()


def test_initial_weights_depend_on_the_generator_alone() -> None:
    settings = CompactModelSettings(embedding="trained", attention="trained", input_norm=True)
    before = torch.get_rng_state()
    one, same, other = (compact(settings, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.get_rng_state().equal(before)
    assert all(one[name].equal(same[name]) for name in one)
    assert not one["W_V"].equal(other["W_V"])


def test_the_penalised_matrix() -> None:
    trained = compact(CompactModelSettings(embedding="trained", head="tied"))
    assert trained.penalised() is trained.W_V
    frozen = compact(CompactModelSettings(embedding="trained", value="identity", head="tied"))
    assert frozen.penalised() is frozen.W_E


# --- losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
@pytest.mark.parametrize("average", ["document", "token", "entry"])
def test_objective_against_plain_loops(loss: str, average: str) -> None:
    generator = torch.Generator().manual_seed(1)
    document = torch.tensor([0, 0, 0, 1, 2, 2])
    output = torch.randn(6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 4, 4, 2, 1, 3])
    each = []
    for row, true in zip(output, target.tolist(), strict=True):
        if loss == "squared":
            each.append(sum((row[k] - float(k == true)) ** 2 for k in range(5)))
        else:
            each.append(torch.log(sum(torch.exp(row[k]) for k in range(5))) - row[true])
    if average == "document":
        expected = ((each[0] + each[1] + each[2]) / 3 + each[3] + (each[4] + each[5]) / 2) / 3
    else:
        expected = sum(each) / 6 / (5 if average == "entry" else 1)
    index = torch.arange(6)
    result = objective(output, index, target, document, loss=loss, average=average)
    torch.testing.assert_close(result, expected)
    one, other = (torch.autograd.grad(value, output)[0] for value in (result, expected))
    torch.testing.assert_close(one, other)


def test_objective_of_shared_predictions() -> None:
    output = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    index, target = torch.tensor([0, 2, 2, 1]), torch.tensor([4, 0, 0, 3])
    document = torch.tensor([0, 0, 1, 1])
    for loss in ("squared", "cross_entropy"):
        result, expected = (
            objective(rows, rows_of, target, document, loss=loss, average="document")
            for rows, rows_of in ((output, index), (output[index], torch.arange(4)))
        )
        torch.testing.assert_close(result, expected)
        one, other = (torch.autograd.grad(value, output)[0] for value in (result, expected))
        torch.testing.assert_close(one, other)


def test_released_squared_loss_is_the_mean_over_entries() -> None:
    output, target = torch.randn(7, 5), torch.tensor([0, 1, 2, 3, 4, 0, 1])
    index, document = torch.arange(7), torch.zeros(7).long()
    value = objective(output, index, target, document, loss="squared", average="entry")
    one_hot = functional.one_hot(target, 5).float()
    torch.testing.assert_close(value, functional.mse_loss(output, one_hot))


@pytest.mark.parametrize("value", ["trained", "identity"])
def test_the_penalty_is_the_squared_norm(value: str, tmp_path: Path) -> None:
    corpus = small_corpus()
    settings = {"model": CompactModelSettings(value=value, embedding="trained", head="tied")}
    decayed, plain = (
        TopicVariantSettings(
            **settings, loss="squared", optimiser="sgd", learning_rate=0.1, l2=l2, steps=1
        )
        for l2 in (0.25, 0.0)
    )
    model = experiment.build(plain, corpus, 0)
    start = model.penalised().detach().clone()
    moved, losses = [], []
    for name, variant in (("decayed", decayed), ("plain", plain)):
        with RunState(tmp_path / name, "") as state:
            trained = experiment.train(variant, corpus, seed=0, state=state)
        moved.append(trained.model.penalised().detach())
        losses.append(trained.run.loss[0])
    # one step of SGD: the gradient of 0.25 ||W||^2 is W / 2
    torch.testing.assert_close(moved[0] - moved[1], -0.1 * 0.5 * start, rtol=1e-4, atol=1e-8)
    assert losses[0] - losses[1] == pytest.approx(0.25 * start.square().sum().item(), rel=1e-2)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
def test_the_held_out_loss_is_over_all_documents_and_without_the_penalty(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = small_corpus()
    variant = TopicVariantSettings(loss=loss, l2=0.3, learning_rate=0.1, steps=4, checkpoints=2)
    whole = experiment._validation_batches(corpus, variant, 0, "cpu")
    assert [len(part.tokens) for part in whole] == [7]
    monkeypatch.setattr(experiment, "VALIDATION_CHUNK", 3)  # seven documents are 3 + 3 + 1
    with RunState(tmp_path, "") as state:
        trained = experiment.train(variant, corpus, seed=0, state=state)
    evaluations = trained.run.evaluations
    assert [record["step"] for record in evaluations] == [0, 1, 4]
    for given, value in (
        (whole[0], trained.validation_loss),
        (whole[0].rows(torch.arange(3)), evaluations[-1]["validation_loss"]),  # the first batch
    ):
        output = trained.model(given)
        labels = (torch.arange(len(output)), given.target, given.document)
        expected = objective(output, *labels, loss=loss, average="document")
        assert value == pytest.approx(expected.item(), rel=1e-5)


# --- the block matrix of Theorem 2 --------------------------------------------------------------


def small_corpus(**changes: object) -> corpora.Corpus:
    """A few documents of eight words in four topics."""
    settings = {
        "kind": "lda", "topics": 4, "words": WORDS, "alpha": 0.5, "train": 30, "validation": 7,
        "min_length": 3, "max_length": 9,
    }  # fmt: skip
    sampled = corpora.settings.LdaCorpusSettings.model_validate(settings | changes)
    return corpora.sample(sampled, np.random.default_rng(0))


@pytest.mark.parametrize("context", ["visible", "hidden"])
def test_block_value_is_the_theorems_matrix(context: str) -> None:
    masking = TopicMaskingSettings(mask_prob=0.3, keep_prob=0.2, random_prob=0.15, context=context)
    matrix = experiment.block_value(small_corpus(), masking).double().numpy()
    visible = context == "visible"
    setting = theory.TheorySetting(4, 2, 2, p_m=0.3, p_c=0.2, p_r=0.15, visible=visible)
    expected = theory.value_matrix(theory.optimal_value(setting), theory.same_topic(setting))
    tokens = [MASK, *range(FIRST_WORD, D_VOCAB)]  # the theorem's order: MASK, then the words
    np.testing.assert_allclose(matrix[np.ix_(tokens, tokens)], expected, rtol=1e-6)
    others = [PAD, START, END]
    assert not matrix[others].any() and not matrix[:, others].any()
    if not visible:
        assert (
            matrix[4, 4] == matrix[4, 5] == 0.5 and matrix[4, 6] == 0 and not matrix[:, MASK].any()
        )


def test_the_model_uses_block_value() -> None:
    variant = TopicVariantSettings(
        model=CompactModelSettings(value="block", attention="trained", value_gain=57)
    )
    model = experiment.build(variant, small_corpus(), 0)
    expected = 57 * experiment.block_value(small_corpus(), variant.masking)
    torch.testing.assert_close(model.W_V, expected)


@pytest.mark.parametrize(
    "membership",
    [
        np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=bool),  # unequal sizes
        np.array([[1, 0], [1, 1], [0, 1], [0, 1]], dtype=bool),  # a shared word
        np.array([[1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool),  # a word of no topic
    ],
)
def test_block_value_needs_blocks(membership: np.ndarray) -> None:
    documents = np.full((2, 3), 4, dtype=np.int16)
    with pytest.raises(ValueError, match="disjoint topics of equal size"):
        experiment.block_value(
            corpora.Corpus(documents, documents, membership), TopicMaskingSettings()
        )


# --- BERT ---------------------------------------------------------------------------------------


def bert(seed: int = 0, **settings: object) -> TopicBert:
    """A small BERT whose attention is far from uniform."""
    model = TopicBert(
        D_VOCAB, 10, BertModelSettings(kind="bert", d_model=12, d_ff=16, **settings), seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model.eval()


@pytest.fixture
def tokens() -> np.ndarray:
    """The documents above, nothing masked."""
    return batch().tokens.numpy().astype(np.int16)


def in_forward(model: TopicBert, given: MaskedBatch) -> Iterator[Tensor]:
    """The attention weights of every layer while the model predicts."""
    model.lm.set_attn_implementation("eager")  # the fused one does not return its weights
    result: list[Tensor] = []
    hooks = [
        layer.attention.self.register_forward_hook(lambda *args: result.append(args[-1][1]))
        for layer in model.lm.bert.encoder.layer
    ]
    model(given)
    for hook in hooks:
        hook.remove()
    return iter(result)


@pytest.mark.parametrize("context", ["visible", "hidden"])
def test_bert_attends_to_visible_positions_alone(context: str) -> None:
    given = batch(context)
    for weights in in_forward(bert(n_layers=2, n_heads=3), given):
        assert weights.shape == (4, 3, 10, 10)
        unseen = ~given.attended[:, None, None, :].expand_as(weights)
        assert (weights[unseen] == 0).all()
        assert (weights[~unseen] > 0).all()


@pytest.mark.parametrize("context", ["visible", "hidden"])
def test_other_positions_do_not_depend_on_a_hidden_word(context: str) -> None:
    model, given = bert(n_layers=2, n_heads=2), batch(context)
    index = 2  # of the selected words
    others = (given.document == given.document[index]).logical_and(
        torch.arange(len(given.document)) != index
    )
    assert others.any()
    observed = given.observed.clone()
    observed[given._positions[0][index], given._positions[1][index]] = (
        10 if given.query[index] != 10 else 9
    )
    changed = MaskedBatch(given.tokens, observed, given.selected, given.hidden)
    difference = (model(given) - model(changed)).abs().amax(dim=1)
    assert difference[index] > 1e-3
    assert (difference[others].max() > 1e-3) == (context == "visible")
    assert difference[given.document != given.document[index]].max() < 1e-6


def test_bert_predicts_as_the_library_does_document_by_document() -> None:
    model, given = bert(n_layers=2, n_heads=3), batch()
    rows = []
    for d in range(len(DOCUMENTS)):
        length = len(DOCUMENTS[d])
        logits = model.lm(input_ids=given.observed[d : d + 1, :length]).logits[0]
        rows.append(logits[given.selected[d, :length]])
    torch.testing.assert_close(model(given), torch.cat(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_attention_is_the_librarys_own(tokens: np.ndarray, chunk: int) -> None:
    model = bert(n_layers=2, n_heads=3)
    attention = model.attention(tokens, chunk=chunk)
    assert attention.shape == (2, 4, 3, 10, 10)
    library = LibraryBert(model.lm.config, add_pooling_layer=False).eval()
    library.load_state_dict(model.lm.bert.state_dict())
    library.set_attn_implementation("eager")
    for d, document in enumerate(DOCUMENTS):
        n = len(document)
        output = library(torch.tensor([document]), output_attentions=True)
        maps = torch.stack(output.attentions)[:, 0].detach().numpy()
        np.testing.assert_allclose(attention[:, d, :, :n, :n], maps, rtol=1e-4, atol=1e-6)
        assert not attention[:, d, :, :, n:].any()
        assert maps.std() > 0.03  # not uniform by accident
    np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-5)


def trained_bert(tmp_path: Path, **settings: object) -> tuple[TopicBert, TopicBert]:
    """Return a BERT before and after ten steps of training."""
    variant = TopicVariantSettings(
        model=BertModelSettings(kind="bert", d_model=12, d_ff=16, **settings),
        learning_rate=0.01,
        steps=10,
        batch=8,
        checkpoints=1,
    )
    corpus = small_corpus()
    with RunState(tmp_path, "") as state:
        trained = experiment.train(variant, corpus, seed=0, state=state)
    assert np.isfinite(trained.run.loss).all()
    return experiment.build(variant, corpus, 0).eval(), trained.model


def test_frozen_attention_stays_uniform(tmp_path: Path, tokens: np.ndarray) -> None:
    for model in trained_bert(tmp_path, n_layers=2, n_heads=2, attention="uniform"):
        maps = model.attention(tokens)
        for d, document in enumerate(DOCUMENTS):
            n = len(document)
            np.testing.assert_allclose(maps[:, d, :, :, :n], 1 / n, rtol=1e-6)
            assert not maps[:, d, :, :, n:].any()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any(".query." in name or ".key." in name for name in trained)
    assert any(".value." in name for name in trained)


def test_one_hot_embeddings_stay_frozen_and_the_head_is_trained(tmp_path: Path) -> None:
    before, after = trained_bert(tmp_path, embedding="one_hot")
    for model in (before, after):
        np.testing.assert_array_equal(model.word_embeddings(), np.eye(12))
    decoders = [model.lm.cls.predictions.decoder.weight for model in (before, after)]
    assert not decoders[0].equal(decoders[1])


def test_trained_embeddings_are_tied_to_the_head(tmp_path: Path) -> None:
    before, after = trained_bert(tmp_path)
    for model in (before, after):
        decoder = model.lm.cls.predictions.decoder.weight
        assert decoder is model.lm.bert.embeddings.word_embeddings.weight
        np.testing.assert_array_equal(model.word_embeddings(), decoder.detach().T)
    assert (before.word_embeddings() != after.word_embeddings()).any()


def test_bert_depends_on_the_seed_alone() -> None:
    settings, before = BertModelSettings(kind="bert", d_model=12), torch.get_rng_state()
    one, same, other = (TopicBert(D_VOCAB, 10, settings, seed).state_dict() for seed in (0, 0, 1))
    assert torch.get_rng_state().equal(before)
    assert all(one[name].equal(same[name]) for name in one)
    name = "lm.bert.encoder.layer.0.attention.self.query.weight"
    assert not one[name].equal(other[name])


def test_bert_is_as_wide_as_the_vocabulary_by_default() -> None:
    corpus = small_corpus()
    model = experiment.build(
        TopicVariantSettings(model=BertModelSettings(kind="bert", n_heads=4)), corpus, 0
    )
    embeddings = model.lm.bert.embeddings
    assert embeddings.word_embeddings.weight.shape == (D_VOCAB, D_VOCAB)
    # a position for every word, START and END
    assert len(embeddings.position_embeddings.weight) == corpus.train.shape[1] == 11


def test_a_saved_bert_is_loaded_with_its_weights(tmp_path: Path) -> None:
    settings = BertModelSettings(kind="bert", n_layers=2, n_heads=2, d_model=16, d_ff=24)
    trained = TopicBert(24, 12, settings, seed=3)
    save_for_transformers(trained.state_dict(), settings, tmp_path)
    model = loading.model(tmp_path)
    tokenizer = loading.tokenizer(tmp_path, 24)
    assert len(tokenizer) == 24
    assert tokenizer("word0 word19 [MASK]").input_ids == [4, 23, 1]
    tokens = torch.tensor([[4, 9, 23, 1]])
    expected = trained.lm.bert(tokens).last_hidden_state
    assert torch.allclose(model(tokens).last_hidden_state, expected, atol=1e-6)
