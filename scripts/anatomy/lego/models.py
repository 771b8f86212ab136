"""Transformers that read LEGO sentences: BERT-like, ALBERT-like, and with hard-coded heads.

A `LegoTransformer` with learned heads and norms after the sublayers is BERT (untied) or ALBERT
without its embedding factorisation (tied: one layer, applied several times). Any of its heads can
be replaced by an association or convolution head (`lego_attention.py`), and the norms can come
first, which trains more easily without a long warm-up. A `LibraryTransformer` is any encoder of the
transformers library with the same classifier on top. Both have

    forward(tokens, indices)    logits at the given positions, here the clauses' variables
    read(tokens, ...)           hidden states of all layers and attention maps, in one pass
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from scripts.anatomy.lego.settings import ArchitectureSettings
from scripts.anatomy.lego_attention import Associates, MixedAttention, associates, at
from scripts.anatomy.settings import Heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # importing transformers takes seconds

EPSILON = 1e-12  # of the norms, as in BERT


@dataclass(frozen=True)
class LegoReading:
    """Hidden states and attention maps of a model on sentences.

    Attributes:
        hidden: Hidden states at the requested positions; layer 0 has the embeddings.
        maps: Attention weights of the learned heads, queries by keys, if requested.
    """

    hidden: Float[Tensor, "sentences layers places d_model"]
    maps: Float[Tensor, "sentences layers heads length length"] | None


class LegoTransformer(nn.Module):
    """An encoder with learned absolute positions and one classifier for all positions.

    Args:
        architecture: Shape of the model.
        d_vocab: Number of tokens.
        length: Number of tokens in a sentence.
        classes: Number of values of a variable; 1 for a single logit, where there are two.
        special: Tokens that association heads leave out.
        generator: Draws the initial weights.
    """

    def __init__(
        self,
        architecture: ArchitectureSettings,
        *,
        d_vocab: int,
        length: int,
        classes: int,
        special: Iterable[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        d_model, count = architecture.d_model, 1 if architecture.tied else architecture.n_layers
        self.W_E = nn.Parameter(torch.empty(d_vocab, d_model))
        self.W_pos = nn.Parameter(torch.empty(length, d_model))
        heads = architecture.heads * (count // len(architecture.heads))
        self.layers = nn.ModuleList(Layer(architecture, each) for each in heads)
        # after the embeddings as in BERT, or before the classifier of a pre-norm model
        self.norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.classifier = nn.Linear(d_model, classes)
        self.register_buffer("special", torch.tensor(sorted(special)), persistent=False)
        _draw(self, architecture.init, generator)

    def forward(
        self,
        tokens: Int64[Tensor, "sentences length"],
        indices: Int64[Tensor, "sentences indices"],
        *,
        iterations: int | None = None,
    ) -> Float[Tensor, "sentences indices classes"]:
        """Return logits at `indices`; the last layer computes nothing elsewhere."""
        x, same = self._start(tokens)
        layers = self._sequence(iterations)
        for layer in layers[:-1]:
            x, _ = layer(x, same)
        x, _ = layers[-1](x, same, indices=indices)
        return self.classify(x)

    def classify(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Return logits from hidden states of any layer."""
        return self.classifier(self.norm(hidden) if self.architecture.norm == "pre" else hidden)

    def read(
        self,
        tokens: Int64[Tensor, "sentences length"],
        indices: Int64[Tensor, "sentences indices"] | None = None,
        *,
        maps: bool = False,
        iterations: int | None = None,
    ) -> LegoReading:
        """Return hidden states of all layers, everywhere or at `indices`, and maps if requested.

        Raises:
            ValueError: Maps are requested, and layers have different numbers of learned heads.
        """
        if maps and len({layer.heads.learned for layer in self.layers}) > 1:
            raise ValueError("attention maps need the same number of learned heads in all layers")
        x, same = self._start(tokens)
        hidden, all_weights = [at(x, indices)], []
        for layer in self._sequence(iterations):
            x, weights = layer(x, same, maps=maps)
            hidden.append(at(x, indices))
            all_weights.append(weights)
        return LegoReading(
            torch.stack(hidden, dim=1), torch.stack(all_weights, dim=1) if maps else None
        )

    def _sequence(self, iterations: int | None) -> list["Layer"]:
        """Return the layers in the order in which they run."""
        if self.architecture.tied:
            return [self.layers[0]] * (iterations or self.architecture.n_layers)
        if iterations not in (None, len(self.layers)):
            raise ValueError(
                f"iterations: an untied model has {len(self.layers)} layers, got {iterations}"
            )
        return list(self.layers)

    def _start(
        self, tokens: Int64[Tensor, "sentences length"]
    ) -> tuple[Float[Tensor, "sentences length d_model"], Associates | None]:
        """Return the embeddings, and the associates, which all layers share."""
        x = functional.embedding(tokens, self.W_E) + self.W_pos[: tokens.shape[1]]
        if self.architecture.norm == "post":
            x = self.norm(x)
        x = functional.dropout(x, self.architecture.dropout, self.training)
        if any(layer.heads.association for layer in self.layers):
            return x, associates(tokens, self.special)
        return x, None


class Layer(nn.Module):
    """Attention by all kinds of heads, then a feed-forward layer."""

    def __init__(self, architecture: ArchitectureSettings, heads: Heads) -> None:
        super().__init__()
        self.heads, self.pre, self.dropout = heads, architecture.norm == "pre", architecture.dropout
        d_model = architecture.d_model
        self.mixing = MixedAttention(
            heads,
            d_model=d_model,
            window=architecture.window,
            by_channel=False,
            chained=architecture.chained,
            dropout=architecture.dropout,
        )
        self.W_in = nn.Linear(d_model, architecture.d_ff)
        self.W_out = nn.Linear(architecture.d_ff, d_model)
        self.norm_mix = nn.LayerNorm(d_model, eps=EPSILON)
        self.norm_ff = nn.LayerNorm(d_model, eps=EPSILON)

    def forward(
        self,
        x: Float[Tensor, "sentences length d_model"],
        same: Associates | None,
        *,
        indices: Int64[Tensor, "sentences indices"] | None = None,
        maps: bool = False,
    ) -> tuple[Float[Tensor, "sentences indices d_model"], Tensor | None]:
        """Return the output, everywhere or at `indices` only, and the learned heads' weights."""
        mixed, weights = self.mixing(
            self.norm_mix(x) if self.pre else x, same, indices=indices, maps=maps
        )
        x = at(x, indices) + self._drop(mixed)
        if not self.pre:
            x = self.norm_mix(x)
        inner = functional.gelu(self.W_in(self.norm_ff(x) if self.pre else x))
        x = x + self._drop(self.W_out(inner))
        return x if self.pre else self.norm_ff(x), weights

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


class LibraryTransformer(nn.Module):
    """An encoder of the transformers library, pretrained or not, with a classifier on top.

    Args:
        encoder: BertModel, AlbertModel or similar; its pooler is not used.
        classes: As for `LegoTransformer`.
        generator: Draws the classifier's initial weights.
    """

    def __init__(
        self, encoder: "PreTrainedModel", *, classes: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(encoder.config.hidden_size, classes)
        _draw(self.classifier, encoder.config.initializer_range, generator)

    def forward(
        self,
        tokens: Int64[Tensor, "sentences length"],
        indices: Int64[Tensor, "sentences indices"],
        *,
        iterations: int | None = None,
    ) -> Float[Tensor, "sentences indices classes"]:
        """Return logits at `indices`."""
        with self._iterated(iterations):
            return self.classify(at(self.encoder(tokens).last_hidden_state, indices))

    def classify(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Return logits from hidden states of any layer."""
        return self.classifier(hidden)

    def read(
        self,
        tokens: Int64[Tensor, "sentences length"],
        indices: Int64[Tensor, "sentences indices"] | None = None,
        *,
        maps: bool = False,
        iterations: int | None = None,
    ) -> LegoReading:
        """Return hidden states of all layers, everywhere or at `indices`, and maps if requested.

        Raises:
            ValueError: Maps are requested, and the model does not return any.
        """
        if maps:
            self.encoder.set_attn_implementation("eager")  # the fused one returns no maps
        with self._iterated(iterations):
            output = self.encoder(tokens, output_hidden_states=True, output_attentions=maps)
        if maps and (not output.attentions or any(layer is None for layer in output.attentions)):
            raise ValueError(f"a {self.encoder.config.model_type} returns no attention maps")
        hidden = torch.stack([at(state, indices) for state in output.hidden_states], dim=1)
        return LegoReading(hidden, torch.stack(output.attentions, dim=1) if maps else None)

    @contextmanager
    def _iterated(self, iterations: int | None) -> Iterator[None]:
        """Apply the encoder's tied layer another number of times within the context."""
        config = self.encoder.config
        trained = config.num_hidden_layers
        if iterations not in (None, trained) and config.model_type != "albert":
            raise ValueError(f"iterations: an untied model has {trained} layers, got {iterations}")
        config.num_hidden_layers = iterations or trained
        try:
            yield
        finally:
            config.num_hidden_layers = trained


LegoModel = LegoTransformer | LibraryTransformer


def _draw(module: nn.Module, init: float | None, generator: torch.Generator) -> None:
    """Draw initial weights: normal matrices, kernels of variance 1 / window, zero biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name:
                continue
            if name.endswith("bias"):
                parameter.zero_()
                continue
            scale = init or parameter.shape[1] ** -0.5
            if name.endswith("kernel"):
                scale = parameter.shape[1] ** -0.5
            parameter.normal_(0, scale, generator=generator)
