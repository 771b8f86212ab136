"""Mimicking's targets and its loss, against the values of the released code's construction."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scripts.anatomy.lego import mimic
from scripts.anatomy.lego.models import LegoTransformer
from scripts.anatomy.lego.settings import ArchitectureSettings
from scripts.anatomy.lego_attention import convolution, partners
from scripts.anatomy.settings import Heads

LAYERS, LENGTH = 12, 62
VAL, EQUALS, COMMA, LITERAL, LETTER = 2, 4, 5, 6, 8  # the first id of each kind


def published_sentences(count: int = 40, n: int = 12, seed: int = 0) -> Tensor:
    """Shuffled Z2 sentences of five-token clauses between two special tokens."""
    generator = torch.Generator().manual_seed(seed)

    def shuffles(size: int) -> Tensor:
        return torch.rand((count, size), generator=generator).argsort(dim=1)

    letters, slots = shuffles(26)[:, :n] + LETTER, shuffles(n)
    bits = torch.randint(0, 2, (count, n), generator=generator)
    operand = torch.cat([LITERAL + bits[:, :1], letters[:, :-1]], dim=1)
    operator = torch.cat([torch.full((count, 1), VAL), VAL + bits[:, 1:]], dim=1)
    filled = [torch.full_like(letters, EQUALS), operator, operand, torch.full_like(letters, COMMA)]
    clauses = torch.stack([letters, *filled], dim=2)
    body = clauses.gather(1, slots[:, :, None].expand_as(clauses)).flatten(1)
    return functional.pad(functional.pad(body, (1, 0), value=0), (0, 1), value=1)


TOKENS = published_sentences()


def perfect_maps() -> Tensor:
    """Maps of heads that attend exactly as they should, without any smoothing."""
    same = partners(TOKENS).float()
    alone = ~same.any(dim=2, keepdim=True)
    associating = torch.where(alone, 1 / LENGTH, same / same.sum(dim=2, keepdim=True).clamp(min=1))
    weights = convolution(torch.tensor([mimic.WEIGHTS]), LENGTH)
    convolving = (weights / weights.sum(dim=2, keepdim=True)).expand_as(associating)
    heads = torch.stack([convolving, associating], dim=1)
    return heads[:, None].expand(-1, LAYERS, -1, -1, -1)


def dropped(maps: Tensor) -> Tensor:
    """Attention as a model in training mode gives it, a tenth of it dropped."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return functional.dropout(maps.contiguous(), 0.1)


UNIFORM = torch.full((len(TOKENS), LAYERS, 2, LENGTH, LENGTH), 1 / LENGTH)


def test_association_target_of_a_published_sentence() -> None:
    """The association target of a sentence has the released code's values."""
    target = mimic.association_target(TOKENS)
    torch.testing.assert_close(target.sum(dim=2), torch.ones(len(TOKENS), LENGTH))
    count = partners(TOKENS).sum(dim=2)
    of_pairs = target[count == 1].sort(dim=1, descending=True).values
    assert of_pairs[:, 0].numpy() == pytest.approx(0.943, abs=5e-4)
    assert of_pairs[:, 1:].numpy() == pytest.approx(9.4e-4, abs=5e-6)
    punctuation = target[(TOKENS == EQUALS) | (TOKENS == COMMA)]
    assert len(punctuation) == 24 * len(TOKENS)
    assert punctuation.max(dim=1).values.numpy() == pytest.approx(0.0905, abs=5e-5)
    assert ((punctuation > 0.09).sum(dim=1) == 11).all()
    alone = (TOKENS < VAL) | ((TOKENS >= LITERAL) & (TOKENS < LETTER))
    alone |= (TOKENS >= LETTER) & (count == 0)
    assert (alone.sum(dim=1) == 4).all()  # both special tokens, root literal, leaf letter
    torch.testing.assert_close(target[alone], torch.full((4 * len(TOKENS), LENGTH), 1 / LENGTH))


def test_convolution_target() -> None:
    """The convolution target has the released code's window."""
    target = mimic.convolution_target(LENGTH)
    torch.testing.assert_close(target.sum(dim=1), torch.ones(LENGTH))
    window = [0.0995, 0.1989, 0.3976, 0.1989, 0.0995]
    assert target[30, 28:33].numpy() == pytest.approx(window, abs=5e-5)
    assert target[30, 40].item() == pytest.approx(1e-4, rel=0.01)
    assert target[0, :3].numpy() == pytest.approx([0.567, 0.283, 0.142], abs=5e-4)


@pytest.mark.parametrize(
    ("maps", "association", "convolution"),
    [
        (UNIFORM, 38.9, 53.8),
        (dropped(UNIFORM), 39.9, 54.8),
        (perfect_maps(), 0.43, 0.88),
        (dropped(perfect_maps()), 2.34, 2.29),
    ],
    ids=["uniform", "uniform with dropout", "perfect", "perfect with dropout"],
)
def test_loss_of_known_maps(maps: Tensor, association: float, convolution: float) -> None:
    """Perfect and uniform maps have the released code's losses."""
    # which weights are dropped varies a sentence's loss by some 0.2
    tolerance = 0.1 if 2 < association < 3 else 0.06
    found = [
        mimic.loss(maps, TOKENS, patterns=[pattern]).item()
        for pattern in ("association", "convolution")
    ]
    assert found == pytest.approx([association, convolution], abs=tolerance)
    assert mimic.loss(maps, TOKENS).item() == pytest.approx(sum(found), rel=1e-5)


def test_the_model_is_on_the_left_of_the_divergence() -> None:
    """The divergence is KL(model || target)."""
    model, target = torch.tensor([[0.7, 0.3]]).double(), torch.tensor([[0.2, 0.8]]).double()
    smooth = (model + 1e-3) / 1.002
    expected = functional.kl_div(target.log(), smooth, reduction="sum")
    assert mimic.divergence(model, target).item() == pytest.approx(expected.item())


def test_each_pattern_has_its_own_head() -> None:
    """Each pattern gives gradients to its own head only."""
    maps = UNIFORM[:2, :3].repeat(1, 1, 2, 1, 1).requires_grad_()
    for pattern, head in (("convolution", 0), ("association", 1)):
        (gradient,) = torch.autograd.grad(mimic.loss(maps, TOKENS[:2], patterns=[pattern]), maps)
        touched = gradient.abs().amax(dim=(0, 3, 4)) > 0
        assert touched[:, head].all() and touched.sum() == 3, pattern


def test_shuffled_targets_have_as_many_partners_all_drawn_anew() -> None:
    """Shuffled targets keep the number of partners."""
    other = mimic.shuffled(TOKENS, torch.Generator().manual_seed(0))
    assert torch.equal(other.sort(dim=1).values, TOKENS.sort(dim=1).values)
    assert torch.equal(other, mimic.shuffled(TOKENS, torch.Generator().manual_seed(0)))
    right, wrong = partners(TOKENS), partners(other)
    assert torch.equal(right.sum(dim=(1, 2)), wrong.sum(dim=(1, 2)))
    by_chance = right.float().mean().item()
    assert (right & wrong).float().mean().item() / by_chance == pytest.approx(by_chance, rel=0.1)


def test_a_model_with_one_head_cannot_mimic() -> None:
    """A model with one learned head is refused."""
    with pytest.raises(ValueError, match="2 learned heads.*got 1"):
        mimic.loss(UNIFORM[:, :, :1], TOKENS)


def test_a_network_learns_the_patterns() -> None:
    """Training on the loss brings both patterns."""
    model = LegoTransformer(
        ArchitectureSettings(n_layers=1, d_model=32, d_ff=32, heads=(Heads(learned=2),), init=None),
        d_vocab=LETTER + 26, length=20, classes=1, special=(0, 1),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(120):
        tokens = torch.randint(2, 14, (32, 20), generator=torch.Generator().manual_seed(step))
        loss = mimic.loss(model.read(tokens, maps=True).maps, tokens)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
