"""Probes on maps and hidden states whose scores are known beforehand, and the summaries."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.linear_model import RidgeClassifier
from torch import Tensor
from transformers import BertConfig, BertModel

from scripts.anatomy.lego import metrics, probes
from scripts.anatomy.lego.models import LegoTransformer, LibraryTransformer
from scripts.anatomy.lego.settings import ArchitectureSettings
from scripts.anatomy.lego_attention import partners
from scripts.anatomy.settings import Heads

LENGTH = 62
LETTERS = torch.arange(10, 30)


def tokens(count: int = 6, length: int = LENGTH) -> Tensor:
    """Random sentences with two special tokens, punctuation and letters."""
    generator = torch.Generator().manual_seed(0)
    found = torch.randint(2, 30, (count, length), generator=generator)
    found[:, 0], found[:, -1] = 0, 1
    return found


def in_heads(*maps: Tensor) -> Tensor:
    """Maps of one layer, a head each: [sentences, 1, heads, length, length]."""
    return torch.stack([each.expand(6, LENGTH, LENGTH) for each in maps], dim=1)[:, None]


def shifted(offset: int) -> Tensor:
    """A head that looks `offset` places further, and stays where it is at the sentence's end."""
    key = (torch.arange(LENGTH) + offset).clamp(0, LENGTH - 1)
    return torch.eye(LENGTH)[key]


def scored(maps: Tensor, sentences: Tensor) -> probes.HeadScores:
    """Scores of maps given in two parts."""
    return probes.head_scores([maps[:4], maps[4:]], sentences, LETTERS)


def test_scores_of_uniform_attention() -> None:
    """Uniform attention scores 1 / length and 5 / length."""
    sentences = tokens()
    pairs = torch.arange(LENGTH) // 2 + 1000  # every token has exactly one partner
    pairs[-20:] = LETTERS[:10].repeat_interleave(2)
    found = scored(in_heads(torch.full((LENGTH, LENGTH), 1 / LENGTH)), pairs.expand(6, LENGTH))
    assert_allclose(found.association, 1 / 62, rtol=1e-6)
    assert_allclose(found.association_on_variables, 1 / 62, rtol=1e-6)
    # the window is cut off in four rows, by 2 + 1 places at either end
    assert_allclose(found.manipulation, (5 - 6 / 62) / 62, rtol=1e-6)
    assert found.manipulation.item() == pytest.approx(5 / 62, rel=0.02)
    assert sentences.shape[1] == LENGTH


def test_scores_of_planted_heads() -> None:
    """Association and manipulation heads have the scores of their construction."""
    sentences = tokens()
    same = partners(sentences).float()
    perfect = same / same.sum(dim=2, keepdim=True).clamp(min=1)
    punctuation = perfect * (sentences < 10)[:, :, None]  # associates, but not on variables
    spread = (shifted(-1) + shifted(2)) / 2
    found = scored(in_heads(perfect, punctuation, shifted(-1), spread, shifted(7)), sentences)
    association, on_variables = found.association[0], found.association_on_variables[0]
    assert_allclose([association[0], on_variables[0]], 1, rtol=1e-6)
    assert 0.1 < association[1] < 0.5 and on_variables[1] == 0
    assert_allclose(found.manipulation[0, 2:4], 1, rtol=1e-6)
    assert found.manipulation[0, 4] == pytest.approx(3 / 62)  # the last three rows stay put
    assert found.best_offset[0, [2, 4]].tolist() == [-1, 7]
    assert_allclose(found.best_offset_mass[0, [2, 4]], [61 / 62, 55 / 62], rtol=1e-6)


def test_sentences_without_repeats_have_no_association_score() -> None:
    """Sentences without repeated tokens are refused."""
    maps = in_heads(shifted(0))
    with pytest.raises(ValueError, match="no token occurs twice"):
        scored(maps, torch.arange(LENGTH).expand(6, LENGTH))
    only_punctuation = torch.arange(100, 100 + LENGTH).repeat(6, 1)
    only_punctuation[:, 3] = only_punctuation[:, 5]
    with pytest.raises(ValueError, match="no variable occurs twice"):
        scored(maps, only_punctuation)


def test_maps_of_library_models() -> None:
    """Maps of library models are those of the library."""
    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=LENGTH,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LibraryTransformer(
        BertModel(config), classes=1, generator=torch.Generator().manual_seed(0)
    ).eval()
    sentences = tokens()
    found = probes.head_scores(probes.attention_maps(model, sentences), sentences, LETTERS)
    assert found.association.shape == (3, 2)
    # random weights as BERT draws them leave attention nearly uniform
    count = partners(sentences).sum(dim=2)
    assert_allclose(found.association, count[count > 0].float().mean() / 62, rtol=0.02)
    assert_allclose(found.manipulation, 5 / 62, rtol=0.04)


def planted(sentences: int, seed: int) -> tuple[Tensor, Tensor]:
    """States of 4 layers, 3 positions and 8 dims; layer l shows the values of positions < l."""
    rng = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 3, (sentences, 3), generator=rng)
    hidden = torch.randn(sentences, 4, 3, 8, generator=rng)
    codes = torch.randn(3, 8, generator=torch.Generator().manual_seed(9)) * 6
    for layer in range(4):
        hidden[:, layer, :layer] += codes[values[:, :layer]]
    return hidden + 3, values


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "of each position"])
def test_probes_find_the_layer_of_a_planted_value(shared: bool) -> None:
    """Probes are accurate from the layer on that holds a value."""
    train, test = planted(3000, 0), planted(1000, 1)
    weights = probes.fit_probes(
        zip(*(array.split(700) for array in train), strict=True),
        classes=3, shared=shared,
    )  # fmt: skip
    found = probes.probe_accuracy(weights, [test])
    known = np.arange(4)[:, None] > np.arange(3)
    assert found[known].min() > (0.95 if not shared else 0.9)
    assert_allclose(found[~known], 1 / 3, atol=0.06)
    if not shared:
        assert probes.resolve_layer(found).tolist() == [1, 2, 3]


def test_probes_are_ridge_classifiers() -> None:
    """Probes predict like scikit-learn's ridge classifier."""
    hidden, values = planted(800, 2)
    ridge = 0.05
    weights = probes.fit_probes([(hidden, values)], classes=3, shared=False, ridge=ridge)
    for layer, position in ((0, 0), (1, 0), (3, 2)):
        X = hidden[:, layer, position].double().numpy()
        penalty = ridge * np.square(X).sum(axis=0).mean()
        reference = RidgeClassifier(alpha=penalty, solver="cholesky").fit(X, values[:, position])
        # it regresses on -1 and 1, not on 0 and 1
        assert_allclose(
            weights[layer, position, :-1].numpy(), reference.coef_.T / 2, rtol=1e-3, atol=1e-6
        )
        mine = X @ weights[layer, position, :-1].numpy() + weights[layer, position, -1].numpy()
        assert (mine.argmax(axis=1) == reference.predict(X)).all()


def test_states_of_a_model_are_those_at_the_variables() -> None:
    """States are those at the variables, with their values, in any batches."""
    model = LegoTransformer(
        ArchitectureSettings(n_layers=2, d_model=16, d_ff=16, heads=(Heads(learned=2),)),
        d_vocab=30, length=LENGTH, classes=1, special=(0, 1),
        generator=torch.Generator().manual_seed(0),
    ).eval()  # fmt: skip
    sentences = tokens()
    indices = torch.rand((6, LENGTH)).argsort(dim=1)[:, :4]
    values = torch.arange(24).view(6, 4)
    parts = list(probes.states(model, sentences, indices, values, batch_size=4))
    everywhere = model.read(sentences).hidden
    for sentence in range(6):
        hidden, value = parts[sentence // 4]
        expected = everywhere[sentence][:, indices[sentence]]
        torch.testing.assert_close(hidden[sentence % 4], expected)
        assert torch.equal(value[sentence % 4], values[sentence])


def test_summaries_of_layer_probes() -> None:
    """Resolved layers, linearity and violations of known accuracies."""
    accuracies = np.array([[0.96, 0.5, 0.5], [0.96, 0.94, 0.6], [0.96, 0.95, 0.7]])
    assert probes.resolve_layer(accuracies).tolist() == [0, 2, np.inf]
    assert probes.linearity(np.array([1.0, 3, 5, np.inf])) == pytest.approx(1)
    assert probes.linearity(np.array([1.0, 2, 4, 3])) == pytest.approx(0.64)
    assert np.isnan(probes.linearity(np.array([1.0, np.inf, 2])))
    assert np.isnan(probes.linearity(np.full(5, 2.0)))
    assert probes.order_violations(np.array([1, 2, 2, np.inf, 3, np.inf])) == 1


# --- evaluate.py --------------------------------------------------------------------------------


def test_loss_and_predictions_of_one_logit_and_of_several() -> None:
    """One logit and two equivalent logits have the same loss and predictions."""
    logits = torch.tensor([[[2.0], [-1.0]]])
    values = torch.tensor([[1, 1]])
    expected = (np.log1p(np.exp(-2)) + np.log1p(np.exp(1))) / 2
    assert metrics.loss(logits, values).item() == pytest.approx(expected)
    assert metrics.predict(logits).tolist() == [[1, 0]]
    two = torch.cat([torch.zeros_like(logits), logits], dim=2)  # the same as two classes
    assert metrics.loss(two, values).item() == pytest.approx(expected)
    assert metrics.predict(two).tolist() == [[1, 0]]


def test_reach_and_first_time() -> None:
    """Reach and first time of known accuracies."""
    accuracies = np.array([1.0, 0.95, 0.9, 0.6, 0.95, 0.5])
    assert metrics.reach(accuracies) == 2
    assert metrics.reach(accuracies[:3]) == 2 and metrics.reach(np.array([0.5])) == -1
    history = np.array([[1.0, 0.5, 0.5], [0.98, 0.99, 0.6], [1.0, 0.7, 0.98]])
    found = metrics.first_time(history, np.array([0, 10, 100]))
    assert found.tolist() == [0, 10, np.inf]
    assert metrics.accuracy(np.array([[0, 1], [1, 1]]), np.array([[0, 0], [1, 1]])).tolist() == [
        1.0,
        0.5,
    ]


def test_predictions_in_batches() -> None:
    """Predictions do not depend on the batch size."""
    model = LegoTransformer(
        ArchitectureSettings(
            n_layers=2, tied=True, d_model=16, d_ff=16, heads=(Heads(),), init=None
        ),
        d_vocab=30, length=LENGTH, classes=3, special=(0, 1),
        generator=torch.Generator().manual_seed(0),
    ).eval()  # fmt: skip
    sentences = tokens()
    indices = torch.arange(1, 13).expand(6, 12)
    whole = metrics.predict(model(sentences, indices, iterations=3)).numpy()
    found = metrics.predictions(model, sentences, indices, batch_size=4, iterations=3)
    assert (found == whole).all() and len(np.unique(found)) > 1
