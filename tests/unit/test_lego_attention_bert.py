"""Hard-coded heads inside the transformers library's models: same numbers, saved and loaded."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from scripts.anatomy.lego_attention import MixedAttention
from scripts.anatomy.lego_attention_bert import KEY, from_pretrained, replace_attention
from scripts.anatomy.settings import Heads

D_VOCAB, LONGEST = 40, 70
PAD, CLS, SEP, MASK, FIRST = 0, 4, 2, 3, 5  # 1 is RoBERTa's padding
SHAPE = {
    "vocab_size": D_VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": LONGEST + 2, "type_vocab_size": 1,
}  # fmt: skip


def build(
    kind: type[PreTrainedModel] = BertForMaskedLM,
    config: type = BertConfig,
    split: str | None = None,
    **options: object,
) -> PreTrainedModel:
    """A tiny model whose attention is far from uniform; replaced if a split is given."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config(**SHAPE, initializer_range=0.3)).eval()
        if split is not None:
            given = {"special": (CLS, SEP), "mask": MASK} | options
            replace_attention(model, heads=Heads.parse(split), **given)
    return model


def batch(lengths: tuple[int, ...] = (70, 41, 25), pad: int = PAD) -> tuple[Tensor, Tensor]:
    """Texts of unequal length, and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(FIRST, D_VOCAB, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids[:, 0], ids[:, 7] = CLS, SEP
    return ids.masked_fill(mask == 0, pad), mask


def states(model: PreTrainedModel, *args: Tensor, **kwargs: Tensor) -> Tensor:
    return model.base_model(*args, **kwargs).last_hidden_state


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (BertModel, BertConfig),
        (BertForMaskedLM, BertConfig),
        (BertForSequenceClassification, BertConfig),
        (RobertaModel, RobertaConfig),
        (ElectraModel, ElectraConfig),
    ],
)
def test_learned_heads_alone_keep_the_output(kind: type, config: type) -> None:
    """A model with learned heads alone has the output of the original model."""
    model = build(kind, config)
    ids, mask = batch(pad=model.config.pad_token_id)
    replaced = copy.deepcopy(model)
    replace_attention(replaced, heads=Heads.parse("0/0/4"))
    there = mask.bool()
    with torch.no_grad():
        expected = states(model, ids, attention_mask=mask)[there]
        assert expected.std() > 0.5
        for found in (states(replaced, ids, mask), states(replaced, input_ids=ids)):
            torch.testing.assert_close(found[there], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("split", ["2/2/0", "1/1/2", "4/0/0", "0/4/0"])
def test_padding_changes_nothing(split: str) -> None:
    """The states of a text do not depend on the texts beside it."""
    model = build(split=split)
    ids, mask = batch()
    with torch.no_grad():
        batched = model(ids, attention_mask=mask).logits
        for row, length in enumerate(mask.sum(dim=1)):
            alone = model(ids[row : row + 1, :length]).logits
            torch.testing.assert_close(batched[row, :length], alone[0], rtol=0, atol=1e-4)
        torch.testing.assert_close(model(ids).logits[mask > 0], batched[mask > 0])


def reach(model: PreTrainedModel, ids: Tensor, source: int) -> set[int]:
    """The places whose state in a one-layer model depends on another position at `source`."""
    position = torch.arange(ids.shape[1])[None]
    moved = position.clone()
    moved[0, source] = LONGEST
    with torch.no_grad():
        before, after = (states(model, ids, position_ids=one) for one in (position, moved))
    changed = (before - after).abs().amax(dim=2)[0] > 1e-6
    return set(changed.nonzero().flatten().tolist())


@pytest.mark.parametrize("length", [10, 50], ids=["short", "long"])
def test_associates(length: int) -> None:
    """Special tokens and masked positions do not associate; masks do on demand."""
    ids = torch.arange(FIRST, FIRST + length)[None] % 30 + FIRST
    ids[0, :10] = torch.tensor([CLS, 36, MASK, 36, SEP, MASK, SEP, 36, CLS, 37])
    words, masks = {1, 3, 7}, {2, 5}
    for matches in (False, True):
        model = build(BertModel, split="4/0/0", mask_matches=matches)
        del model.encoder.layer[1:]
        assert reach(model, ids, 1) == words
        assert reach(model, ids, 4) == {4}
        assert reach(model, ids, 0) == {0}
        assert reach(model, ids, 2) == (masks if matches else {2})


def test_reach_of_a_convolution() -> None:
    """A convolution reads exactly the positions in its window."""
    model = build(BertModel, split="0/4/0", window=5)
    del model.encoder.layer[1:]
    ids, _ = batch((50,))
    assert reach(model, ids, 20) == {18, 19, 20, 21, 22}


def test_save_and_load(tmp_path: Path) -> None:
    """A saved model loads with the same settings and outputs."""
    model = build(split="1/1/2", window=7, by_channel=False, mask_matches=True)
    ids, mask = batch()
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text("utf-8"))[KEY]
    assert written["heads"] == {"association": 1, "convolution": 1, "learned": 2}
    assert not list(tmp_path.glob("*.bin")) and not list(tmp_path.glob("*.py"))
    loaded = from_pretrained(tmp_path, BertForMaskedLM)
    assert getattr(loaded.config, KEY) == getattr(model.config, KEY)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert torch.equal(loaded.bert.excluded, model.bert.excluded)
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits
        assert torch.equal(loaded(ids, attention_mask=mask).logits, expected)
    again = tmp_path / "again"
    loaded.save_pretrained(again)
    assert (again / "config.json").read_text() == (tmp_path / "config.json").read_text()


def test_folders_that_are_refused(tmp_path: Path) -> None:
    """A folder without a replaced model is refused."""
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        from_pretrained(tmp_path, BertForMaskedLM)
    build().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no lego_attention: no attention was replaced"):
        from_pretrained(tmp_path, BertForMaskedLM)


@pytest.mark.parametrize("split", ["0/0/4", "2/2/0", "1/1/2"])
def test_a_training_step_changes_every_parameter(split: str) -> None:
    """A training step changes every parameter."""
    model = build(split=split).train()
    ids, mask = batch()
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
    optimiser.step()
    changed = {name: not torch.equal(before[name], w) for name, w in model.named_parameters()}
    assert [name for name, yes in changed.items() if not yes] == []


def test_gradient_checkpointing() -> None:
    """Gradient checkpointing gives the same gradients."""
    ids, mask = batch()
    gradients = []
    for checkpointing in (False, True):
        model = build(split="1/1/2").train()  # the library checkpoints in training alone
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout | MixedAttention):
                part.eval()
        if checkpointing:
            model.activation_checkpointing_enable()
            assert model.bert.encoder.layer[0].gradient_checkpointing
        model(ids, attention_mask=mask, labels=ids).loss.backward()
        gradients.append([weights.grad for weights in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


def test_dropout_only_in_training() -> None:
    """Dropout is applied in training mode only."""
    model = build(split="0/0/4")
    ids, _ = batch()
    with torch.no_grad():
        assert torch.equal(model(ids).logits, model(ids).logits)
        assert not torch.equal(model.train()(ids).logits, model(ids).logits)


def test_half_precision() -> None:
    """Training works under bfloat16 autocast."""
    model = build(split="1/1/2")
    ids, mask = batch()
    with torch.no_grad():
        exact = states(model, ids, attention_mask=mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(ids, attention_mask=mask, labels=ids).loss
        found = states(model, ids, attention_mask=mask)
    loss.backward()
    assert ((found - exact)[mask > 0]).abs().mean() < 0.05
    with torch.no_grad():  # and the whole model in it
        model.bfloat16()(ids, attention_mask=mask)


def test_the_model_compiles_as_a_whole() -> None:
    """torch.compile compiles the model without a graph break."""
    torch._dynamo.reset()
    model = build(split="1/1/2")
    ids, mask = batch()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    found = compiled(ids, attention_mask=mask).logits
    torch.testing.assert_close(found, model(ids, attention_mask=mask).logits)
    found.sum().backward()


def test_initial_weights_are_shared_by_the_variants() -> None:
    """Variants of one seed have the same initial weights where they share parameters."""
    base, mixed = build(split="0/0/4"), build(split="1/1/2")
    assert torch.equal(base.bert.embeddings.word_embeddings.weight,
                       mixed.bert.embeddings.word_embeddings.weight)  # fmt: skip
    ours, theirs = (m.bert.encoder.layer[1].attention.self.mixing for m in (mixed, base))
    assert torch.equal(ours.W_O.weight, theirs.W_O.weight)
    assert torch.equal(ours.W_QKV.weight[-32:], theirs.W_QKV.weight[-32:])  # values
    assert torch.equal(ours.W_QKV.weight[:16], theirs.W_QKV.weight[:16])  # queries of two heads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "2/2/2"}, r"the split 2/2/2 .* has 6 heads, a layer has 4"),
        ({"split": "1/1/2", "window": 4}, "window.*got 4"),
        ({"split": "1/1/2", "kind": AlbertModel, "config": AlbertConfig}, "of AlbertModel cannot"),
    ],
)
def test_replacements_that_are_refused(options: dict, message: str) -> None:
    """Arguments that do not fit the model are refused with their name."""
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_models_whose_attention_cannot_be_replaced() -> None:
    """Decoders and models with another attention are refused."""
    heads = Heads.parse("1/1/2")
    distil = DistilBertModel(DistilBertConfig(vocab_size=9, dim=8, n_layers=1, n_heads=4))
    with pytest.raises(ValueError, match="attention of DistilBertModel cannot be replaced"):
        replace_attention(distil, heads=heads)
    decoder = BertModel(BertConfig(**SHAPE, is_decoder=True))
    with pytest.raises(ValueError, match="attention of BertModel cannot be replaced: it is a dec"):
        replace_attention(decoder, heads=heads)
    model = build(split="1/1/2")
    with pytest.raises(ValueError, match="this BertForMaskedLM has already been replaced"):
        replace_attention(model, heads=heads)
    without = BertModel(BertConfig(**SHAPE, pad_token_id=None))
    with pytest.raises(ValueError, match="^pad: "):
        replace_attention(without, heads=heads)


def test_calls_that_are_refused() -> None:
    """Calls without ids, with maps, or with masks of another shape are refused."""
    model = build(split="1/1/2")
    ids, mask = batch()
    with pytest.raises(ValueError, match="inputs_embeds: the attention compares tokens"):
        model(inputs_embeds=torch.zeros(1, 5, 32))
    with pytest.raises(ValueError, match="output_attentions: a model with replaced attention"):
        model(ids, output_attentions=True)
    with pytest.raises(ValueError, match=r"attention_mask.*got .3, 1, 70"):
        model(ids, attention_mask=mask[:, None])
    with pytest.raises(ValueError, match="called by the model"):
        model.bert.encoder.layer[0](torch.zeros(1, 5, 32))
