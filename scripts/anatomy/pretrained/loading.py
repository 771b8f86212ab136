"""Load a stored model for looking inside: eager attention, float32, evaluation mode, offline."""

import logging
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from scripts.anatomy import seeding
from scripts.anatomy.artifacts import UnreadableArtifact

log = logging.getLogger(__name__)


class UnfitModel(ValueError):
    """A model that a study cannot use, and why."""


def config(folder: Path) -> PreTrainedConfig:
    """A stored model's configuration.

    Raises:
        UnfitModel: transformers has no such architecture, or its code is in the repository.
    """
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError) as error:
        raise UnfitModel(
            f"its config.json is none that can be used: {_first_line(error)}"
        ) from None


def model(folder: Path, *, head: bool = False) -> PreTrainedModel:
    """A stored model: the network alone, or, with `head`, with its language-model head.

    Raises:
        UnreadableArtifact: The weights are damaged.
        UnfitModel: There is no such architecture, or weights are missing (named).
    """
    kind = _class(config(folder), head)
    try:
        loaded, report = kind.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True,
            use_safetensors=True, output_loading_info=True,
        )  # fmt: skip
    except (OSError, RuntimeError) as error:
        raise UnreadableArtifact(folder, f"has no readable weights: {_first_line(error)}") from None
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UnfitModel(f"{len(missing)} tensors are missing from the weights: {names}")
    return loaded.eval()


def control(folder: Path, seed: int, *, head: bool = False) -> PreTrainedModel:
    """The same architecture with its random initial weights: what no training gives."""
    settings = config(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeding.derive(seed, "control"))
        fresh = _class(settings, head)._from_config(settings, attn_implementation="eager")
    return fresh.to(torch.float32).eval()


def tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerFast:
    """A stored model's tokenizer, which must not have more tokens than the embedding has rows.

    Raises:
        UnfitModel: There is none, it is a slow one, or it does not fit.
    """
    try:
        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise UnfitModel(f"it has no usable tokenizer: {_first_line(error)}") from None
    if not loaded.is_fast:
        raise UnfitModel("its tokenizer has no tokenizer.json, which gives the place of a token")
    if len(loaded) > rows:
        raise UnfitModel(
            f"its tokenizer does not fit: {len(loaded)} tokens, "
            f"{len(loaded) - rows} more than the embedding's {rows} rows"
        )
    if len(loaded) < rows:
        log.info("the embedding has %d rows beyond the tokenizer's tokens", rows - len(loaded))
    return loaded


def _class(settings: PreTrainedConfig, head: bool) -> type:
    """The class of the network, or of the network with its language-model head."""
    from transformers.models.auto import modeling_auto

    kinds = modeling_auto.MODEL_MAPPING
    if head:
        kinds = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(settings) not in kinds:
        raise UnfitModel(f"transformers has no class for the architecture {settings.model_type}")
    kind = kinds[type(settings)]
    return kind[0] if isinstance(kind, tuple) else kind


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
