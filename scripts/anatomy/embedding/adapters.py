"""Where each architecture keeps what the embedding study reads: one record of module paths each.

A new architecture is a new record, as long as its layer is an attention followed by one
feed-forward block, both reading the stream through at most one norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class UnsupportedArchitecture(ValueError):
    """A model whose parameters no adapter knows how to read."""

    def __init__(self, architecture: str) -> None:
        super().__init__(
            f"a model of type {architecture!r} cannot be viewed; supported: "
            + ", ".join(supported())
        )


@dataclass(frozen=True)
class Adapter:
    """Module paths of one architecture, from the base model or from one of its layers.

    Attributes:
        layers: The base model's layers, in the order they run.
        queries_keys_values: In a layer, the modules of W_Q, W_K and W_V, or one for all.
        attention_output: In a layer, the module of W_O.
        keys: In a layer, the modules that hold feed-forward keys, by what they compute.
        values: In a layer, the module of the feed-forward values.
        interleaved: Whether a module that holds all three has them head by head.
        norms: In a pre-norm layer, what the attention and the feed-forward block read through.
        final_norm: What the last hidden state passes through before it is decoded.
        widen: The map from embeddings to hidden states, where their sizes differ.
        narrow: The map back, where the output embedding is applied to its result.
        activation: The configuration's key of the feed-forward activation.
    """

    layers: Callable[[nn.Module], Iterable[nn.Module]]
    queries_keys_values: tuple[str, ...]
    attention_output: str
    keys: dict[str, str]
    values: str
    interleaved: bool = False
    norms: tuple[str, str] | None = None
    final_norm: str | None = None
    widen: str | None = None
    narrow: str | None = None
    activation: str = "hidden_act"


def _albert_layers(base: nn.Module) -> list[nn.Module]:
    """ALBERT's layers in the order they run; each group of them runs several times in a row."""
    n_layers, n_groups = base.config.num_hidden_layers, base.config.num_hidden_groups
    groups = [int(layer / (n_layers / n_groups)) for layer in range(n_layers)]
    return [
        layer for group in groups for layer in base.encoder.albert_layer_groups[group].albert_layers
    ]


_BERT = Adapter(
    layers=attrgetter("encoder.layer"),
    queries_keys_values=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_output="attention.output.dense",
    keys={"key": "intermediate.dense"},
    values="output.dense",
)
_LLAMA = Adapter(
    layers=attrgetter("layers"),
    queries_keys_values=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_output="self_attn.o_proj",
    keys={"gate": "mlp.gate_proj", "up": "mlp.up_proj"},
    values="mlp.down_proj",
    norms=("input_layernorm", "post_attention_layernorm"),
    final_norm="norm",
)
_ADAPTERS = {
    "albert": Adapter(
        layers=_albert_layers,
        queries_keys_values=("attention.query", "attention.key", "attention.value"),
        attention_output="attention.dense",
        keys={"key": "ffn"},
        values="ffn_output",
        widen="encoder.embedding_hidden_mapping_in",
    ),
    "bert": _BERT,
    "distilbert": Adapter(
        layers=attrgetter("transformer.layer"),
        queries_keys_values=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        attention_output="attention.out_lin",
        keys={"key": "ffn.lin1"},
        values="ffn.lin2",
        activation="activation",
    ),
    "electra": replace(_BERT, widen="embeddings_project"),
    "gpt2": Adapter(
        layers=attrgetter("h"),
        queries_keys_values=("attn.c_attn",),
        attention_output="attn.c_proj",
        keys={"key": "mlp.c_fc"},
        values="mlp.c_proj",
        norms=("ln_1", "ln_2"),
        final_norm="ln_f",
        activation="activation_function",
    ),
    "gpt_neox": Adapter(
        layers=attrgetter("layers"),
        queries_keys_values=("attention.query_key_value",),
        attention_output="attention.dense",
        keys={"key": "mlp.dense_h_to_4h"},
        values="mlp.dense_4h_to_h",
        interleaved=True,
        norms=("input_layernorm", "post_attention_layernorm"),
        final_norm="final_layer_norm",
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mpnet": replace(
        _BERT,
        queries_keys_values=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        attention_output="attention.attn.o",
    ),
    "opt": Adapter(
        layers=attrgetter("decoder.layers"),
        queries_keys_values=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        attention_output="self_attn.out_proj",
        keys={"key": "fc1"},
        values="fc2",
        norms=("self_attn_layer_norm", "final_layer_norm"),
        final_norm="decoder.final_layer_norm",
        widen="decoder.project_in",
        narrow="decoder.project_out",
        activation="activation_function",
    ),
    "qwen2": _LLAMA,
    "roberta": _BERT,
}


def supported() -> list[str]:
    """Return the architectures that can be viewed, as the library's `model_type` names them."""
    return sorted(_ADAPTERS)


def adapter(model: PreTrainedModel) -> Adapter:
    """The record of the model's architecture. Raises UnsupportedArchitecture if there is none."""
    architecture = model.config.model_type
    if architecture not in _ADAPTERS:
        raise UnsupportedArchitecture(architecture)
    return _ADAPTERS[architecture]


def optional(base: nn.Module, path: str | None) -> nn.Module | None:
    """Return the module at a path, or None where this model has none."""
    if path is None:
        return None
    return reduce(lambda module, name: getattr(module, name, None), path.split("."), base)


def layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules of the layers, in the order they run; ALBERT's come more than once."""
    return list(adapter(model).layers(model.base_model))


def is_pre_norm(model: PreTrainedModel) -> bool:
    """Return whether layers normalise what they read, rather than the stream that they leave.

    OPT has both kinds: of its published sizes only the one of 350 million is post-norm.
    """
    return getattr(model.config, "do_layer_norm_before", adapter(model).norms is not None)


def final_norm(model: PreTrainedModel) -> nn.Module:
    """Return what the last hidden state passes through before it is decoded.

    The identity in a post-norm model, whose hidden states are normalised already.
    """
    return optional(model.base_model, adapter(model).final_norm) or nn.Identity()


def coefficient_modules(model: PreTrainedModel) -> list[tuple[nn.Module, nn.Module]]:
    """Per layer the modules that apply W_O and V, whose inputs are the coefficients of their rows.

    The input of the first is the heads' outputs side by side, `(batch, position, heads * d_head)`;
    that of the second is f(X K^T), or f(X gate^T) * (X up^T), `(batch, position, d_ff)`. OPT gives
    the latter with batch and position in one axis. A forward pass runs a module once for each layer
    that it stands for, in order: ALBERT's layers share theirs.
    """
    names = adapter(model)
    return [
        (layer.get_submodule(names.attention_output), layer.get_submodule(names.values))
        for layer in layers(model)
    ]
