"""Load a stored model for inspection: eager attention, float32, evaluation mode, offline."""

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

MAX_LAYERS = 1000
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

log = logging.getLogger(__name__)


class UnfitModel(ValueError):
    """Raised for a model that a study cannot use."""


def config(folder: Path) -> PreTrainedConfig:
    """Return a stored model's configuration.

    Raises:
        UnfitModel: The file is not a configuration, or transformers lacks the architecture.
    """
    try:
        settings = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # each architecture raises its own kinds
        raise UnfitModel(f"config.json: {first_line(error)}") from None
    layers = getattr(settings, "num_hidden_layers", 0)
    if layers > MAX_LAYERS:  # they are built before the weights are read
        raise UnfitModel(f"config.json: expected at most {MAX_LAYERS} layers, got {layers}")
    if getattr(settings, "quantization_config", None):
        raise UnfitModel("config.json: quantised weights are not supported; store them as float32")
    return settings


def model(folder: Path, *, head: bool = False) -> PreTrainedModel:
    """Return a stored network; with `head`, a decoder includes its language-model head.

    Raises:
        UnreadableArtifact: The weights are damaged.
        UnfitModel: The architecture is unknown, the configuration contradicts itself, or tensors
            are missing or have another shape.
    """
    kind = _class(config(folder), head)
    try:
        loaded, report = kind.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True,
            use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True,  # named in the error below
        )  # fmt: skip
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UnreadableArtifact(folder, f"has no readable weights: {first_line(error)}") from None
    except Exception as error:  # each architecture raises its own kinds
        raise UnfitModel(f"config.json builds no model: {first_line(error)}") from None
    _check_none(report["missing_keys"], "are missing from the weights")
    mismatched = [name for name, *_ in report["mismatched_keys"]]
    _check_none(mismatched, "have other shapes in the weights than in config.json")
    return loaded.eval()


def _check_none(tensors: Iterable[str], fault: str) -> None:
    """Raise UnfitModel if tensors have a fault, except those of a pooler, which no study reads."""
    faulty = sorted(name for name in tensors if "pooler" not in name)
    if faulty:
        names = ", ".join(faulty[:5]) + (", ..." if len(faulty) > 5 else "")
        raise UnfitModel(f"{len(faulty)} tensors {fault}: {names}")


def control(folder: Path, seed: int) -> PreTrainedModel:
    """Return the same architecture with random initial weights."""
    settings = config(folder)
    kind = _class(settings)
    with seeding.torch_seeded(seed, "control"):
        try:
            fresh = kind._from_config(settings, attn_implementation="eager", dtype=torch.float32)
        except Exception as error:  # as in `model`
            raise UnfitModel(f"config.json builds no model: {first_line(error)}") from None
    return fresh.eval()


def positions(model: PreTrainedModel) -> int:
    """Return the maximal number of tokens that a model can read."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and MPNet number positions from padding_idx + 1
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    # T5 and XLNet use relative positions, which are unlimited
    return getattr(model.config, "max_position_embeddings", sys.maxsize)


def tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerFast:
    """Return a stored model's tokenizer, which may have at most `rows` tokens.

    Raises:
        UnfitModel: There is no fast tokenizer, or it has more tokens than the embedding has rows.
    """
    # without these files transformers creates a tokenizer of special tokens only
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        raise UnfitModel(f"no tokenizer: expected one of {', '.join(VOCABULARIES)}")
    try:
        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # each tokenizer class raises its own kinds
        raise UnfitModel(f"the tokenizer cannot be loaded: {first_line(error)}") from None
    if not loaded.is_fast:
        raise UnfitModel("the tokenizer has no tokenizer.json, which character offsets need")
    if {*loaded.get_vocab().values()} <= {*loaded.all_special_ids}:
        raise UnfitModel("the tokenizer has only special tokens; its vocabulary is in other files")
    if len(loaded) > rows:
        raise UnfitModel(
            f"the tokenizer does not fit: expected at most {rows} tokens, the rows of the "
            f"embedding, got {len(loaded)}"
        )
    if len(loaded) < rows:
        log.info("the embedding has %d rows beyond the tokenizer's tokens", rows - len(loaded))
    return loaded


def _class(settings: PreTrainedConfig, head: bool = False) -> type[PreTrainedModel]:
    """Return the class of the network; with `head`, of the decoder that config.json names."""
    kind = MODEL_MAPPING.get(type(settings), None)
    decoder = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(settings), None)
    if head and decoder is not None and decoder.__name__ in (settings.architectures or []):
        kind = decoder
    if kind is None:
        raise UnfitModel(f"transformers has no class for the architecture {settings.model_type}")
    return kind[0] if isinstance(kind, tuple) else kind
