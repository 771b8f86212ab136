"""Transformers that read LEGO sentences: BERT-like, ALBERT-like, and with hard-coded heads.

A `LegoTransformer` with learned heads and norms after the sublayers is BERT (untied) or ALBERT
without its embedding factorisation (tied: one layer, applied several times). Any of its heads can
be replaced by an association or convolution head (`attention.py`), and the norms can come first,
which is easier to train without a long warm-up. A `LibraryTransformer` is any encoder of the
transformers library with the same head on top. Both have

    forward(tokens, places)     logits at the places asked for, here the clauses' variables
    read(tokens, ...)           hidden states of all layers and attention maps, in one pass
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from scripts.anatomy.lego.attention import association, attend, convolution, convolve
from scripts.anatomy.lego.settings import Architecture, Heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # importing transformers takes seconds

EPSILON = 1e-12  # of the norms, as BERT has it


@dataclass(frozen=True)
class Reading:
    """What a model does on sentences, layer by layer.

    Attributes:
        hidden: Hidden states; layer 0 are the embeddings. At the places asked for, in their order.
        maps: Attention weights of the learned heads, queries by keys, if they were asked for.
    """

    hidden: Float[Tensor, "sentences layers places d_model"]
    maps: Float[Tensor, "sentences layers heads length length"] | None


class LegoTransformer(nn.Module):
    """An encoder with learned absolute positions and one classifier for all places.

    Args:
        architecture: Its shape.
        d_vocab: Number of tokens.
        length: Number of places in a sentence.
        classes: Values that a variable can have; 1 for a single logit, where there are two.
        special: Tokens that association heads leave out: no word of the task.
        generator: Draws the initial weights.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        d_vocab: int,
        length: int,
        classes: int,
        special: Iterable[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        d_model, count = architecture.d_model, 1 if architecture.tied else architecture.layers
        self.W_E = nn.Parameter(torch.empty(d_vocab, d_model))
        self.W_pos = nn.Parameter(torch.empty(length, d_model))
        heads = architecture.heads * (count // len(architecture.heads))
        self.layers = nn.ModuleList(Layer(architecture, each) for each in heads)
        # BERT's comes after the embeddings, that of a pre-norm model before the classifier
        self.norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.classifier = nn.Linear(d_model, classes)
        self.register_buffer("special", torch.tensor(sorted(special)), persistent=False)
        _draw(self, architecture.init, generator)

    def forward(
        self,
        tokens: Int64[Tensor, "sentences length"],
        places: Int64[Tensor, "sentences places"],
        *,
        iterations: int | None = None,
    ) -> Float[Tensor, "sentences places classes"]:
        """Logits at the places asked for; the last layer computes nothing at the others."""
        x, same = self._start(tokens)
        layers = self._sequence(iterations)
        for layer in layers[:-1]:
            x, _ = layer(x, same)
        x, _ = layers[-1](x, same, places=places)
        return self.classify(x)

    def classify(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Logits from hidden states of any layer."""
        return self.classifier(self.norm(hidden) if self.architecture.norm == "pre" else hidden)

    def read(
        self,
        tokens: Int64[Tensor, "sentences length"],
        places: Int64[Tensor, "sentences places"] | None = None,
        *,
        maps: bool = False,
        iterations: int | None = None,
    ) -> Reading:
        """Hidden states of all layers, everywhere or at `places`, and maps if asked for.

        Raises:
            ValueError: Maps are wanted of a model whose layers have different numbers of learned
                heads.
        """
        if maps and len({layer.heads.learned for layer in self.layers}) > 1:
            raise ValueError("attention maps need the same number of learned heads in all layers")
        x, same = self._start(tokens)
        hidden, found = [at(x, places)], []
        for layer in self._sequence(iterations):
            x, weights = layer(x, same, maps=maps)
            hidden.append(at(x, places))
            found.append(weights)
        return Reading(torch.stack(hidden, dim=1), torch.stack(found, dim=1) if maps else None)

    def _sequence(self, iterations: int | None) -> list["Layer"]:
        """The layers in the order in which they run."""
        if self.architecture.tied:
            return [self.layers[0]] * (iterations or self.architecture.layers)
        if iterations not in (None, len(self.layers)):
            raise ValueError(f"an untied model of {len(self.layers)} layers has no iterations")
        return list(self.layers)

    def _start(
        self, tokens: Int64[Tensor, "sentences length"]
    ) -> tuple[Float[Tensor, "sentences length d_model"], Tensor | None]:
        """Embeddings, and the association map that all layers share."""
        x = functional.embedding(tokens, self.W_E) + self.W_pos[: tokens.shape[1]]
        if self.architecture.norm == "post":
            x = self.norm(x)
        x = functional.dropout(x, self.architecture.dropout, self.training)
        if any(layer.heads.association for layer in self.layers):
            return x, association(tokens, self.special).to(x.dtype)
        return x, None


class Layer(nn.Module):
    """Mixing over places by all kinds of heads, then a feed-forward layer."""

    def __init__(self, architecture: Architecture, heads: Heads) -> None:
        super().__init__()
        self.heads, self.pre, self.dropout = heads, architecture.norm == "pre", architecture.dropout
        d_model, d_head = architecture.d_model, architecture.d_model // heads.total
        self.widths = [d_head * kind for kind in (heads.learned, heads.association)]
        self.widths.append(d_model - sum(self.widths))  # of the convolution heads
        # queries and keys of the learned heads, values of all: one product
        self.W_QKV = nn.Linear(d_model, 2 * self.widths[0] + d_model)
        self.W_O = nn.Linear(d_model, d_model)
        self.W_in = nn.Linear(d_model, architecture.d_ff)
        self.W_out = nn.Linear(architecture.d_ff, d_model)
        self.norm_mix = nn.LayerNorm(d_model, eps=EPSILON)
        self.norm_ff = nn.LayerNorm(d_model, eps=EPSILON)
        if heads.convolution:
            self.kernel = nn.Parameter(torch.empty(heads.convolution, architecture.window))
        self.chained = architecture.chained
        if self.chained:
            self.W_chain = nn.Linear(self.widths[1], self.widths[2], bias=False)

    def forward(
        self,
        x: Float[Tensor, "sentences length d_model"],
        same: Float[Tensor, "sentences length length"] | None,
        *,
        places: Int64[Tensor, "sentences places"] | None = None,
        maps: bool = False,
    ) -> tuple[Float[Tensor, "sentences places d_model"], Tensor | None]:
        """The layer's output, everywhere or at `places` alone, and the learned heads' weights."""
        mixed, weights = self._mix(self.norm_mix(x) if self.pre else x, same, places, maps)
        x = at(x, places) + self._drop(self.W_O(mixed))
        if not self.pre:
            x = self.norm_mix(x)
        inner = functional.gelu(self.W_in(self.norm_ff(x) if self.pre else x))
        x = x + self._drop(self.W_out(inner))
        return x if self.pre else self.norm_ff(x), weights

    def _mix(
        self,
        x: Float[Tensor, "sentences length d_model"],
        same: Float[Tensor, "sentences length length"] | None,
        places: Int64[Tensor, "sentences places"] | None,
        maps: bool,
    ) -> tuple[Float[Tensor, "sentences places d_model"], Tensor | None]:
        """What all heads bring to each place, side by side."""
        Q, K, *V = self._project(x, places)
        parts, weights = [], None
        if self.heads.learned:
            dropout = self.dropout if self.training else 0.0
            part, weights = attend(Q, K, V[0], heads=self.heads.learned, dropout=dropout, maps=maps)
            parts.append(part)
        if self.heads.association:
            found = same @ V[1]
            parts.append(at(found, places))
        if self.heads.convolution:
            values = V[2] + self.W_chain(found) if self.chained else V[2]
            mixed = convolve(convolution(self.kernel, x.shape[1]), values)
            parts.append(at(mixed, places))
        return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0], weights

    def _project(
        self,
        x: Float[Tensor, "sentences length d_model"],
        places: Int64[Tensor, "sentences places"] | None,
    ) -> tuple[Tensor, ...]:
        """Queries at `places`, and everywhere keys and the values of each kind of heads."""
        d_learned = self.widths[0]
        widths = [d_learned, *self.widths]
        if places is None:
            return self.W_QKV(x).split([d_learned, *widths], dim=2)
        weight, bias = self.W_QKV.weight, self.W_QKV.bias
        Q = functional.linear(at(x, places), weight[:d_learned], bias[:d_learned])
        others = functional.linear(x, weight[d_learned:], bias[d_learned:])
        return Q, *others.split(widths, dim=2)

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


class LibraryTransformer(nn.Module):
    """An encoder of the transformers library, pretrained or not, with a classifier on top.

    Args:
        encoder: BertModel, AlbertModel or alike; its pooler is not used.
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
        places: Int64[Tensor, "sentences places"],
    ) -> Float[Tensor, "sentences places classes"]:
        """Logits at the places asked for."""
        return self.classifier(at(self.encoder(tokens).last_hidden_state, places))

    def read(
        self,
        tokens: Int64[Tensor, "sentences length"],
        places: Int64[Tensor, "sentences places"] | None = None,
        *,
        maps: bool = False,
    ) -> Reading:
        """Hidden states of all layers, everywhere or at `places`, and maps if asked for.

        Raises:
            ValueError: The model gives no attention maps.
        """
        if maps:
            self.encoder.set_attn_implementation("eager")  # the fused one has no maps to give
        output = self.encoder(tokens, output_hidden_states=True, output_attentions=maps)
        if maps and (not output.attentions or any(layer is None for layer in output.attentions)):
            raise ValueError(f"a {self.encoder.config.model_type} gives no attention maps")
        hidden = torch.stack([at(state, places) for state in output.hidden_states], dim=1)
        return Reading(hidden, torch.stack(output.attentions, dim=1) if maps else None)


def at(
    x: Float[Tensor, "sentences length width"], places: Int64[Tensor, "sentences places"] | None
) -> Float[Tensor, "sentences places width"]:
    """The rows of x at the places of each sentence; x itself where `places` is None."""
    if places is None:
        return x
    sentence = torch.arange(len(x), device=x.device)[:, None]
    row = sentence * x.shape[1] + places
    return x.flatten(0, 1).index_select(0, row.flatten()).unflatten(0, row.shape)


def _draw(module: nn.Module, init: float | None, generator: torch.Generator) -> None:
    """Initial weights: normal matrices, kernels of variance 1 / window, no biases, plain norms."""
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
