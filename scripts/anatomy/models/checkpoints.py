"""Read the checkpoints of BERTs that this workflow pretrains as models of transformers.

The pretraining study replaces self-attention by a module with heads of several kinds
(`lego_attention_bert.py`). If all heads are learned, the module holds BERT's own weights side by
side, and the model is read like any other BERT.
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
    """Return the kept steps, ascending, after checking the whole file."""
    artifacts.check_tensors(checkpoints)
    with _reading(checkpoints) as file:
        return file.get_tensor("step").tolist()


def model_at(config: Path, checkpoints: Path, index: int) -> BertModel:
    """Return the encoder at step `index` of `steps`; only that step is read.

    Raises:
        ValueError: Some heads are not learned, and so have neither queries nor keys.
        UnreadableArtifact: The checkpoints are damaged.
    """
    with artifacts.reading(config, "the configuration of a model"):
        settings = BertConfig.from_pretrained(config)
    heads = getattr(settings, KEY, {"heads": {}})["heads"]
    if heads.get("association") or heads.get("convolution"):
        raise ValueError("expected only learned heads, which have queries and keys")
    model = BertModel(settings, add_pooling_layer=False)
    with _reading(checkpoints) as file:
        stored = {name: file.get_slice(name)[index] for name in file.keys() if name != "step"}
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
    """Return the encoder's weights under the names of transformers; all heads are learned."""
    weights = {}
    for name, tensor in stored.items():
        if not name.startswith("bert."):
            continue  # the head that predicts tokens
        name = name.removeprefix("bert.")
        of_layer, module, weight = name.partition(MODULE)
        match weight.split("."):
            case ["", "W_QKV", kind]:
                for part, matrix in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                    weights[f"{of_layer}attention.self.{part}.{kind}"] = matrix
            case ["", "W_O", kind]:
                weights[f"{of_layer}attention.output.dense.{kind}"] = tensor
            case _:
                weights[name] = tensor
    return weights
