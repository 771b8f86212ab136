"""BERTs that this workflow pretrains, at the steps whose weights were kept, as the library's own.

The pretraining study replaces self-attention by a module with heads of several kinds
(`attention_bert.py`). Where all heads are learned the module's weights are BERT's, stored side by
side, and the model can be read like any other BERT.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import BertConfig, BertModel

from scripts.anatomy import artifacts
from scripts.anatomy.artifacts import UnreadableArtifact, first_line
from scripts.anatomy.lego_attention_bert import KEY

MODULE = "attention.self.mixing"


def steps(checkpoints: Path) -> list[int]:
    """The steps that were kept, ascending; the whole file is verified."""
    artifacts.check_tensors(checkpoints)
    with _reading(checkpoints) as file:
        return file.get_tensor("step").tolist()


def model_at(config: Path, checkpoints: Path, place: int) -> BertModel:
    """The encoder at the step that has this place among `steps`, ready to be looked into.

    The file holds all steps; one is read.

    Raises:
        ValueError: Some of its heads are not learned ones: they have neither queries nor keys.
        UnreadableArtifact: The checkpoints are damaged, or not those of the configuration.
    """
    with artifacts.reading(config, "the configuration of a model"):
        settings = BertConfig.from_pretrained(config)
    heads = getattr(settings, KEY, {"heads": {}})["heads"]
    if heads.get("association") or heads.get("convolution"):
        raise ValueError("the model has heads that are not learned, without queries and keys")
    model = BertModel(settings, add_pooling_layer=False)
    with _reading(checkpoints) as file:
        stored = {name: file.get_slice(name)[place] for name in file.keys() if name != "step"}
        model.load_state_dict(plain_attention(stored))
    return model.eval()


@contextmanager
def _reading(checkpoints: Path) -> Iterator[safe_open]:
    try:
        with safe_open(checkpoints, framework="pt") as file:
            yield file
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = f"has no readable checkpoints: {first_line(error)}"
        raise UnreadableArtifact(checkpoints, reason) from None


def plain_attention(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The encoder's weights under the library's names, of a model whose heads are all learned."""
    found = {}
    for name, tensor in stored.items():
        if not name.startswith("bert."):
            continue  # the head that predicts tokens
        name = name.removeprefix("bert.")
        of_layer, module, weight = name.partition(MODULE)
        match weight.split("."):
            case ["", "W_QKV", kind]:
                for part, matrix in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                    found[f"{of_layer}attention.self.{part}.{kind}"] = matrix
            case ["", "W_O", kind]:
                found[f"{of_layer}attention.output.dense.{kind}"] = tensor
            case _:
                found[name] = tensor
    return found
