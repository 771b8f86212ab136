"""Compare the attention block of LEGO v0 with one of learned heads.

v0 has association and convolution heads in equal parts. A block has queries, keys and values, all
heads, and W_O. A step is forward and backward on one thread. The weights of the learned heads are
copied into BertModel of the transformers library as a second reference; both compute the same,
which is checked. Operations are counted in a forward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from benchmarks.comparison import Result, seconds
from scripts.anatomy.lego_attention import MixedAttention
from scripts.anatomy.pretraining import cost
from scripts.anatomy.pretraining.cost import Blocks
from scripts.anatomy.pretraining.settings import PretrainingVariantSettings, SizeSettings
from scripts.anatomy.settings import Heads

SIZE = SizeSettings(n_layers=1, d_model=256, d_ff=1024, n_heads=4)
D_VOCAB, LENGTH, BATCH = 4000, 512, 4
MAX_OPERATIONS = 0.5  # as a share of those of learned heads


def measure() -> Result:
    """Check that learned heads agree with BERT, and time all three blocks."""
    torch.set_num_threads(1)
    tokens = cost.text(BATCH, LENGTH, D_VOCAB)
    base, v0 = (blocks(split, tokens) for split in ("0/0/4", "2/2/0"))
    library = library_block(base.block)
    with torch.no_grad():
        torch.testing.assert_close(base.attention(), library(base.inputs), rtol=0, atol=1e-5)
    share = cost.flops(v0, "attention") / cost.flops(base, "attention")
    if share > MAX_OPERATIONS:
        raise AssertionError(f"v0 has {share:.0%} of the operations of learned heads")

    def library_step() -> None:
        out = library(base.inputs)
        out.backward(torch.ones_like(out))

    fast, slow, theirs = seconds(
        lambda: v0.step("attention"), lambda: base.step("attention"), library_step, repeats=9
    )
    return Result(
        what=f"a step of the attention block, {LENGTH} tokens, width {SIZE.d_model}: association "
        "and convolution heads, learned heads",
        ratio=100 * fast / slow,
        unit="%",
        aim=75,
        details={
            "v0": fast,
            "learned": slow,
            "learned, BertModel": theirs,
            "operations of v0 %": 100 * share,
        },
        note=f"one thread; batches of {BATCH}; learned heads agree with BertModel to 1e-5",
    )


def blocks(split: str, tokens: Tensor) -> Blocks:
    """Return the blocks of a model with these heads."""
    variant = PretrainingVariantSettings(heads=Heads.parse(split))
    model = cost.model(variant, SIZE, d_vocab=D_VOCAB, max_length=LENGTH)
    return cost.blocks_of(model.train(), tokens)


def library_block(learned: MixedAttention) -> Callable[[Tensor], Tensor]:
    """Return the attention block of the transformers library with the same weights."""
    config = BertConfig(
        hidden_size=SIZE.d_model,
        num_hidden_layers=1,
        num_attention_heads=SIZE.n_heads,
        intermediate_size=SIZE.d_ff,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    attention = BertModel(config, add_pooling_layer=False).encoder.layer[0].attention
    heads = attention.self
    with torch.no_grad():
        for name in ("weight", "bias"):
            parts = getattr(learned.W_QKV, name).chunk(3)
            for projection, part in zip((heads.query, heads.key, heads.value), parts, strict=True):
                getattr(projection, name).copy_(part)
    attention.output.dense.load_state_dict(learned.W_O.state_dict())
    return lambda x: attention.output.dense(heads(x)[0])
