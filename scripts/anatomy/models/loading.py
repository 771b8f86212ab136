"""Load a stored model for looking inside: eager attention, float32, evaluation mode, offline."""

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

from scripts.anatomy import seeding
from scripts.anatomy.artifacts import UnreadableArtifact, first_line

MOST_LAYERS = 1000
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

log = logging.getLogger(__name__)


class UnfitModel(ValueError):
    """A model that a study cannot use, and why."""


def config(folder: Path) -> PreTrainedConfig:
    """A stored model's configuration.

    Raises:
        UnfitModel: It is no configuration, transformers has no such architecture, or its code is
            in the repository.
    """
    try:
        found = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # every architecture has its own; all of them are about this file
        raise UnfitModel(f"its config.json is none that can be used: {first_line(error)}") from None
    layers = getattr(found, "num_hidden_layers", 0)
    if layers > MOST_LAYERS:  # they are built before the weights are looked at
        raise UnfitModel(f"its config.json asks for {layers} layers, more than {MOST_LAYERS}")
    if getattr(found, "quantization_config", None):
        raise UnfitModel("its weights are quantised; store what they stand for, in float32")
    return found


def model(folder: Path, *, head: bool = False) -> PreTrainedModel:
    """A stored model: the network, or, with `head`, a decoder with its language-model head.

    Raises:
        UnreadableArtifact: The weights are damaged.
        UnfitModel: There is no such architecture, the configuration contradicts itself, or weights
            are missing or of another shape (named).
    """
    kind = _class(config(folder), head)
    try:
        loaded, report = kind.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True,
            use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )  # fmt: skip
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UnreadableArtifact(folder, f"has no readable weights: {first_line(error)}") from None
    except Exception as error:  # the same
        raise UnfitModel(f"its config.json builds no model: {first_line(error)}") from None
    _check_none(report["missing_keys"], "are missing from the weights")
    mismatched = [name for name, *_ in report["mismatched_keys"]]
    _check_none(mismatched, "have other shapes in the weights than config.json says")
    return loaded.eval()


def _check_none(tensors: Iterable[str], fault: str) -> None:
    """Raise UnfitModel if tensors have a fault. A pooler may: no map or embedding depends on it."""
    faulty = sorted(name for name in tensors if "pooler" not in name)
    if faulty:
        names = ", ".join(faulty[:5]) + (", ..." if len(faulty) > 5 else "")
        raise UnfitModel(f"{len(faulty)} tensors {fault}: {names}")


def control(folder: Path, seed: int) -> PreTrainedModel:
    """The same architecture with its random initial weights: what no training gives."""
    settings = config(folder)
    kind = _class(settings)
    with seeding.torch_seeded(seed, "control"):
        try:
            fresh = kind._from_config(settings, attn_implementation="eager", dtype=torch.float32)
        except Exception as error:  # the same as for `model`
            raise UnfitModel(f"its config.json builds no model: {first_line(error)}") from None
    return fresh.eval()


def positions(model: PreTrainedModel) -> int:
    """The most tokens that a model can read."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and MPNet count positions from behind that of padding
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    # T5 and XLNet look at distances alone, which have no end
    return getattr(model.config, "max_position_embeddings", sys.maxsize)


def tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerFast:
    """A stored model's tokenizer, which must not have more tokens than the embedding has rows.

    Raises:
        UnfitModel: There is none, it is a slow one, or it does not fit.
    """
    # without its files transformers makes up a tokenizer that knows special tokens only
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        raise UnfitModel(f"it has no tokenizer: none of {', '.join(VOCABULARIES)}")
    try:
        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # every class of tokenizers has its own
        raise UnfitModel(f"it has no usable tokenizer: {first_line(error)}") from None
    if not loaded.is_fast:
        raise UnfitModel("its tokenizer has no tokenizer.json, which gives the place of a token")
    if {*loaded.get_vocab().values()} <= {*loaded.all_special_ids}:
        raise UnfitModel("its tokenizer knows special tokens alone; its words are in other files")
    if len(loaded) > rows:
        raise UnfitModel(
            f"its tokenizer does not fit: {len(loaded)} tokens, "
            f"{len(loaded) - rows} more than the embedding's {rows} rows"
        )
    if len(loaded) < rows:
        log.info("the embedding has %d rows beyond the tokenizer's tokens", rows - len(loaded))
    return loaded


def _class(settings: PreTrainedConfig, head: bool = False) -> type[PreTrainedModel]:
    """The class of the network, or, with `head`, of the decoder that the checkpoint says it is."""
    kind = MODEL_MAPPING.get(type(settings), None)
    decoder = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(settings), None)
    if head and decoder is not None and decoder.__name__ in (settings.architectures or []):
        kind = decoder
    if kind is None:
        raise UnfitModel(f"transformers has no class for the architecture {settings.model_type}")
    return kind[0] if isinstance(kind, tuple) else kind
