"""`MixedAttention` in place of the self-attention of BERT as the transformers library has it.

    model = BertForMaskedLM(config)
    replace_attention(model, heads=Heads.parse("4/4/4"), special=(101, 102), mask=103)

From then on the model is called, trained and saved as before. `from_pretrained` loads what
`save_pretrained` wrote: the choice is in `config.json`, under `lego_attention`. Who associates
with whom is computed from the model's `input_ids`, once a call, and handed down to all layers.
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

# Whose arithmetic is BERT's own; others of the same shape add relative or rotary positions
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
    """Give every layer of an encoder, in place, heads of the three kinds.

    What the heads go on needing is kept: values and output of all heads, queries and keys of the
    first, which are the learned ones. So a model with learned heads alone computes what it did.
    Kernels are new, and drawn by torch's global generator, as the weights of a new model are.
    Padding is where `attention_mask` is 0 or, in calls without one, where the padding id is.

    Args:
        model: BertModel, or a model around it; RoBERTa's and ELECTRA's are alike.
        heads: How many heads of each kind; as many as the model has.
        window: Offsets that a convolution sees; odd.
        by_channel: A kernel for every channel of the convolution heads, or one for each head.
        pad: The padding id; by default the one in the model's configuration.
        special: Tokens that associate with none, such as [CLS] and [SEP]; padding never does.
        mask: The id of [MASK]. Places that are masked do not tell what they hold, and so they
            associate with none, unless `mask_matches`.
        mask_matches: Whether masked places associate with one another.

    Raises:
        ValueError: The model's attention cannot be replaced, the split has not got as many heads
            as the model, the window is even, or there is no padding id.
    """
    base, config = model.base_model, model.config
    layers = _layers(model)
    heads.check_total(config.num_attention_heads)
    pad = getattr(config, "pad_token_id", None) if pad is None else pad
    if pad is None:
        raise ValueError("pad: ids need a padding id, and the model's configuration has none")
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
    hand_down = partial(_hand_down, pad=pad, associating=heads.association > 0)
    base.register_forward_pre_hook(hand_down, with_kwargs=True)
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
    """A model with replaced attention that `save_pretrained` wrote, ready to be evaluated.

    Args:
        folder: Where `config.json` and `model.safetensors` are.
        kind: The model's class, such as BertForMaskedLM.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: No attention was replaced in that model.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing")
    config = kind.config_class.from_pretrained(folder)
    choice = getattr(config, KEY, None)
    if choice is None:
        raise ValueError(f"{folder / 'config.json'} has no {KEY}: no attention was replaced")
    model = kind(config)
    replace_attention(model, **choice | {"heads": Heads.model_validate(choice["heads"])})
    load_model(model, folder / "model.safetensors")
    return model.eval()


class _InPlace(nn.Module):
    """The module where the library has the self-attention, and with its signature."""

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
        """What the heads bring; there are no weights to show. Masks of the library are not read."""
        if present is None:
            raise ValueError("the layers of this model are called by the model alone, with its ids")
        return self.mixing(hidden_states, associates, present=present)[0], None


def _layers(model: "PreTrainedModel") -> list[nn.Module]:
    """The encoder's layers; ValueError if their attention is another than BERT's."""
    name = type(model).__name__
    layers = list(getattr(getattr(model.base_model, "encoder", None), "layer", []))
    kinds = {type(getattr(getattr(one, "attention", None), "self", None)) for one in layers}
    if kinds == {_InPlace}:
        raise ValueError(f"the attention of this {name} has been replaced before")
    if not layers or not {kind.__name__ for kind in kinds} <= {*REPLACEABLE}:
        known = ", ".join(REPLACEABLE)
        raise ValueError(f"the attention of {name} cannot be replaced; it has to be {known}")
    if model.config.is_decoder:
        raise ValueError(f"the attention of {name} cannot be replaced: it is a decoder")
    return layers


@torch.no_grad()
def _take_over(mixing: MixedAttention, attention: nn.Module) -> None:
    """The layer's own weights for the heads that go on with them."""
    old, d_learned = attention.self, mixing.widths[0]
    for name in ("weight", "bias"):
        Q, K, V = (getattr(part, name) for part in (old.query, old.key, old.value))
        getattr(mixing.W_QKV, name).copy_(torch.cat([Q[:d_learned], K[:d_learned], V]))
        getattr(mixing.W_O, name).copy_(getattr(attention.output.dense, name))
    mixing.to(old.value.weight)


def _hand_down(
    base: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    pad: int,
    associating: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give a call of the encoder what its layers need to know of the ids."""
    given = dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs
    ids, mask = given.get("input_ids"), given.get("attention_mask")
    if ids is None:
        raise ValueError("inputs_embeds: the attention compares tokens, so it needs input_ids")
    if given.get("output_attentions") or base.config.output_attentions:
        raise ValueError("output_attentions: a model with replaced attention has no maps to give")
    if mask is not None and mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask: {list(mask.shape)} is not the ids' shape, {list(ids.shape)}"
        )
    present = ids != pad if mask is None else mask > 0
    found = associates(ids, base.excluded, present) if associating else None
    return args, kwargs | {"associates": found, "present": present}
