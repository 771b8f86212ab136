"""Compare training on LEGO sentences with BERT of this library and of the transformers library.

Both compute the same function: weights are copied, and logits agree to 1e-5 at the start, which is
checked. Both get the same batches, the same loss at the variables and the same optimiser, on one
thread. This library computes queries, keys and values in one product, uses plain products instead
of the fused attention kernel, and has a last layer that skips outputs that nothing reads. With
fewer layers the last point saves more.
"""

from collections.abc import Callable

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from benchmarks.comparison import Result, seconds
from scripts.anatomy import seeding
from scripts.anatomy.lego import metrics
from scripts.anatomy.lego.models import LegoTransformer, LibraryTransformer
from scripts.anatomy.lego.settings import ArchitectureSettings
from scripts.anatomy.settings import Heads
from scripts.anatomy.training import Recipe

# two chains of two, the shortest ones that counting does not solve
CLAUSES, TOKENS_PER_CLAUSE, D_VOCAB, BATCH, STEPS = 4, 3, 32, 256, 4
SHAPE = ArchitectureSettings(n_layers=3, d_model=64, d_ff=256, heads=(Heads(learned=4),))
RECIPE = Recipe(steps=STEPS, learning_rate=1e-3)


def measure() -> Result:
    """Check that both compute the same function, and time them."""
    torch.set_num_threads(1)
    length = CLAUSES * TOKENS_PER_CLAUSE + 2
    generator = seeding.torch_generator(0, "weights")
    ours = LegoTransformer(
        SHAPE, d_vocab=D_VOCAB, length=length, classes=1, special=(0, 1), generator=generator
    )
    theirs = LibraryTransformer(library_bert(ours), classes=1, generator=generator)
    theirs.classifier.load_state_dict(ours.classifier.state_dict())
    batch = sentences(length)
    with torch.inference_mode():
        torch.testing.assert_close(ours(*batch[:2]), theirs(*batch[:2]), rtol=0, atol=1e-5)
    fast, slow = seconds(trainer(ours, *batch), trainer(theirs, *batch), repeats=15)
    return Result(
        what=f"training on {length} tokens, {SHAPE.n_layers} layers of width {SHAPE.d_model}: "
        "this library, the transformers library's BertModel",
        ratio=slow / fast,
        unit="times",
        aim=1.3,
        details={
            "this library, sentences per second": STEPS * BATCH / fast,
            "BertModel, sentences per second": STEPS * BATCH / slow,
        },
        note=f"one thread; batches of {BATCH}, same weights, logits agree to 1e-5",
    )


def sentences(
    length: int,
) -> tuple[
    Int64[Tensor, "sentences length"], Int64[Tensor, "sentences n"], Int64[Tensor, "sentences n"]
]:
    """Return random tokens, the positions of the variables in random order, and values."""
    rng = seeding.numpy_generator(0, "sentences")
    tokens = rng.integers(2, D_VOCAB, (BATCH, length))
    indices = 1 + TOKENS_PER_CLAUSE * rng.random((BATCH, CLAUSES)).argsort(axis=1)
    values = rng.integers(0, 2, (BATCH, CLAUSES))
    return tuple(map(torch.from_numpy, (tokens, indices, values)))


def trainer(
    model: nn.Module,
    tokens: Int64[Tensor, "sentences length"],
    indices: Int64[Tensor, "sentences n"],
    values: Int64[Tensor, "sentences n"],
) -> Callable[[], None]:
    """Return a function that trains for some steps and continues on each call."""
    optimiser = RECIPE.build(p for p in model.parameters() if p.requires_grad)

    def train() -> None:
        for _ in range(STEPS):
            loss = metrics.loss(model(tokens, indices), values)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    return train


def library_bert(model: LegoTransformer) -> BertModel:
    """Return BERT of the transformers library with the weights of an untied post-norm model."""
    shape = model.architecture
    config = BertConfig(
        vocab_size=len(model.W_E),
        hidden_size=shape.d_model,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.heads[0].learned,
        intermediate_size=shape.d_ff,
        max_position_embeddings=len(model.W_pos),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    bert = BertModel(config, add_pooling_layer=False)
    weights = {
        "embeddings.word_embeddings.weight": model.W_E,
        "embeddings.position_embeddings.weight": model.W_pos,
        "embeddings.token_type_embeddings.weight": torch.zeros(2, shape.d_model),
    } | _named("embeddings.LayerNorm", model.norm)
    for number, layer in enumerate(model.layers):
        name = f"encoder.layer.{number}"
        thirds = zip(
            ("query", "key", "value"),
            layer.mixing.W_QKV.weight.chunk(3),
            layer.mixing.W_QKV.bias.chunk(3),
            strict=True,
        )
        for part, weight, bias in thirds:
            weights[f"{name}.attention.self.{part}.weight"] = weight
            weights[f"{name}.attention.self.{part}.bias"] = bias
        weights |= _named(f"{name}.attention.output.dense", layer.mixing.W_O)
        weights |= _named(f"{name}.attention.output.LayerNorm", layer.norm_mix)
        weights |= _named(f"{name}.intermediate.dense", layer.W_in)
        weights |= _named(f"{name}.output.dense", layer.W_out)
        weights |= _named(f"{name}.output.LayerNorm", layer.norm_ff)
    bert.load_state_dict(weights)
    return bert


def _named(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
