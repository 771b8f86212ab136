"""Store a pretrained model in a folder that jobs load it from.

The folder has the format of transformers: config.json, safetensors weights, tokenizer files.
Packaged models in other formats are converted once. Pickles are not read, and code from a model's
repository is not run.
"""

import logging
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.anatomy import artifacts, assets
from scripts.anatomy.models.settings import (
    FolderModelSettings,
    HubModelSettings,
    ModelSettings,
    PackagedModelSettings,
)

log = logging.getLogger(__name__)

WANTED = ("*.safetensors", "*.safetensors.index.json", "config.json")
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model"),
)
SHARD = re.compile(r"[^/\\\x00]+\.safetensors")
MPNET = {  # files of the archive, with the SHA-256 of the weights
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "config.json": None,
    "tokenizer.json": None,
    "tokenizer_config.json": None,
}
MAX_FILE_BYTES = 600_000_000  # of a file in the archive; the weights have 438 MB


class ModelUnavailable(ValueError):
    """Raised if the source that the configuration names does not have the model."""


def store(model: ModelSettings, folder: Path) -> dict[str, str]:
    """Fill an empty folder with a model, and return a description of its source.

    Raises:
        ModelUnavailable: The model is missing, cannot be fetched, or has no safetensors weights.
        PackageMissing: The package is not installed, or its files have other checksums.
    """
    match model:
        case PackagedModelSettings():
            CONVERTERS[model.package](folder)
            source = {"package": model.package, "version": assets.version(model.package)}
            source["licence"] = assets.ASSETS[model.package].licence
        case HubModelSettings():
            snapshot = _snapshot(model)
            _take(snapshot, folder)
            source = {"hub": model.id, "revision": model.revision, "commit": snapshot.name}
        case FolderModelSettings():
            _take(model.path, folder)
            source = {"folder": str(model.path)}
    _check_whole(folder)
    return source


def _snapshot(model: HubModelSettings) -> Path:
    """Return the hub client's cache folder with the wanted files of a repository."""
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                model.id, revision=model.revision, allow_patterns=[*WANTED, *TOKENIZER]
            )
        )
    except Exception as error:  # the hub client raises a dozen kinds, some of them offline
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
        raise ModelUnavailable(
            f"{model.id} at {model.revision} cannot be fetched from the hub "
            f"({type(error).__name__}: {reason}); offline, name a local folder instead"
        ) from None


def _take(source: Path, folder: Path) -> None:
    """Link or copy a model's files."""
    for pattern in (*WANTED, *TOKENIZER):
        for file in sorted(source.glob(pattern)):
            if file.is_symlink():  # as in the hub's cache; the target is stored
                log.info("%s is a link to %s", file, file.resolve())
            artifacts.link_or_copy(file, folder / file.name)


def _check_whole(folder: Path) -> None:
    """Raise ModelUnavailable if weights, or shards of them, are missing."""
    if not (folder / "config.json").is_file():
        raise ModelUnavailable("config.json is missing")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = _shards(index)
        missing = sorted(shard for shard in shards if not (folder / shard).is_file())
        if missing:
            raise ModelUnavailable(f"shards of the weights are missing: {', '.join(missing)}")
    elif not list(folder.glob("*.safetensors")):
        raise ModelUnavailable("safetensors weights are missing (other formats are not read)")


def _shards(index: Path) -> set[str]:
    """Return the names of the weight files; raise ModelUnavailable if one is not in the folder."""
    listed = artifacts.read_json(index)
    listed = listed.get("weight_map") if isinstance(listed, dict) else None
    shards = listed.values() if isinstance(listed, dict) else [None]
    for shard in shards:
        if not isinstance(shard, str) or not SHARD.fullmatch(shard):
            raise ModelUnavailable(f"{index.name}: expected files in its folder, got {shard!r:.80}")
    return set(shards)


# --- packaged models ----------------------------------------------------------------------------


def _minilm(folder: Path) -> None:
    for file in assets.files("minilm"):
        artifacts.link_or_copy(file, folder / file.name)


def _minilm3(folder: Path) -> None:
    """Convert the three-layer sibling, which ships as ONNX; its vocabulary is that of minilm."""
    from transformers import BertConfig, BertModel

    _, config, *tokenizer = assets.files("minilm")
    settings = BertConfig.from_pretrained(config, num_hidden_layers=3)
    model = BertModel(settings, add_pooling_layer=False)
    wanted = model.state_dict()
    weights = {
        name.removeprefix("model.0.auto_model."): weight
        for name, weight in _onnx_weights(assets.find("minilm3"))
    }
    model.load_state_dict({name: weights[name] for name in wanted})
    model.save_pretrained(folder)
    for file in tokenizer:
        artifacts.link_or_copy(file, folder / file.name)


def _onnx_weights(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of every parameter of an exported network.

    The exporter transposes the weights of linear layers and drops their names. Each is multiplied
    in one node; the name of the bias that is added to the product identifies it.
    """
    import onnx
    import torch
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    arrays = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
    nameless = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            nameless[node.output[0]] = node.input[1]
    for node in graph.node:
        product = next((name for name in node.input if name in nameless), None)
        if node.op_type == "Add" and product:
            (bias,) = (name for name in node.input if name != product)
            weight = arrays[nameless[product]].T.copy()
            yield bias.removesuffix("bias") + "weight", torch.from_numpy(weight)
    for name, array in arrays.items():
        yield name, torch.from_numpy(array.copy())


def _smollm2(folder: Path) -> None:
    """Convert the quantised decoder to float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    file = assets.find("smollm2")
    quantised = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    config = quantised.config
    del config.quantization_config  # else the copy could not be saved
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


def _mpnet(folder: Path) -> None:
    """Join the five packages, which hold the parts of one zip archive, and unpack it."""
    archive = folder / "archive.zip"
    with archive.open("wb") as whole:
        for part in assets.parts("mpnet"):
            whole.write(part.read_bytes())
    try:
        with zipfile.ZipFile(archive) as zipped:
            for name, sha256 in MPNET.items():
                _unpack(zipped, f"all-mpnet-base-v2/{name}", folder / name)
                if sha256:
                    assets.check(folder / name, sha256)
    except assets.PackageMissing:
        raise
    except Exception as error:  # zipfile raises half a dozen kinds
        if getattr(error, "errno", None) in artifacts.UNWRITABLE:
            raise  # the disk is full, not the archive damaged
        reason = artifacts.first_line(error)
        raise assets.PackageMissing(
            f"the packages of mpnet hold no readable archive: {reason}"
        ) from None
    archive.unlink()


def _unpack(zipped: zipfile.ZipFile, member: str, path: Path) -> None:
    """Write a member of an archive to `path`, whatever path the archive gives it."""
    if zipped.getinfo(member).file_size > MAX_FILE_BYTES:
        raise zipfile.BadZipFile(f"{member} is larger than the model")
    with zipped.open(member) as inside, path.open("wb") as out:
        shutil.copyfileobj(inside, out)


CONVERTERS = {"minilm": _minilm, "minilm3": _minilm3, "smollm2": _smollm2, "mpnet": _mpnet}
