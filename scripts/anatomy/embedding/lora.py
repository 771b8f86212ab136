"""LoRA adapters, as the library peft writes them, as differences of weights.

An adapter of rank r adds (alpha / r) B A to a weight that is stored as outputs x inputs, with A
r x inputs and B outputs x r; for a weight stored the other way round (GPT-2's) the transpose.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from scripts.anatomy import artifacts

FACTOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.\w+)?\.weight"
)
NAME = re.compile(r"[\w.]+")


def differences(folder: Path, model: PreTrainedModel) -> dict[str, Tensor]:
    """Return what an adapter adds to the parameters of a model's base, by their names.

    Raises:
        ValueError: No LoRA, one of a kind that is not read, or one for another base.
    """
    config = artifacts.read_json(folder / "adapter_config.json")
    if not isinstance(config, dict):
        raise ValueError(f"{folder}: adapter_config.json is no section of keys")
    if config.get("peft_type") != "LORA" or config.get("use_dora"):
        kind = "DoRA" if config.get("use_dora") else config.get("peft_type")
        raise ValueError(f"{folder} holds a {kind} adapter; only LoRA is read")
    stored = artifacts.read_tensors(folder / "adapter_model.safetensors", framework="torch")
    factors: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.items():
        if match := FACTOR.fullmatch(name):
            factors.setdefault(match["module"], {})[match["side"]] = tensor.float()
    if not factors or any(pair.keys() != {"A", "B"} for pair in factors.values()):
        raise ValueError(f"{folder} has no pairs of lora_A and lora_B")
    base = config.get("base_model_name_or_path") or "another model"
    try:
        scales = {module: _scale(config, module) for module in factors}
    except (TypeError, KeyError, AttributeError, ZeroDivisionError, ValueError) as error:
        reason = f"its ranks and alphas make no factor ({artifacts.first_line(error)})"
        raise ValueError(f"{folder}: {reason}") from None
    return {
        name: delta * scales[module]
        for module, pair in factors.items()
        for name, delta in [_delta(module, pair, model, f"{folder} is an adapter for {base}")]
    }


def _delta(
    module: str, pair: Mapping[str, Tensor], model: PreTrainedModel, whose: str
) -> tuple[str, Tensor]:
    """Return the name of a weight and what is added to it, but for the scale."""
    base = model.base_model
    name = module.removeprefix(f"{model.base_model_prefix}.")
    try:
        target = base.get_submodule(name)
        weight = target.weight
    except AttributeError:
        raise ValueError(f"{whose}: this model has no {name}") from None
    A, B = pair["A"], pair["B"]
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != B.shape[1]:
        raise ValueError(f"{whose}: its factors of {name} do not fit each other")
    shape = (len(B), A.shape[1])
    if isinstance(target, Conv1D):
        shape = shape[::-1]
    if shape != weight.shape:  # before they are multiplied, for the product may fit nowhere
        wanted, given = (" x ".join(map(str, sizes)) for sizes in (weight.shape, shape))
        raise ValueError(f"{whose}: {name} is {wanted} in this model, and {given} there")
    product = B @ A
    return f"{name}.weight", product.T if isinstance(target, Conv1D) else product


def _scale(config: Mapping[str, Any], module: str) -> float:
    """Return the factor of a module: alpha / r, or alpha / sqrt(r) where ranks are stabilised."""
    rank = _of_module(config.get("rank_pattern"), module, config["r"])
    alpha = _of_module(config.get("alpha_pattern"), module, config["lora_alpha"])
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _of_module(pattern: Mapping[str, float] | None, module: str, default: float) -> float:
    """Return the value of the first key of a pattern that is the end of the module's name.

    peft takes keys for regular expressions, which can be made to run for years; here they are
    names.
    """
    for key, value in (pattern or {}).items():
        name = key.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if not NAME.fullmatch(name):
            raise ValueError(f"{key} is no name of a module")
        if f".{module}".endswith(f".{name}"):
            return value
    return default
