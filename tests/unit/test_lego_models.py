"""LEGO models against the transformers library, whichever kinds of heads they have."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AlbertConfig, AlbertModel, PreTrainedModel

from benchmarks.lego import library_bert
from scripts.anatomy.lego.models import LegoTransformer, LibraryTransformer
from scripts.anatomy.lego.settings import ArchitectureSettings
from scripts.anatomy.lego_attention import at
from scripts.anatomy.settings import Heads

D_VOCAB, LENGTH, D_MODEL, D_FF, LAYERS = 19, 14, 24, 40, 3
SPECIAL = (0, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sentences(count: int = 5, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random tokens between special ones, with repeats, and four places of each sentence."""
    tokens = torch.randint(2, D_VOCAB, (count, LENGTH), generator=generator(seed))
    tokens[:, 0], tokens[:, -1] = SPECIAL
    indices = torch.rand((count, LENGTH), generator=generator(seed + 1)).argsort(dim=1)[:, :4]
    return tokens, indices


def build(*heads: Heads, classes: int = 6, seed: int = 0, **options: object) -> LegoTransformer:
    """A random model in which every parameter matters."""
    shape = {"n_layers": LAYERS, "d_model": D_MODEL, "d_ff": D_FF, "init": None}
    architecture = ArchitectureSettings(heads=heads or (Heads(learned=4),), **shape | options)
    model = LegoTransformer(
        architecture, d_vocab=D_VOCAB, length=LENGTH, classes=classes, special=SPECIAL,
        generator=generator(seed),
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(seed + 7)) / 5)
    return model.eval()


def copied(target: Tensor, source: Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)


def library_albert(model: LegoTransformer) -> PreTrainedModel:
    """The library's ALBERT with the same weights; its factor of the embeddings is the identity."""
    albert = AlbertModel(
        AlbertConfig(
            vocab_size=D_VOCAB, embedding_size=D_MODEL, hidden_size=D_MODEL,
            num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=D_FF,
            max_position_embeddings=LENGTH, hidden_act="gelu", hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )  # fmt: skip
    embeddings, mapping = albert.embeddings, albert.encoder.embedding_hidden_mapping_in
    embeddings.token_type_embeddings.weight.detach().zero_()
    copied(embeddings.word_embeddings.weight, model.W_E)
    copied(embeddings.position_embeddings.weight, model.W_pos)
    embeddings.LayerNorm.load_state_dict(model.norm.state_dict())
    copied(mapping.weight, torch.eye(D_MODEL))
    mapping.bias.detach().zero_()
    (ours,), theirs = model.layers, albert.encoder.albert_layer_groups[0].albert_layers[0]
    for part, projection in enumerate(
        (theirs.attention.query, theirs.attention.key, theirs.attention.value)
    ):
        rows = slice(part * D_MODEL, (part + 1) * D_MODEL)
        copied(projection.weight, ours.mixing.W_QKV.weight[rows])
        copied(projection.bias, ours.mixing.W_QKV.bias[rows])
    pairs = [
        (theirs.attention.dense, ours.mixing.W_O),
        (theirs.attention.LayerNorm, ours.norm_mix),
        (theirs.ffn, ours.W_in),
        (theirs.ffn_output, ours.W_out),
        (theirs.full_layer_layer_norm, ours.norm_ff),
    ]
    for target, source in pairs:
        target.load_state_dict(source.state_dict())
    return albert.eval()


@pytest.mark.parametrize("tied", [False, True], ids=["bert", "albert"])
def test_same_mathematics_as_the_library(tied: bool) -> None:
    """Outputs equal those of the library's BERT and ALBERT with the same weights."""
    ours = build(tied=tied)
    theirs = LibraryTransformer(
        (library_albert if tied else library_bert)(ours), classes=6, generator=generator()
    ).eval()
    theirs.classifier.load_state_dict(ours.classifier.state_dict())
    tokens, indices = sentences()
    with torch.inference_mode():
        expected, found = theirs.read(tokens, maps=True), ours.read(tokens, maps=True)
        torch.testing.assert_close(found.hidden, expected.hidden, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.maps, expected.maps, rtol=0, atol=1e-5)
        logits = ours(tokens, indices)
        assert logits.std() > 0.1
        torch.testing.assert_close(logits, theirs(tokens, indices), rtol=0, atol=1e-5)


ALL_KINDS = [
    {"heads": [Heads(learned=4)]},
    {"heads": [Heads(learned=0, association=3)], "norm": "pre"},
    {"heads": [Heads(learned=0, convolution=4)]},
    {"heads": [Heads(learned=2, association=1, convolution=1)], "norm": "pre", "chained": True},
    {"heads": [Heads(learned=1, association=2, convolution=1)], "tied": True, "norm": "pre"},
    {"heads": [Heads(learned=4), Heads(learned=1, association=2), Heads(learned=2)]},
]


@pytest.mark.parametrize("options", ALL_KINDS, ids=range(len(ALL_KINDS)))
def test_logits_are_those_of_the_full_pass(options: dict) -> None:
    """Logits at some positions equal those of a pass over all positions."""
    options = dict(options)
    model = build(*options.pop("heads"), **options).double()
    tokens, indices = sentences()
    read = model.read(tokens, indices)
    last = read.hidden[:, -1]
    if options.get("norm") == "pre":
        last = model.norm(last)
    torch.testing.assert_close(model(tokens, indices), model.classifier(last))
    everywhere = model.read(tokens).hidden
    assert read.hidden.shape == (5, LAYERS + 1, 4, D_MODEL)
    for layer in range(LAYERS + 1):
        torch.testing.assert_close(read.hidden[:, layer], at(everywhere[:, layer], indices))


@pytest.mark.parametrize("options", ALL_KINDS, ids=range(len(ALL_KINDS)))
def test_every_parameter_is_trained(options: dict) -> None:
    """Every parameter has a nonzero gradient."""
    options = dict(options)
    model = build(*options.pop("heads"), **options)
    tokens, indices = sentences()
    model(tokens, indices).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_a_chained_layer_walks_one_step() -> None:
    """A chained layer moves a value one step along the chain."""
    heads = Heads(learned=0, association=1, convolution=1)
    for chained in (False, True):
        model = build(heads, n_layers=1, chained=chained, norm="pre").double()
        tokens, indices = sentences(1)
        tokens[0, :] = torch.arange(2, 2 + LENGTH)  # all different but for one pair
        tokens[0, 3] = tokens[0, 12]

        def output(model: LegoTransformer = model, tokens: Tensor = tokens) -> Tensor:
            return model(tokens, torch.tensor([[2]]))  # one place before the pair's first

        before = output()
        with torch.no_grad():  # what is at the other place of the pair, far away
            model.W_pos[12] += torch.randn(D_MODEL, generator=generator())
        assert torch.equal(before, output()) != chained


def test_iterations_of_a_tied_model() -> None:
    """More iterations of a tied model apply its layer more often."""
    short, long = build(tied=True, n_layers=2), build(tied=True, n_layers=5)
    long.load_state_dict(short.state_dict())
    tokens, indices = sentences()
    torch.testing.assert_close(short(tokens, indices, iterations=5), long(tokens, indices))
    assert short.read(tokens, iterations=5).hidden.shape[1] == 6
    with pytest.raises(ValueError, match="iterations.*got 4"):
        build()(tokens, indices, iterations=4)


def test_initial_weights_depend_on_the_seed() -> None:
    """Equal seeds give equal initial weights, of the configured scale."""
    models = []
    for seed, noise in ((3, 0), (3, 1), (4, 0)):
        torch.manual_seed(noise)  # the global generator must not matter
        model = LegoTransformer(
            ArchitectureSettings(n_layers=2, d_model=64, d_ff=256, heads=(Heads(),)),
            d_vocab=30,
            length=20,
            classes=1,
            special=SPECIAL,
            generator=generator(seed),
        )
        models.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    assert torch.equal(models[0], models[1]) and not torch.equal(models[0], models[2])
    matrix = model.layers[0].W_in.weight
    assert matrix.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.layers[0].W_in.bias.abs().max() == 0


def test_dropout_only_in_training() -> None:
    """Dropout is applied in training mode only."""
    model = build(dropout=0.3)
    tokens, indices = sentences()
    assert torch.equal(model(tokens, indices), model(tokens, indices))
    model.train()
    torch.manual_seed(0)
    assert not torch.equal(model(tokens, indices), model(tokens, indices))
    assert (model.read(tokens, maps=True).maps == 0).float().mean().item() > 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 30}, "d_model.*got 30"),
        ({"heads": [{"learned": 0}]}, "d_model.*got 32"),
        ({"window": 4}, "window.*got 4"),
        ({"chained": True}, "chained: needs association and convolution heads"),
        ({"heads": [{}, {}]}, "heads.*got 2"),
        ({"heads": [{}, {}, {}], "tied": True}, "heads.*got 3"),
    ],
)
def test_architectures_that_are_refused(options: dict, message: str) -> None:
    """Contradictory architectures are refused with their key."""
    plain = {"n_layers": 3, "d_model": 32, "heads": [{}]}
    with pytest.raises(ValidationError, match=message):
        ArchitectureSettings(**plain | options)


def test_maps_of_unlike_layers() -> None:
    """Maps of layers with different numbers of learned heads are refused."""
    model = build(Heads(learned=4), Heads(learned=1, association=2), Heads(learned=2))
    with pytest.raises(ValueError, match="same number of learned heads"):
        model.read(sentences()[0], maps=True)
