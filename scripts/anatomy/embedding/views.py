"""One view of every architecture: the matrices of "Analyzing Transformers in Embedding Space".

Dar et al. (ACL 2023) write a hidden state as a row x and a layer as a map x -> x W. In a layer,

    scores of head i   x W_Q^i (W_K^i)^T y^T / sqrt(d_head)   (query token x, key token y)
    output of head i   what attending to y writes:            y W_V^i W_O^i
    feed-forward       f(x K^T) V,  or  (f(x K_gate^T) * (x K_up^T)) V

The library stores these transposed or not, fused or not, tied or not. A view has them as the paper
does, without copying: its tensors are transposes and slices of the model's own parameters (only a
factorised embedding is multiplied out). The paper reads them without biases and norms; both are
kept here, since a layer is what its view says only together with them. Positions (rotary, or a
relative bias) and a decoder's cross-attention are not part of a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from scripts.anatomy.embedding.adapters import (
    Adapter,
    adapter,
    final_norm,
    is_pre_norm,
    layers,
    optional,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Norm:
    """What a norm does after normalising: times `gain`, plus `bias` (zeros for an RMS norm)."""

    gain: Float[Tensor, "d_model"]
    bias: Float[Tensor, "d_model"]


@dataclass(frozen=True)
class LayerView:
    """One layer's parameters; biases are zeros where the model has none.

    Attributes:
        K: Feed-forward keys as rows: {"key"}, or {"gate", "up"} where one of two gates the other.
        V: Feed-forward values as rows.
        W_Q: Per query head, from the stream to the head.
        W_K: Per key head; fewer than query heads where these share them (`ModelView.kv_head`).
        W_V: Per key head, from the stream to the head.
        W_O: Per query head, from the head to the stream.
        b_in: Biases of what the keys compute, under the same names.
        b_out: Bias of the feed-forward output.
        b_Q: Bias of each head's queries.
        b_K: Bias of each head's keys, the attention's.
        b_V: Bias of each head's values, the attention's.
        b_O: Bias of the attention's output.
        scale: Factor of the scores, 1 / sqrt(d_head) but for some GPT-2s.
        attention_norm: The norm that W_Q, W_K and W_V read through; None if post-norm or folded.
        ff_norm: The norm that K reads through; None if post-norm or folded.
    """

    K: dict[str, Float[Tensor, "d_ff d_model"]]
    V: Float[Tensor, "d_ff d_model"]
    W_Q: Float[Tensor, "heads d_model d_head"]
    W_K: Float[Tensor, "kv_heads d_model d_head"]
    W_V: Float[Tensor, "kv_heads d_model d_head"]
    W_O: Float[Tensor, "heads d_head d_model"]
    b_in: dict[str, Float[Tensor, "d_ff"]]
    b_out: Float[Tensor, "d_model"]
    b_Q: Float[Tensor, "heads d_head"]
    b_K: Float[Tensor, "kv_heads d_head"]
    b_V: Float[Tensor, "kv_heads d_head"]
    b_O: Float[Tensor, "d_model"]
    scale: float
    attention_norm: Norm | None
    ff_norm: Norm | None


@dataclass(frozen=True)
class ModelView:
    """A model's parameters as the paper writes them.

    Attributes:
        architecture: The library's `model_type`.
        W_E: Token embeddings as rows, of the stream's width (the paper's E is the transpose).
        W_U: Output embeddings as rows. The same tensor as W_E where the two are tied, also where
            the model has lost its head; None where it has lost a head of its own. A non-linear
            head of a masked language model is left out, as in the paper.
        layers: From the first to the last; ALBERT's repeat.
        pre_norm: Whether layers normalise what they read, rather than the stream that they leave.
        final_norm: The norm between the last hidden state and W_U; None if post-norm or folded.
        activation: The library's name of the feed-forward activation f.
    """

    architecture: str
    W_E: Float[Tensor, "d_vocab d_model"]
    W_U: Float[Tensor, "d_vocab d_model"] | None
    layers: list[LayerView]
    pre_norm: bool
    final_norm: Norm | None
    activation: str

    def kv_head(self, head: int) -> int:
        """Return the index into W_K and W_V that belongs to a query head; neighbours share one."""
        layer = self.layers[0]
        return head * len(layer.W_K) // len(layer.W_Q)


def view(model: PreTrainedModel) -> ModelView:
    """View a model, with or without a task head; the tensors share the model's storage.

    Raises UnsupportedArchitecture, and ValueError for weights that are quantised or wrapped.
    """
    names = adapter(model)
    W_E = _widened(model, model.get_input_embeddings().weight.detach())
    return ModelView(
        architecture=model.config.model_type,
        W_E=W_E,
        W_U=_unembedding(model, W_E),
        layers=[_layer(layer, names, model.config, is_pre_norm(model)) for layer in layers(model)],
        pre_norm=is_pre_norm(model),
        final_norm=_norm(final_norm(model)),
        activation=getattr(model.config, names.activation),
    )


# --- embeddings ---------------------------------------------------------------------------------


def _widened(
    model: PreTrainedModel, table: Float[Tensor, "d_vocab d_embedding"]
) -> Float[Tensor, "d_vocab d_model"]:
    """Embeddings in the stream; the map's bias, the same for every token, is left out."""
    widen = optional(model.base_model, adapter(model).widen)
    return table if widen is None else table @ _matrix(widen)


def _unembedding(
    model: PreTrainedModel, W_E: Float[Tensor, "d_vocab d_model"]
) -> Float[Tensor, "d_vocab d_model"] | None:
    """Output embeddings as rows of the stream's width."""
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    tied = model.config.tie_word_embeddings if head is None else head.weight is table
    if head is None and not tied:
        return None
    table = (table if tied else head.weight).detach()
    narrow = optional(model.base_model, adapter(model).narrow)
    if narrow is not None:
        return table @ _matrix(narrow).T
    return W_E if tied else _widened(model, table)


# --- layers -------------------------------------------------------------------------------------


def _layer(layer: nn.Module, at: Adapter, config: PretrainedConfig, pre_norm: bool) -> LayerView:
    qkv = [layer.get_submodule(path) for path in at.queries_keys_values]
    attention = layer.get_submodule(at.queries_keys_values[0].rpartition(".")[0])
    output, values = layer.get_submodule(at.attention_output), layer.get_submodule(at.values)
    keys = {name: layer.get_submodule(path) for name, path in at.keys.items()}
    W_Q, W_K, W_V = _by_head([_matrix(module) for module in qkv], config, at.interleaved)
    b_Q, b_K, b_V = _by_head([_bias(module) for module in qkv], config, at.interleaved)
    attention_norm, ff_norm = at.norms if pre_norm else (None, None)
    return LayerView(
        K={name: _matrix(module).T for name, module in keys.items()},
        V=_matrix(values),
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=_matrix(output).unflatten(0, (len(W_Q), -1)),
        b_in={name: _bias(module) for name, module in keys.items()},
        b_out=_bias(values),
        b_Q=b_Q,
        b_K=b_K,
        b_V=b_V,
        b_O=_bias(output),
        scale=getattr(attention, "scaling", W_Q.shape[-1] ** -0.5),
        attention_norm=_norm(optional(layer, attention_norm)),
        ff_norm=_norm(optional(layer, ff_norm)),
    )


def _by_head(
    stored: Sequence[Float[Tensor, "*d_model columns"]], config: PretrainedConfig, interleaved: bool
) -> Sequence[Float[Tensor, "heads *d_model d_head"]]:
    """Queries, keys and values by head, of matrices or of biases, whichever way they are stored.

    Apart, or fused as all queries, all keys, all values, or fused head by head (`interleaved`).
    """
    heads = config.num_attention_heads
    if interleaved:
        return _split(stored[0], heads).chunk(3, dim=-1)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    parts = stored if len(stored) == 3 else stored[0].chunk(3, dim=-1)
    return [_split(part, n) for part, n in zip(parts, (heads, kv_heads, kv_heads), strict=True)]


def _split(
    stored: Float[Tensor, "*d_model columns"], heads: int
) -> Float[Tensor, "heads *d_model d_head"]:
    return stored.unflatten(-1, (heads, -1)).movedim(-2, 0)


def _matrix(module: nn.Module) -> Float[Tensor, "rows columns"]:
    """Return the matrix that multiplies row vectors: GPT-2 stores it, others its transpose.

    Raises ValueError for a module that hides its matrix, which would be read wrongly.
    """
    if isinstance(module, Conv1D):
        return module.weight.detach()
    if isinstance(module, nn.Linear) and module.weight.is_floating_point():
        return module.weight.detach().T
    raise ValueError(
        f"the weights of a {type(module).__name__} cannot be viewed: load the model without "
        "quantisation, and merge adapters into it"
    )


def _bias(module: nn.Module) -> Float[Tensor, "columns"]:
    matrix = _matrix(module)
    return matrix.new_zeros(matrix.shape[1]) if module.bias is None else module.bias.detach()


def _norm(module: nn.Module | None) -> Norm | None:
    """Return a norm's gain and bias, or None for one that has no parameters."""
    gain = getattr(module, "weight", None)
    if gain is None:
        return None
    bias = getattr(module, "bias", None)  # an RMS norm has none
    return Norm(gain.detach(), gain.new_zeros(gain.shape) if bias is None else bias.detach())


# --- norms --------------------------------------------------------------------------------------


def fold_norms(view: ModelView) -> ModelView:
    """Move each norm's gain and bias into the parameters that read through it.

    In a pre-norm model the result reads the stream normalised and nothing else, so that scores and
    coefficients stay the same. Not in the paper, which reads parameters as they are. The gain of
    the final norm goes into W_U, and into W_E only as far as it is the same tensor: an input
    embedding of its own is added to the stream, not read off it. The final norm's bias, the same
    for every hidden state, is dropped.

    A post-norm model is returned as it is: its norms act on the stream itself, gain included, and
    nothing stands between the stream and the parameters that read it.

    Unlike a view, what is folded is a copy: everything but V, W_O and an untied W_E.
    """
    W_E, W_U = view.W_E, view.W_U
    if view.final_norm is not None and W_U is not None:
        W_U = W_U * view.final_norm.gain
        W_E = W_U if view.W_U is view.W_E else W_E
    folded = [_fold_ff(_fold_attention(layer)) for layer in view.layers]
    return replace(view, W_E=W_E, W_U=W_U, layers=folded, final_norm=None)


def _fold_attention(layer: LayerView) -> LayerView:
    """(n g + b) W = n (g W) + b W, with n the normalised stream."""
    norm = layer.attention_norm
    if norm is None:
        return layer
    gain = norm.gain[:, None]
    return replace(
        layer,
        W_Q=gain * layer.W_Q,
        W_K=gain * layer.W_K,
        W_V=gain * layer.W_V,
        b_Q=layer.b_Q + norm.bias @ layer.W_Q,
        b_K=layer.b_K + norm.bias @ layer.W_K,
        b_V=layer.b_V + norm.bias @ layer.W_V,
        attention_norm=None,
    )


def _fold_ff(layer: LayerView) -> LayerView:
    norm = layer.ff_norm
    if norm is None:
        return layer
    return replace(
        layer,
        K={name: keys * norm.gain for name, keys in layer.K.items()},
        b_in={name: bias + layer.K[name] @ norm.bias for name, bias in layer.b_in.items()},
        ff_norm=None,
    )
