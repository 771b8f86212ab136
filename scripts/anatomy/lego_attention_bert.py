"""Replace the self-attention of the transformers library's BERT by `MixedAttention`.

    model = BertForMaskedLM(config)
    replace_attention(model, heads=Heads.parse("4/4/4"), special=(101, 102), mask=103)

The model is then called, trained and saved as before. `from_pretrained` loads what
`save_pretrained` wrote; `config.json` has the settings under `lego_attention`. The association map
is computed from the model's `input_ids`, once per call, and passed to all layers.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from safetensors.torch import load_model
from torch import Tensor, nn

from scripts.anatomy.lego_attention import WINDOW, Associates, MixedAttention, associates
from scripts.anatomy.settings import Heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # importing transformers takes seconds

# Classes with BERT's own arithmetic; similar ones add relative or rotary positions
REPLACEABLE = ("BertSelfAttention", "RobertaSelfAttention", "ElectraSelfAttention")
KEY = "lego_attention"


def replace_attention(
    model: "PreTrainedModel",
    *,
    heads: Heads,
    window: int = WINDOW,
    by_channel: bool = True,
    pad: int | None = None,
    special: Iterable[int] = (),
    mask: int | None = None,
    mask_matches: bool = False,
) -> None:
    """Replace the heads of every layer of an encoder, in place, by heads of the three kinds.

    Weights that the new heads need are kept: values and output of all heads, queries and keys of
    the first, learned ones. A model with learned heads alone therefore computes what it did before.
    Kernels are drawn by torch's global generator, like the weights of a new model. Padding is where
    `attention_mask` is 0, or at the padding id in calls without a mask.

    Args:
        model: BertModel, or a model around it; also of RoBERTa and ELECTRA.
        heads: Number of heads of each kind; in total as many as the model has.
        window: Number of offsets of a convolution; odd.
        by_channel: A kernel for every channel of the convolution heads, or one for each head.
        pad: The padding id; by default the one in the model's configuration.
        special: Tokens that do not associate, such as [CLS] and [SEP]; padding never does.
        mask: The id of [MASK]. Masked positions hide their token, so they do not associate unless
            `mask_matches`.
        mask_matches: Whether masked positions associate with one another.

    Raises:
        ValueError: The model's attention cannot be replaced, the number of heads is not the
            model's, the window is even, or there is no padding id.
    """
    base, config = model.base_model, model.config
    layers = _layers(model)
    heads.check_total(config.num_attention_heads)
    pad = getattr(config, "pad_token_id", None) if pad is None else pad
    if pad is None:
        raise ValueError("pad: expected a padding id, the model's configuration has none")
    excluded = {pad, *special, *(() if mask is None else (mask,))}
    if mask_matches:
        excluded.discard(mask)
    mixers = [
        MixedAttention(
            heads,
            d_model=config.hidden_size,
            window=window,
            by_channel=by_channel,
            dropout=config.attention_probs_dropout_prob,
        )
        for _ in layers
    ]
    for layer, mixing in zip(layers, mixers, strict=True):
        _take_over(mixing, layer.attention)
        layer.attention.self = _InPlace(mixing).train(model.training)
        layer.attention.output.dense = nn.Identity()  # W_O is part of the module
    ids = torch.tensor(sorted(excluded), device=base.device)
    base.register_buffer("excluded", ids, persistent=False)
    add_inputs = partial(_add_inputs, pad=pad, associating=heads.association > 0)
    base.register_forward_pre_hook(add_inputs, with_kwargs=True)
    setattr(
        config,
        KEY,
        {
            "heads": heads.model_dump(),
            "window": window,
            "by_channel": by_channel,
            "pad": pad,
            "special": sorted(excluded - {pad, mask}),
            "mask": mask,
            "mask_matches": mask_matches,
        },
    )


def from_pretrained(folder: str | Path, kind: type["PreTrainedModel"]) -> "PreTrainedModel":
    """Load a model with replaced attention that `save_pretrained` wrote, in evaluation mode.

    Args:
        folder: Folder of `config.json` and `model.safetensors`.
        kind: The model's class, such as BertForMaskedLM.

    Raises:
        FileNotFoundError: One of the files is missing.
        ValueError: The model's attention was not replaced.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing")
    config = kind.config_class.from_pretrained(folder)
    settings = getattr(config, KEY, None)
    if settings is None:
        raise ValueError(f"{folder / 'config.json'} has no {KEY}: no attention was replaced")
    model = kind(config)
    replace_attention(model, **settings | {"heads": Heads.model_validate(settings["heads"])})
    load_model(model, folder / "model.safetensors")
    return model.eval()


class _InPlace(nn.Module):
    """`MixedAttention` with the signature of the library's self-attention."""

    def __init__(self, mixing: MixedAttention) -> None:
        super().__init__()
        self.mixing = mixing

    def forward(
        self,
        hidden_states: Float[Tensor, "sentences length d_model"],
        *,
        associates: Associates | None = None,
        present: Tensor | None = None,
        **others: Any,
    ) -> tuple[Float[Tensor, "sentences length d_model"], None]:
        """Return the heads' output and no weights; the library's masks are not read."""
        if present is None:
            raise ValueError("layers of this model must be called by the model, with its input_ids")
        return self.mixing(hidden_states, associates, present=present)[0], None


def _layers(model: "PreTrainedModel") -> list[nn.Module]:
    """Return the encoder's layers; raise ValueError if their attention is not BERT's."""
    name = type(model).__name__
    layers = list(getattr(getattr(model.base_model, "encoder", None), "layer", []))
    kinds = {type(getattr(getattr(one, "attention", None), "self", None)) for one in layers}
    if kinds == {_InPlace}:
        raise ValueError(f"the attention of this {name} has already been replaced")
    if not layers or not {kind.__name__ for kind in kinds} <= {*REPLACEABLE}:
        known = ", ".join(REPLACEABLE)
        raise ValueError(f"the attention of {name} cannot be replaced; expected one of {known}")
    if model.config.is_decoder:
        raise ValueError(f"the attention of {name} cannot be replaced: it is a decoder")
    return layers


@torch.no_grad()
def _take_over(mixing: MixedAttention, attention: nn.Module) -> None:
    """Copy the layer's weights to the heads that need them."""
    old, d_learned = attention.self, mixing.widths[0]
    for name in ("weight", "bias"):
        Q, K, V = (getattr(part, name) for part in (old.query, old.key, old.value))
        getattr(mixing.W_QKV, name).copy_(torch.cat([Q[:d_learned], K[:d_learned], V]))
        getattr(mixing.W_O, name).copy_(getattr(attention.output.dense, name))
    mixing.to(old.value.weight)


def _add_inputs(
    base: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    pad: int,
    associating: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add the association map and the presence of tokens to a call of the encoder."""
    given = dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs
    ids, mask = given.get("input_ids"), given.get("attention_mask")
    if ids is None:
        raise ValueError("inputs_embeds: the attention compares tokens, so pass input_ids instead")
    if given.get("output_attentions") or base.config.output_attentions:
        raise ValueError("output_attentions: a model with replaced attention returns no maps")
    if mask is not None and mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask: expected the shape of input_ids, {list(ids.shape)}, "
            f"got {list(mask.shape)}"
        )
    present = ids != pad if mask is None else mask > 0
    same = associates(ids, base.excluded, present) if associating else None
    return args, kwargs | {"associates": same, "present": present}
