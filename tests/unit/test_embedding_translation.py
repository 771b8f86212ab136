"""Translation: exact where it must be, and at chance where nothing is translated."""

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    PreTrainedModel,
)

from scripts.anatomy.embedding import aggregation, finetuning, translation
from scripts.anatomy.embedding.adapters import final_norm
from scripts.anatomy.embedding.finetuning import Classifier, padded
from scripts.anatomy.embedding.settings import FinetuningRunSettings
from scripts.anatomy.embedding.translation import Way
from scripts.anatomy.embedding.views import view

D_VOCAB = 90


def bert(layers: int = 4, width: int = 16, seed: int = 0) -> BertModel:
    config = BertConfig(
        vocab_size=D_VOCAB, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=16,
    )  # fmt: skip
    return random(BertModel(config), seed)


def gpt2(layers: int = 4) -> GPT2Model:
    return random(
        GPT2Model(
            GPT2Config(vocab_size=D_VOCAB, n_embd=16, n_layer=layers, n_head=2, n_positions=16)
        )
    )


def llama(layers: int = 4, width: int = 16, seed: int = 0) -> LlamaModel:
    config = LlamaConfig(
        vocab_size=D_VOCAB, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=24, max_position_embeddings=16,
    )  # fmt: skip
    return random(LlamaModel(config), seed)


def random(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise / 3 + (parameter.mean() > 0.5))  # gains stay around 1
    return model.eval()


def texts(count: int = 8, seed: int = 0) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(0, D_VOCAB, rng.integers(3, 12))) for _ in range(count)]


MODELS = pytest.mark.parametrize("make", [bert, gpt2, llama])


# --- kernels ------------------------------------------------------------------------------------


def embeddings(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_the_kernel_is_e_a_times_the_pseudo_inverse_of_e_b() -> None:
    """The kernel is E_A times the pseudo-inverse of E_B."""
    A, B = embeddings(50, 7), embeddings(50, 5, seed=1)
    torch.testing.assert_close(translation.kernel(A, B), A.T @ torch.linalg.pinv(B.T))
    torch.testing.assert_close(translation.kernel(B, B), torch.eye(5, dtype=torch.float64))


def test_a_random_kernel_keeps_the_singular_values() -> None:
    """A random kernel has the singular values of the kernel."""
    K = translation.kernel(embeddings(50, 7), embeddings(50, 5, seed=1))
    actual = translation.random_kernel(K, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.linalg.svdvals(actual), torch.linalg.svdvals(K))
    assert torch.linalg.norm(actual - K) > 0.5 * torch.linalg.norm(K)


def test_a_singular_embedding_is_refused() -> None:
    """An embedding without full rank is refused."""
    B = embeddings(50, 5)
    B[:, 4] = B[:, 3]
    with pytest.raises(ValueError, match="rank is not full"):
        translation.kernel(embeddings(50, 7), B)


def test_least_squares_finds_the_kernel_that_made_the_states() -> None:
    """Least squares recovers the kernel that made the states."""
    true = {cut: embeddings(6, 4, seed=cut) for cut in (0, 2)}
    batches = [{cut: embeddings(20, 6, seed=10 * n + cut) for cut in true} for n in range(4)]
    paired = [(states, [states[0] @ true[0], states[2] @ true[2] * 2]) for states in batches]
    first, second = translation.least_squares(paired)
    torch.testing.assert_close(first[0], true[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(second[2], 2 * true[2], atol=1e-4, rtol=1e-4)


# --- the two halves -----------------------------------------------------------------------------


@MODELS
def test_states_are_those_after_each_number_of_layers(make) -> None:
    """States are those after each number of layers, before the final norm."""
    model, batch = make(), padded(texts())
    actual = translation.states(model, batch)
    assert len(actual) == 5
    with torch.inference_mode():
        out = model(
            input_ids=batch.ids, attention_mask=batch.mask, output_hidden_states=True
        ).hidden_states
    kept = batch.mask.bool()
    for cut in range(4):  # the library's last may be after the final norm
        torch.testing.assert_close(actual[cut][kept], out[cut][kept])
    with torch.inference_mode():
        last = final_norm(model)(actual[4])
    torch.testing.assert_close(last[kept], out[4][kept])


@MODELS
@pytest.mark.parametrize("blocks", [1, 3, 4])
def test_a_model_translated_into_itself_is_the_model(make, blocks: int) -> None:
    """A model translated into itself gives the logits of the model."""
    classifier = Classifier(make()).eval()
    few = texts()
    way = Way(translation.top(classifier, blocks), {4 - blocks: torch.eye(16)})
    actual, _ = translation.evaluate({"way": way}, classifier.model, few, {"way": [4 - blocks]})
    expected = finetuning.logits(classifier, few)
    torch.testing.assert_close(actual["way"][4 - blocks], expected, atol=2e-5, rtol=1e-4)


def rotated(model: LlamaModel, Q: Tensor) -> LlamaModel:
    """The same function in other coordinates: the stream turned by an orthogonal matrix.

    An RMS norm of gain 1 commutes with it; every weight that reads or writes the stream turns.
    """
    turned = llama(len(model.layers))
    turned.load_state_dict(model.state_dict())
    with torch.no_grad():
        turned.embed_tokens.weight.copy_(model.embed_tokens.weight @ Q)
        for layer in turned.layers:
            for module in (
                *(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                *(layer.mlp.gate_proj, layer.mlp.up_proj),
            ):
                module.weight.copy_(module.weight @ Q)
            for module in (layer.self_attn.o_proj, layer.mlp.down_proj):
                module.weight.copy_(Q.T @ module.weight)
    return turned


def plain_norms(model: LlamaModel) -> LlamaModel:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1)
    return model


def pair_of_rotated() -> tuple[LlamaModel, Classifier, Tensor]:
    """A model, a classifier on the same in other coordinates, and the rotation."""
    model = plain_norms(llama())
    Q, _ = torch.linalg.qr(embeddings(16, 16, seed=5).float())
    upper = Classifier(rotated(model, Q)).eval()
    return model, upper, Q


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_translation_into_a_rotated_copy_is_exact(cut: int) -> None:
    """Translation into a rotated copy gives the logits of the model."""
    model, upper, Q = pair_of_rotated()
    K = translation.kernel(view(model).W_E, view(upper.model).W_E)
    torch.testing.assert_close(K.float(), Q, atol=1e-5, rtol=1e-4)
    few = texts()
    way = Way(translation.top(upper, 4 - cut), {cut: K})
    actual, _ = translation.evaluate({"way": way}, model, few, {"way": [cut]})
    expected = finetuning.logits(upper, few)
    torch.testing.assert_close(actual["way"][cut], expected, atol=1e-3, rtol=1e-3)


def test_controls_fail_where_translation_is_exact() -> None:
    """Controls agree with the model on fewer texts than the translation does."""
    model, upper, _ = pair_of_rotated()
    W_A, W_B = view(model).W_E, view(upper.model).W_E
    K, draw = translation.kernel(W_A, W_B), torch.Generator().manual_seed(0)
    top = translation.top(upper, 2)
    fresh = Classifier(plain_norms(llama(seed=9))).eval()
    kernels = {
        "plain": K,
        "permuted": translation.permuted_kernel(W_A, W_B, draw),
        "random_kernel": translation.random_kernel(K, draw),
        "identity": torch.eye(16),
    }
    ways = {name: Way(top, {2: kernel}) for name, kernel in kernels.items()}
    ways["random_blocks"] = Way(translation.headed(translation.top(fresh, 2), upper), {2: K})
    many = texts(300)
    actual, _ = translation.evaluate(ways, model, many, dict.fromkeys(ways, [2]))
    margin = finetuning.logits(upper, many).diff(dim=1).squeeze()
    wanted = margin > margin.median()  # so that neither label is rare
    agrees = {
        name: ((got[2].diff(dim=1).squeeze() > margin.median()) == wanted).float().mean().item()
        for name, got in actual.items()
    }
    assert agrees.pop("plain") > 0.99  # all but a text at the threshold
    assert agrees.pop("random_blocks") < 0.9  # the stream passes them by
    assert max(agrees.values()) < 0.75, agrees


def test_every_cut_in_one_pass_is_each_by_itself() -> None:
    """All cuts in one pass equal each cut by itself."""
    model, upper, _ = pair_of_rotated()
    kernels = {cut: embeddings(16, 16, seed=cut).float() for cut in range(5)}
    way, few = Way(translation.top(upper, 1), kernels), texts()
    together, _ = translation.evaluate({"way": way}, model, few, {"way": [*range(5)]})
    for cut in range(5):
        alone, _ = translation.evaluate({"way": way}, model, few, {"way": [cut]})
        torch.testing.assert_close(together["way"][cut], alone["way"][cut], atol=1e-4, rtol=1e-4)


def test_positions_are_those_of_the_upper_model() -> None:
    """Added positions are those of the upper model."""
    classifier = Classifier(bert(2)).eval()
    few = texts()
    # embeddings before positions, through all layers: the model itself
    embedding = classifier.model.embeddings.word_embeddings
    batch = padded(few)
    actual = translation.classify(
        translation.top(classifier, 2), embedding(batch.ids).detach(), batch, positions=True
    )
    torch.testing.assert_close(actual, finetuning.logits(classifier, few), atol=1e-5, rtol=1e-4)


def test_the_final_norm_of_the_lower_model_is_applied_when_wanted() -> None:
    """The final norm of the lower model is applied if asked."""
    model, classifier = gpt2(), Classifier(gpt2()).eval()
    few = texts()
    states = translation.states(model, padded(few))[2]
    top = translation.top(classifier, 2)
    actual, _ = translation.evaluate(
        {"way": Way(top, {2: torch.eye(16)}, final_norm=True)}, model, few, {"way": [2]}
    )
    with torch.inference_mode():
        expected = translation.classify(top, model.ln_f(states), padded(few))
    torch.testing.assert_close(actual["way"][2], expected, atol=1e-4, rtol=1e-4)


def test_mean_states_are_what_a_probe_reads() -> None:
    """Mean states, which a probe reads, leave out padding."""
    model, few = bert(), texts()
    _, means = translation.evaluate({}, model, few, {"probe": [0, 3]})
    for number, ids in enumerate(few):
        states = translation.states(model, padded([ids]))
        np.testing.assert_allclose(means[3][number], states[3][0].mean(dim=0), atol=1e-5)


def test_a_probe_learns_what_is_linear() -> None:
    """A probe fits a linear label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8))
    y = (X[:, 0] > 0).astype(int)
    assert translation.probe(X[:300], y[:300]).score(X[300:], y[300:]) > 0.9


def test_only_differences_leaves_norms_and_takes_the_start_away() -> None:
    """The variant of differences subtracts the first weights, except of norms."""
    before, after = (finetuning.build(bert(), SETTINGS, 0) for _ in range(2))
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.add_(0.25)
    actual = translation.only_differences(after, dict(before.named_parameters()), 2)
    layer = actual.model.encoder.layer[-1]
    assert torch.allclose(layer.attention.self.query.weight, torch.tensor(0.25), atol=1e-6)
    assert torch.allclose(layer.output.dense.bias, torch.tensor(0.25), atol=1e-6)
    kept = after.model.encoder.layer[-1]
    assert torch.equal(layer.output.LayerNorm.weight, kept.output.LayerNorm.weight)
    assert not torch.allclose(kept.output.dense.bias, torch.tensor(0.25))  # the original is whole


SETTINGS = FinetuningRunSettings(model="m", data="d", layers=[-2, -1])


def test_the_upper_layers_share_their_parameters_and_leave_the_model_alone() -> None:
    """The upper layers share parameters with the classifier and leave it unchanged."""
    classifier = Classifier(bert()).eval()
    short = translation.top(classifier, 1)
    assert len(classifier.model.encoder.layer) == 4 and len(short.model.encoder.layer) == 1
    assert short.model.encoder.layer[0].output.dense.weight is (
        classifier.model.encoder.layer[3].output.dense.weight
    )
    reader = translation.read_by_top(classifier, 1)
    batch = padded(texts())
    torch.testing.assert_close(reader(batch), translation.states(classifier.model, batch)[3])
    whole = translation.read_by_top(classifier, 4)
    torch.testing.assert_close(whole(batch), translation.states(classifier.model, batch)[0])


def test_bad_cuts_and_blocks_are_refused() -> None:
    """Cuts and blocks that a model lacks are refused."""
    with pytest.raises(ValueError, match="cuts: 9 is beyond the 4 layers of the lower model"):
        translation.check_cuts([0, 9], bert())
    assert translation.check_cuts(None, bert()) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="blocks: 5 of 4 layers"):
        translation.top(Classifier(bert()), 5)
    albert = AlbertModel(
        AlbertConfig(
            vocab_size=D_VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=24, embedding_size=8,
        )
    )  # fmt: skip
    with pytest.raises(ValueError, match="layers of a albert are shared"):
        translation.top(Classifier(tiny_models.fill(albert)), 1)


# --- the summary --------------------------------------------------------------------------------


def test_the_summary_compares_the_translation_with_its_controls() -> None:
    """The summary compares test accuracies of the translation and its controls."""
    rows = []
    values = {"plain": 0.8, "permuted": 0.5, "before": 0.6, "identity": 0.82}
    for seed in (0, 1):
        for way, value in values.items():
            for part, gain in (("validation", 0.05), ("test", 0.0)):
                accuracy = value - 0.3 * seed * (way == "plain") + gain
                rows.append({"part": part, "seed": seed, "way": way, "cut": 2, "texts": 100,
                             "accuracy": accuracy, "low": accuracy - 0.05,
                             "high": accuracy + 0.05})  # fmt: skip
    for part in ("validation", "test"):
        rows.append({"part": part, "seed": None, "way": "probe", "cut": 1, "texts": 100,
                     "accuracy": 0.9, "low": 0.8, "high": 0.95})  # fmt: skip
    actual = aggregation.translation(pd.DataFrame(rows), [0.85, 0.86])
    assert actual["ways"]["plain"]["accuracy"] == pytest.approx([0.8, 0.5])
    assert actual["ways"]["plain"]["validation"] == pytest.approx([0.85, 0.55])
    assert actual["ways"]["probe"] == {"accuracy": [0.9], "cut": [1], "validation": [0.9]}
    assert actual["above_controls"] == pytest.approx([0.2, -0.1])
    assert actual["above"]["identity"] == pytest.approx([-0.02, -0.32])
    assert actual["share_of_runs"] == {"above_controls": 0.5, "working": 0.5}
    assert actual["upper"]["lost"] == pytest.approx([0.05, 0.36])
