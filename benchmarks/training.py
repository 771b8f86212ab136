"""Compare training of V2 with the compact model and with BERT of the transformers library.

V2 trains only W_V, on one-hot embeddings under uniform attention. The baseline is BERT of the
library with every other part switched off: word embeddings are the frozen identity; positions,
token types, W_Q and W_K are zero, so that attention is uniform; norms, residual connections, feed-
forward layer and head are bypassed. It computes the same function: loss and gradient of W_V agree
on one batch at the start and after training, which is checked. Both train on the same masked
batches with the same optimiser on one thread. Times include drawing masks, and both are read out at
the selected positions only.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from benchmarks.comparison import Result, default_config, seconds
from scripts.anatomy import seeding
from scripts.anatomy.topic import corpora, experiment
from scripts.anatomy.topic.masking import MaskedBatch, mask
from scripts.anatomy.topic.model import TopicTransformer, objective
from scripts.anatomy.topic.settings import TopicVariantSettings

STEPS = 40
SEED = 0


def measure() -> Result:
    """Check that both compute the same function, and time them."""
    torch.set_num_threads(1)
    topic = default_config().topic
    variant = topic.variants["value_cross_entropy"]
    settings = topic.corpora[variant.corpora[0]]
    corpus = corpora.sample(settings, seeding.numpy_generator(SEED, "corpus"))
    batches = batches_of(corpus, variant)
    compact = experiment.build(variant, corpus, SEED)
    bert = SwitchedOffBert(corpus.d_vocab, corpus.train.shape[1])
    check_same(compact, bert, batches(0), variant)
    ours, theirs = seconds(
        trainer(compact, variant, batches), trainer(bert, variant, batches), repeats=5
    )
    check_same(compact, bert, batches(0), variant)
    documents = STEPS * variant.batch
    return Result(
        what="training V2, documents per second: compact model, BERT with parts switched off",
        ratio=theirs / ours,
        unit="times",
        aim=None,
        details={
            "compact, documents per second": documents / ours,
            "BERT, documents per second": documents / theirs,
        },
        note="one thread; same batches, loss and gradient",
    )


class SwitchedOffBert(nn.Module):
    """BERT of the transformers library as a function of W_V alone."""

    def __init__(self, d_vocab: int, max_length: int) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=d_vocab,
            hidden_size=d_vocab,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=d_vocab,
            max_position_embeddings=max_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.bert = BertModel(config, add_pooling_layer=False).requires_grad_(False)
        embeddings, layer = self.bert.embeddings, self.bert.encoder.layer[0]
        with torch.no_grad():
            embeddings.word_embeddings.weight.copy_(torch.eye(d_vocab))
        attention = layer.attention.self
        off = embeddings.position_embeddings, embeddings.token_type_embeddings
        for part in (*off, attention.query, attention.key, attention.value):
            for parameter in part.parameters():
                nn.init.zeros_(parameter)
        embeddings.LayerNorm = nn.Identity()
        layer.attention.output = _FirstOnly()
        layer.intermediate = nn.Identity()
        layer.output = _FirstOnly()
        self.W_V = attention.value.weight.requires_grad_(True)

    def forward(self, batch: MaskedBatch) -> Float[Tensor, "selected d_vocab"]:
        """Return outputs at the selected positions."""
        hidden = self.bert(batch.observed, attention_mask=batch.attended.long())
        return hidden.last_hidden_state[batch.selected]


class _FirstOnly(nn.Module):
    """Replace projection, norm and residual connection: return the first input."""

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return hidden


def batches_of(
    corpus: corpora.Corpus, variant: TopicVariantSettings
) -> Callable[[int], MaskedBatch]:
    """Return a function that gives the masked batch of a step."""
    tokens = torch.from_numpy(corpus.train.astype(np.int64))

    def batch(step: int) -> MaskedBatch:
        first = step * variant.batch % (len(tokens) - variant.batch)
        generator = seeding.torch_generator(SEED, "mask", step)
        rows = tokens[first : first + variant.batch]
        return mask(rows, variant.masking, corpus.d_vocab, generator)

    return batch


def loss_of(
    model: nn.Module, batch: MaskedBatch, variant: TopicVariantSettings
) -> Float[Tensor, ""]:
    """Return the loss of the variant."""
    if isinstance(model, TopicTransformer):
        output, index = model.distinct(batch)
    else:
        output = model(batch)
        index = torch.arange(len(output))
    labels = (batch.target, batch.document)
    return objective(output, index, *labels, loss=variant.loss, average=variant.average)


def trainer(
    model: nn.Module, variant: TopicVariantSettings, batches: Callable[[int], MaskedBatch]
) -> Callable[[], None]:
    """Return a function that trains for some steps and continues on each call."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = experiment.recipe(variant).build(trained)

    def train() -> None:
        for step in range(STEPS):
            loss = loss_of(model, batches(step), variant)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    return train


def check_same(
    compact: TopicTransformer,
    bert: SwitchedOffBert,
    batch: MaskedBatch,
    variant: TopicVariantSettings,
) -> None:
    """Copy W_V to BERT; raise AssertionError unless loss and gradient agree."""
    with torch.no_grad():
        bert.W_V.copy_(compact.W_V)
    results = []
    for model in (compact, bert):
        loss = loss_of(model, batch, variant)
        (gradient,) = torch.autograd.grad(loss, model.W_V)
        results.append((loss.detach(), gradient))
    torch.testing.assert_close(*results, rtol=0, atol=1e-4)
