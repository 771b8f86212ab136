"""Files from strangers: what could run, fill memory, or reach out of its folder is refused.

A payload that runs leaves a file behind. What is only odd (a NUL, a bidirectional mark, the line
ends of another system) is read as the text that it is.
"""

import bz2
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from checkouts import ROOT
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import save_file

from scripts.anatomy import artifacts, assets, figures, html_pages
from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.embedding import classification_data, lexicon, lora
from scripts.anatomy.embedding.settings import AdapterSettings, Labelled
from scripts.anatomy.models import loading, store
from scripts.anatomy.models.loading import UnfitModel
from scripts.anatomy.models.settings import FolderModelSettings, PackagedModelSettings
from scripts.anatomy.pretraining import data
from scripts.anatomy.text import corpora, lda
from scripts.anatomy.text.settings import DictionarySettings, TextCorpusSettings
from scripts.anatomy.topic import corpora as topic_corpora
from scripts.anatomy.topic.settings import TextFileCorpusSettings
from scripts.embedding import page_difference, page_heads
from scripts.report import ledger


class Payload:
    """Unpickled, it leaves a file called `ran` in the working directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("ran", "w")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A working directory, with nothing run and nothing written outside of it in the end."""
    home = tmp_path / "a/b/here"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    yield home
    assert not list(tmp_path.rglob("ran"))
    assert not [path for path in tmp_path.rglob("*evil*") if not path.is_relative_to(home)]


def pickled() -> bytes:
    """A payload as pickle."""
    return pickle.dumps(Payload())


def torch_saved() -> bytes:
    """A payload as torch saves it: a zip with a pickle in it."""
    file = io.BytesIO()
    torch.save({"weights": Payload()}, file)
    return file.getvalue()


def one_line(error: pytest.ExceptionInfo) -> str:
    """What an error says: one line."""
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_payload_runs_when_it_is_unpickled(tmp_path: Path) -> None:
    """All tests below would pass with a payload that is none."""
    pickle.loads(pickled()).close()
    torch.load(io.BytesIO(torch_saved()), weights_only=False)["weights"].close()
    assert Path("ran").exists()
    Path("ran").unlink()


# --- models -------------------------------------------------------------------------------------


@pytest.fixture
def encoder(inputs: Path, here: Path) -> Path:
    """A folder of one's own with a tiny BERT."""
    return Path(artifacts.shutil.copytree(inputs / "encoder", here / "encoder"))


def taken_in(model: Path) -> Path:
    """What the workflow makes of a folder."""
    folder = Path("results/models/mine/weights")
    folder.mkdir(parents=True)
    store.store(FolderModelSettings(kind="folder", path=model), folder)
    return folder


PICKLES = [
    "pytorch_model.bin",
    "training_args.bin",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
]
PICKLES += ["model.pkl", "pytorch_model.bin.index.json", "adapter_model.bin", "flax_model.msgpack"]


def test_pickles_beside_the_weights_are_left_and_not_read(encoder: Path) -> None:
    """To look at a model would be to run what its author wrote."""
    for name in PICKLES:
        (encoder / name).write_bytes(torch_saved() if ".p" in name else pickled())
    folder = taken_in(encoder)
    assert not {path.name for path in folder.iterdir()} & {*PICKLES}
    for place in (folder, encoder):
        loading.model(place)
        loading.tokenizer(place, 200)


@pytest.mark.parametrize("content", [pickled, torch_saved], ids=["pickle", "zip of torch"])
def test_a_pickle_called_safetensors_is_refused(
    encoder: Path, content: Callable[[], bytes]
) -> None:
    """A library that goes by the content would unpickle it."""
    (encoder / "model.safetensors").write_bytes(content())
    folder = taken_in(encoder)
    with pytest.raises(UnreadableArtifact, match="has no readable weights") as caught:
        loading.model(folder)
    one_line(caught)
    with pytest.raises(UnreadableArtifact, match="is not readable as safetensors") as caught:
        artifacts.read_tensors(folder / "model.safetensors")
    one_line(caught)


@pytest.mark.parametrize(
    "named",
    ["pytorch_model.bin", "../secret.safetensors", "/etc/hostname", "a/b.safetensors", None, 5, [],
     "..", "http://host/x.safetensors", "model\0.safetensors"],
)  # fmt: skip
def test_shards_elsewhere_are_refused(encoder: Path, named: Any) -> None:
    """A model could read any file of the user's, or a pickle beside it."""
    (encoder / "pytorch_model.bin").write_bytes(torch_saved())
    (encoder / "model.safetensors").rename(encoder.parent / "secret.safetensors")
    save_file({"x": torch.zeros(1)}, encoder / "other.safetensors")
    index = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": named}}
    (encoder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(store.ModelUnavailable, match="model.safetensors.index.json") as caught:
        taken_in(encoder)
    one_line(caught)


@pytest.mark.parametrize(
    "index", [[], {}, {"weight_map": []}, {"weight_map": 5}, {"weight_map": None}]
)
def test_an_index_that_is_none_is_refused(encoder: Path, index: Any) -> None:
    """A key error would be all there is."""
    (encoder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(store.ModelUnavailable, match="model.safetensors.index.json"):
        taken_in(encoder)


def header(described: Any, size: int | None = None, rest: bytes = b"\0" * 64) -> bytes:
    """A safetensors file with a header of one's own."""
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + rest


def tensor(*, dtype: str = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    """The description of a tensor in a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE = {
    "header without end": header(b"{}", 2**63),
    "header of a terabyte": header(b"{}", 2**40),
    "header beyond the file": header(b"{}", 1000),
    "no JSON": header(b"not json"),
    "a list": header([1, 2]),
    "not UTF-8": header(b'{"\xff": 1}'),
    "deep": header(b"[" * 100_000),
    "beyond the file": header({"a": tensor(shape=(400,), offsets=(0, 1600))}),
    "overlapping": header({"a": tensor(), "b": tensor(offsets=(8, 24))}, rest=b"\0" * 24),
    "a hole": header({"a": tensor(), "b": tensor(offsets=(32, 48))}, rest=b"\0" * 48),
    "negative": header({"a": tensor(offsets=(-16, 0))}),
    "backwards": header({"a": tensor(offsets=(16, 0))}),
    "no such type": header({"a": tensor(dtype="OBJECT")}),
    "a million million": header({"a": tensor(shape=(10**6, 10**6))}),
    "more than there are": header({"a": tensor(shape=(2**62, 2**62))}),
    "negative shape": header({"a": tensor(shape=(-4,))}),
    "shape of words": header({"a": tensor(shape=("x",))}),
    "metadata of numbers": header({"__metadata__": {"a": 5}, "a": tensor()}),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_safetensors_header_is_refused(content: bytes, encoder: Path) -> None:
    """A reader that believes it would take a terabyte, or memory that is not its own."""
    path = encoder / "model.safetensors"
    path.write_bytes(content)
    for read in (
        artifacts.read_tensors,
        lambda path: artifacts.read_tensors(path, framework="torch"),
        artifacts.read_metadata,
    ):
        with pytest.raises(UnreadableArtifact, match="is not readable as safetensors") as caught:
            read(path)
        one_line(caught)
    with pytest.raises(UnreadableArtifact, match="has no readable weights") as caught:
        loading.model(encoder)
    one_line(caught)


def changed(folder: Path, file: str, **changes: Any) -> None:
    """Changes keys of a JSON file."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"hidden_act": "evil"},
        {"vocab_size": 10**13},
        {"num_attention_heads": 0},
        {"dtype": "evil"},
        {"pad_token_id": 10**6},
        {"model_type": ["bert"]},
        {"auto_map": 5},
        {"quantization_config": {"quant_method": "evil"}},
        {"transformers_weights": "../secret.safetensors"},
        {"layer_norm_eps": "evil"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_that_asks_for_nonsense_is_one_line(encoder: Path, changes: dict) -> None:
    """The job would end in a traceback of the library, or take all memory before it does."""
    changed(encoder, "config.json", **changes)
    with pytest.raises((UnfitModel, UnreadableArtifact)) as caught:
        loading.model(encoder)
    one_line(caught)


@pytest.mark.parametrize("text", ["[]", "5", "[" * 100_000, '{"a":' * 100_000, "\0", ""])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_settings_of_a_model_that_are_none_are_one_line(
    encoder: Path, file: str, text: str
) -> None:
    """The recursion error, or the type error, of a parser would name nothing."""
    (encoder / file).write_text(text)
    if file == "tokenizer_config.json" and text == "":
        return  # there need not be any
    with pytest.raises((UnfitModel, UnreadableArtifact)) as caught:
        loading.model(encoder) if file == "config.json" else loading.tokenizer(encoder, 200)
    one_line(caught)


EVIL = "open('ran', 'w')\nclass T: ...\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}, "tokenizer_class": "T"},
        {"auto_map": {"AutoTokenizer": ["org/name--evil.T", None]}, "tokenizer_class": "Evil"},
        {"auto_map": {"AutoTokenizer": ["../evil.T", "/evil.T"]}},
        {"tokenizer_class": "os.system"},
        {"tokenizer_class": "MarianTokenizer"},
        {"tokenizer_class": "BertJapaneseTokenizer"},
        {"tokenizer_class": "T5Tokenizer"},
        {"tokenizer_class": 5},
        {"pad_token": {"a": 1}},
        {"added_tokens_decoder": {"5": {"content": 5}}},
        {"chat_template": "{{ cycler.__init__.__globals__.os.system('touch ran') }}"},
    ],
    ids=lambda changes: str([*changes.items()][-1])[:40],
)
def test_a_tokenizer_that_asks_for_code_has_none_run(encoder: Path, changes: dict) -> None:
    """A tokenizer, which seems harmless, is what most repositories have code for."""
    for folder in (encoder, encoder.parent):
        (folder / "evil.py").write_text(EVIL)
    (encoder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    changed(encoder, "tokenizer_config.json", **changes)
    folder = taken_in(encoder)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    for place in (encoder, folder):
        try:
            assert loading.tokenizer(place, 202)("horse")["input_ids"]
        except UnfitModel as error:
            assert "\n" not in str(error)


def test_a_tokenizer_without_its_words_is_refused(encoder: Path) -> None:
    """Every word would be unknown, and the study go on."""
    (encoder / "tokenizer.json").unlink()
    (encoder / "vocab.txt").write_text("[UNK]\nhorse\n")
    changed(encoder, "tokenizer_config.json", tokenizer_class="XLNetTokenizer")
    with pytest.raises(UnfitModel, match="special tokens"):
        loading.tokenizer(encoder, 200)


def test_links_are_followed_and_told(
    encoder: Path, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The hub's cache is made of links; one to a file that is no model must end like that file."""
    caplog.set_level("INFO")
    (here / "secret").write_text("user:password\n")
    for name in ("config.json", "model.safetensors"):
        (encoder / name).unlink()
        (encoder / name).symlink_to(here / "secret")
    folder = taken_in(encoder)
    assert f"config.json is a link to {here / 'secret'}" in caplog.text
    with pytest.raises(UnfitModel) as caught:
        loading.model(folder)
    assert "password" not in one_line(caught)
    (encoder / "model.safetensors").unlink()
    (encoder / "model.safetensors").symlink_to("nowhere")
    artifacts.shutil.rmtree(folder)
    with pytest.raises(UnreadableArtifact, match="model.safetensors: is missing"):
        taken_in(encoder)


def test_a_pipe_is_no_weights(encoder: Path) -> None:
    """The job would wait for ever."""
    (encoder / "model.safetensors").unlink()
    os.mkfifo(encoder / "model.safetensors")
    with pytest.raises(UnreadableArtifact, match="is missing"):
        taken_in(encoder)


# --- adapters -----------------------------------------------------------------------------------


@pytest.fixture
def adapter(here: Path) -> Path:
    """A LoRA adapter for `decoder`."""
    tiny_models.save_adapter(here / "adapter")
    return here / "adapter"


def decoder() -> Any:
    """A decoder that the adapter is for."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    return AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=24,
        )
    )  # fmt: skip


def test_the_adapter_is_read(adapter: Path) -> None:
    """What is refused below would be refused for another reason."""
    assert lora.differences(adapter, decoder()).keys() == {"layers.1.self_attn.q_proj.weight"}


def test_an_adapter_with_pickled_weights_is_refused(adapter: Path) -> None:
    """The library peft takes them."""
    weights = adapter / "adapter_model.safetensors"
    (adapter / "adapter_model.bin").write_bytes(torch_saved())
    weights.write_bytes(torch_saved())
    with pytest.raises(UnreadableArtifact, match="is not readable as safetensors"):
        lora.differences(adapter, decoder())
    weights.unlink()
    with pytest.raises(ValidationError, match=r"has no adapter_model\.safetensors"):
        AdapterSettings(model="decoder", path=adapter)


@pytest.mark.parametrize(
    "changes",
    [
        {"r": 0}, {"r": "x"}, {"r": None}, {"lora_alpha": []}, {"rank_pattern": [1]},
        {"rank_pattern": {"(a+)+$": 2}}, {"rank_pattern": {"(": 2}},
        {"rank_pattern": {"q_proj": 0}},
        {"alpha_pattern": {".*": 1}}, {"peft_type": "__import__('os')"}, {"peft_type": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_adapter_with_nonsense_in_its_settings_is_one_line(adapter: Path, changes: dict) -> None:
    """A pattern can be made to match for years; a rank of 0 ends in a traceback."""
    changed(adapter, "adapter_config.json", **changes)
    with pytest.raises(ValueError, match="adapter") as caught:
        lora.differences(adapter, decoder())
    one_line(caught)


def test_an_adapter_fetches_no_model_and_no_code(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a folder would be to download what it names."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asks the network"))
    changed(
        adapter, "adapter_config.json", base_model_name_or_path="org/evil", revision="evil",
        auto_mapping={"parent_library": "evil", "base_model_class": "T"},
        layer_replication=[[0, 9]],
    )  # fmt: skip
    (adapter / "evil.py").write_text(EVIL)
    assert lora.differences(adapter, decoder())


@pytest.mark.parametrize(
    "factors",
    [
        {"q_proj": ((1, 10**6), (10**6, 1))},
        {"q_proj": ((2, 16), (16, 3))},
        {"q_proj": ((16,), (16,))},
        {"": ((2, 16), (16, 2))},
        {"__class__": ((2, 16), (16, 2))},
        {"q_proj.weight": ((2, 16), (16, 2))},
    ],
    ids=[
        "a million million",
        "unequal ranks",
        "no matrix",
        "a module of modules",
        "a class",
        "weight",
    ],
)
def test_an_adapter_for_nothing_in_the_model_is_one_line(adapter: Path, factors: dict) -> None:
    """A product that fits nowhere would be computed, a terabyte, before anybody compares shapes."""
    ((module, (A, B)),) = factors.items()
    start = "base_model.model.model.layers.1.self_attn" + (f".{module}" if module else "")
    save_file(
        {f"{start}.lora_A.weight": torch.zeros(A), f"{start}.lora_B.weight": torch.zeros(B)},
        adapter / "adapter_model.safetensors",
    )
    with pytest.raises(ValueError, match="adapter") as caught:
        lora.differences(adapter, decoder())
    one_line(caught)


# --- artifacts ----------------------------------------------------------------------------------


def test_arrays_of_objects_are_refused(here: Path) -> None:
    """Results that somebody else has made are arrays too, and could hold a pickle."""
    with (here / "rows.npy").open("wb") as file:
        np.save(file, np.array([Payload(), 1], dtype=object), allow_pickle=True)
    with pytest.raises(UnreadableArtifact) as caught:
        data.read(here / "rows.npy")
    one_line(caught)


def test_an_index_of_bags_is_not_unpickled(here: Path) -> None:
    """Results from elsewhere could run code: gensim unpickles what lies beside a corpus."""
    texts = ["horse sheep", "sheep goat", "goat horse"]
    words = lda.dictionary(texts, DictionarySettings(no_below=1, no_above=1, min_word_length=1))
    words.save_as_text(str(here / "dictionary.txt"))
    lda.save_bags(here / "bags.mm", lda.bags(texts, words, tfidf=False))
    for name in ("bags.mm.index", "bags.index", "dictionary.txt.index"):
        (here / name).write_bytes(pickled())
    loaded, bags = lda.load(here / "dictionary.txt", here / "bags.mm")
    assert [len(bag) for bag in bags] == [2, 2, 2] and len(bags) == 3
    assert loaded.token2id == words.token2id


# --- archives -----------------------------------------------------------------------------------


def archive(members: dict[str, bytes]) -> bytes:
    """A zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return file.getvalue()


INSIDE = {f"all-mpnet-base-v2/{name}": b"x" for name in store.MPNET}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            archive(INSIDE | {"../../evil": b"x", "/tmp/evil": b"x"}),
            "model.safetensors: .*SHA-256",
        ),
        (archive({f"../{name}": b"x" for name in INSIDE}), "no item named"),
        (archive({}), "no item named"),
        (b"no archive", "not a zip file"),
        (archive(INSIDE)[:-30], "not a zip file"),
    ],
    ids=["paths upwards", "all of them upwards", "empty", "no archive", "cut off"],
)
def test_a_packaged_archive_is_taken_apart_by_name(
    content: bytes, reason: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packager of a model could write anywhere in the user's home."""
    (here / "part").write_bytes(content)
    monkeypatch.setattr(assets, "parts", lambda name: [here / "part"])
    folder = here / "weights"
    folder.mkdir()
    with pytest.raises(assets.PackageMissing, match=reason) as caught:
        store.store(PackagedModelSettings(kind="packaged", package="mpnet"), folder)
    one_line(caught)
    assert {path.name for path in folder.iterdir()} <= {"archive.zip", *store.MPNET}


def test_an_archive_that_unpacks_without_end_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes would fill the disk."""
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 1000)
    (here / "part").write_bytes(archive(INSIDE | {"all-mpnet-base-v2/config.json": b"0" * 10**6}))
    monkeypatch.setattr(assets, "parts", lambda name: [here / "part"])
    monkeypatch.setattr(assets, "check", lambda *_: None)
    with pytest.raises(assets.PackageMissing, match="config.json is larger than the model"):
        store.store(PackagedModelSettings(kind="packaged", package="mpnet"), here)


def tar(members: dict[str, bytes]) -> bytes:
    """A tar file, with a link that leads out of it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as taken:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            taken.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        taken.addfile(link)
    return file.getvalue()


UPWARDS = {"../../evil.csv": b"text\nevil\n", "/tmp/evil.csv": b"text\nevil\n", "a.pkl": pickled()}


@pytest.mark.parametrize("name", ["data.zip", "data.tar", "data.csv", "data.jsonl", "data.parquet"])
@pytest.mark.parametrize("made", [archive, tar])
def test_an_archive_in_a_data_set_writes_nothing(
    made: Callable[[dict[str, bytes]], bytes], name: str, here: Path
) -> None:
    """Data sets are archives, and their members go where their names say."""
    (here / "set").mkdir()
    (here / "set" / name).write_bytes(made(UPWARDS))
    (here / "set/set.py").write_text(EVIL)
    (here / "set/a.pkl").write_bytes(pickled())
    kinds = [{"kind": "hub", "id": "set"}]
    kinds += (
        [{"kind": "table", "path": f"set/{name}"}]
        if name[5:] in ("csv", "jsonl", "parquet")
        else []
    )
    for kind in kinds:
        with pytest.raises(ValueError, match="^set") as caught:
            read(**kind)
        one_line(caught)


# --- natural text -------------------------------------------------------------------------------


def read(**keys: Any) -> list[str]:
    """The documents of a corpus with one word or more."""
    return list(
        corpora.documents(TypeAdapter(TextCorpusSettings).validate_python({"min_length": 1} | keys))
    )


ODD = "a\0b \x1b[2J\x1b[31mred \u202eback \u200bzero \ufffd \x07bell <script> $\\frac{ %s {x}"


def test_odd_signs_are_text(here: Path) -> None:
    """One page in a million has a NUL, and would stop a study of all of Wikipedia."""
    (here / "a.txt").write_text(f"{ODD}\nsecond line\n", encoding="utf-8")
    assert read(kind="lines", path="a.txt") == [" ".join(ODD.split()), "second line"]
    pd.DataFrame({"text": [ODD]}).to_parquet("a.parquet")
    assert read(kind="table", path="a.parquet") == [" ".join(ODD.split())]
    (here / "a.jsonl").write_text(json.dumps({"text": ODD}) + "\n")
    assert read(kind="table", path="a.jsonl") == [" ".join(ODD.split())]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_lines_end_as_they_do_elsewhere(end: str, start: str, here: Path) -> None:
    """Files of Windows would have a mark in their first word, or be one long line."""
    text = f"{start}one two\u2028three{end}four\x0cfive\x85six{end}"
    (here / "a.txt").write_bytes(text.encode())
    assert read(kind="lines", path="a.txt") == ["one two three", "four five six"]
    (here / "a.csv").write_bytes(f"{start}text{end}one two{end}".encode())
    assert read(kind="table", path="a.csv") == ["one two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"caf\xe9\n"),
        ("a.txt", b"\n" * 10**6),
        ("a.csv", b'text\n"never ends\nmore\n'),
        ("a.csv", b"text\ncaf\xe9\n"),
        ("a.csv", b"\n" * 10**6),
        ("a.jsonl", b'{"text": {"a": 1}}\n'),
        ("a.jsonl", b'{"text": ["a"]}\n'),
        ("a.jsonl", b"[" * 200_000),
        ("a.jsonl", b'{"text": "a"\n'),
        ("a.parquet", b"PAR1" + b"\0" * 100 + b"PAR1"),
        ("a.bz2", bz2.compress(b"<mediawiki><page>&evil;</page></mediawiki>")),
        ("a.bz2", bz2.compress(b"\n" * 10**6)),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:20]),
)
def test_text_that_is_none_is_one_line(name: str, content: bytes, here: Path) -> None:
    """A job of hours would end in a traceback, or on half of the text."""
    (here / name).write_bytes(content)
    kind = {".txt": "lines", ".bz2": "dump"}.get(Path(name).suffix, "table")
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        read(kind=kind, path=name)
    one_line(caught)


def test_a_parquet_that_is_cut_off_is_one_line(here: Path) -> None:
    """A copy that broke off would be read as a shorter one."""
    pd.DataFrame({"text": ["word " * 9] * 2000}).to_parquet("a.parquet")
    path = here / "a.parquet"
    path.write_bytes(path.read_bytes()[:-500])
    for reading in (lambda: read(kind="table", path="a.parquet"), lambda: labels("a.parquet")):
        with pytest.raises(ValueError, match=r"^a\.parquet: ") as caught:
            reading()
        one_line(caught)


def dump(text: str, before: str = "") -> bytes:
    """A dump of one page."""
    page = f"<page><ns>0</ns><revision><text>{text}</text></revision></page>"
    return bz2.compress(f"{before}<mediawiki>{page}</mediawiki>".encode())


LAUGHS = "".join(
    f'<!ENTITY {here} "{f"&{before};" * 10}">'
    for before, here in zip("abcdefghi", "bcdefghij", strict=True)
)
LAUGHS = f'<!DOCTYPE x [<!ENTITY a "evil evil evil">{LAUGHS}]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>'


@pytest.mark.parametrize("before", [LAUGHS, OUTSIDE], ids=["a billion laughs", "a file outside"])
def test_entities_of_a_dump_are_refused(before: str, here: Path) -> None:
    """A kilobyte would be three gigabytes, or the text of a page a file of the user's."""
    (here / "a.bz2").write_bytes(dump("&j;" if before is LAUGHS else "&a;", before))
    with pytest.raises(ValueError, match=r"^a\.bz2: ") as caught:
        read(kind="dump", path="a.bz2")
    one_line(caught)


FOLDER_CARD = "---\nconfigs:\n- config_name: default\n  {key}: {value}\n---\n"


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data_files", "../secret.csv"),
        ("data_files", "[{split: train, path: [a.csv, ../secret.csv]}]"),
        ("data_files", "{train: /etc/hostname}"), ("data_dir", ".."), ("data_dir", "a/../.."),
        ("data_files", "http://127.0.0.1:9/a.csv"), ("data_files", "'zip://*::x.zip'"),
        ("data_files", "~/secret.csv"),
    ],
)  # fmt: skip
def test_a_data_set_of_files_elsewhere_is_refused(
    key: str, value: str, name: str, here: Path
) -> None:
    """A folder from a stranger could bring the user's files, or the network's, into results."""
    (here / "set").mkdir()
    (here / "secret.csv").write_text("text\nsecret\n")
    (here / "set/a.csv").write_text("text\nharmless\n")
    card = FOLDER_CARD.format(key=key, value=value)
    (here / "set" / name).write_text(card if name == "README.md" else card.strip("-\n"))
    with pytest.raises(ValueError, match="^set: its description names data outside") as caught:
        read(kind="hub", id="set")
    one_line(caught)


@pytest.mark.parametrize("name", ["text", "csv", "json", "pandas", "set"])
def test_a_folder_is_a_folder_whatever_its_name(name: str, here: Path) -> None:
    """`datasets` takes some names for its own readers, of all that is in the working directory."""
    (here / "secret.csv").write_text("text\nsecret\n")
    (here / name).mkdir()
    (here / name / "a.csv").write_text("text\nharmless\n")
    assert read(kind="hub", id=name) == ["harmless"]


@pytest.mark.parametrize("name", ["*.csv", "a[1].csv", "a?.csv"])
def test_a_path_is_no_pattern(name: str, here: Path) -> None:
    """Another file than the one that was named would be read."""
    (here / "ab.csv").write_text("text\nsecret\n")
    (here / name).write_text("text\nharmless\n")
    assert read(kind="table", path=name) == ["harmless"]


# --- memory -------------------------------------------------------------------------------------

MEASURED = """
import resource, sys
from pathlib import Path
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {call}
except ValueError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
CORPUS = """
from pydantic import TypeAdapter
from scripts.anatomy.text.settings import TextCorpusSettings
from scripts.anatomy.text import corpora
import datasets
def read(**keys):
    keys = {"min_length": 1} | keys
    return sum(map(len, corpora.documents(TypeAdapter(TextCorpusSettings).validate_python(keys))))
"""


def measured(setup: str, call: str, here: Path) -> tuple[str, int]:
    """What a call in a process of its own says, and how many MB it takes."""
    program = MEASURED.format(setup=setup, call=call)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True, check=True, timeout=170,
    )  # fmt: skip
    *said, size = done.stdout.splitlines()
    return "\n".join(said), int(size)


def test_a_line_without_end_takes_little_memory(here: Path) -> None:
    """A file that is no text, or one line of 100 MB, would take gigabytes in words."""
    with (here / "a.txt").open("w") as file:
        for _ in range(100):
            file.write("ab " * 333_334)
    said, size = measured(CORPUS, "read(kind='lines', path='a.txt')", here)
    assert said == "a.txt: document 1 has more than 5000000 characters"
    assert size < 100


def test_a_page_without_end_takes_little_memory(here: Path) -> None:
    """A bz2 file of 5 kB can hold a page of gigabytes."""
    packed = bz2.BZ2Compressor()
    with (here / "a.bz2").open("wb") as file:
        file.write(packed.compress(b"<mediawiki><page><ns>0</ns><revision><text>"))
        for _ in range(100):
            file.write(packed.compress(b"\0 "[1:] * 10**6))
        file.write(packed.flush())
    assert (here / "a.bz2").stat().st_size < 10_000
    said, size = measured(CORPUS, "read(kind='dump', path='a.bz2')", here)
    assert said == "a.bz2: a page has more than 5000000 characters"
    assert size < 150


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_field_without_end_takes_bounded_memory(name: str, here: Path) -> None:
    """The library holds what it reads; what we make of it must not be ten times as much."""
    text = "ab " * (100_000_000 // 3)
    match name:
        case "a.csv":
            (here / name).write_text(f"text\n{text}\n")
        case "a.jsonl":
            (here / name).write_text(json.dumps({"text": text}) + "\n")
        case _:
            pd.DataFrame({"text": [text]}).to_parquet(name)
    said, size = measured(CORPUS, f"read(kind='table', path={name!r})", here)
    assert said.startswith(f"{name}: ")
    assert size < 1200, size


# --- topics of one's own ------------------------------------------------------------------------


def documents(here: Path, content: bytes, table: bytes | None = None) -> topic_corpora.Corpus:
    """A corpus of four words in two topics, with a training file of this content."""
    (here / "train.txt").write_bytes(content)
    (here / "validation.txt").write_text("0 END\n")
    settings: dict[str, Any] = {
        "kind": "text",
        "train": "train.txt",
        "validation": "validation.txt",
    }
    if table is None:
        settings |= {"topics": 2, "words": 4}
    else:
        (here / "table.csv").write_bytes(table)
        (here / "validation.txt").write_text("cat END\n")
        settings["table"] = "table.csv"
    return topic_corpora.read(TextFileCorpusSettings.model_validate(settings))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"0 1 END\n\x1b[2J 1 END\n", r"train.txt:2: the word '\x1b[2J' has no topic"),
        (b"0 1 END\n0\0 1 END\n", r"train.txt:2: the word '0\x00' has no topic"),
        (b"0 1 END\n\xff END\n", "train.txt: not a UTF-8 text file"),
        ("\u202e0 END\n".encode(), r"train.txt:1: the word '\u202e0' has no topic"),
        (b"\n" * 10**6, "train.txt: the file is blank"),
        (b"0 " * 10**6, "train.txt:1: more than 1000000 characters in a line"),
        (b"\0" * 2 * 10**6, "train.txt:1: more than 1000000 characters in a line"),
    ],
    ids=["escape", "NUL", "not UTF-8", "bidi", "empty lines", "a long line", "zeros"],
)
def test_documents_of_odd_signs_are_named(content: bytes, line: str, here: Path) -> None:
    """A terminal would obey what stands in somebody's file."""
    with pytest.raises(ValueError) as caught:
        documents(here, content)
    assert one_line(caught) == line


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf0 1 END\r\n2 3 END\r\n", b"0 1 END\r2 3 END\r",
                                     "0\u2028 1 END\n2\x0c3 END\n".encode()])  # fmt: skip
def test_documents_of_other_systems_are_read(content: bytes, here: Path) -> None:
    """The first word of a file of Windows would have no topic."""
    corpus = documents(here, content)
    assert corpus.train.tolist() == [[2, 4, 5, 3], [2, 6, 7, 3]]


def test_a_table_of_odd_words_is_read(here: Path) -> None:
    """A word that looks like a formula or markup is a word."""
    table = "\ufeffword,topic\ncat,$\\frac{\n<b>,$\\frac{\n".encode()
    assert documents(here, b"cat <b> END\n", table).membership.shape == (2, 1)


def test_documents_that_do_not_fit_when_padded_are_told(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long document among many short ones would take all memory, at every start."""
    monkeypatch.setattr(topic_corpora, "MAX_TOKENS", 1000)
    with pytest.raises(ValueError, match="^train.txt: 101 documents padded to 102 tokens"):
        documents(here, b"0 END\n" * 100 + b"0 " * 100 + b"END\n")


# --- labelled text and words --------------------------------------------------------------------


def labels(path: str) -> pd.DataFrame:
    """The labelled texts in a table."""
    return classification_data.read(
        TypeAdapter(Labelled).validate_python({"kind": "table", "path": path})
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b'text,label\n"never ends,1\nb,0\n'),
        ("a.csv", b"text,label\ncaf\xe9,1\n"),
        ("a.csv", b""),
        ("a.jsonl", b'{"text": {"a": 1}, "label": 1}\n{"text": "b", "label": 0}\n'),
        ("a.jsonl", b'{"text": "a", "label": [1]}\n{"text": "b", "label": [0]}\n'),
        ("a.jsonl", b'{"text": "a", "label": {"x": 1}}\n'),
        ("a.jsonl", b"[" * 200_000),
        ("a.parquet", b"PAR1"),
        ("a.csv", b"text,label\n" + b"x" * 5_000_001 + b",1\nb,0\n"),
    ],
    ids=["quotes", "latin", "empty", "nested", "lists", "sections", "deep", "parquet", "long"],
)
def test_labelled_text_that_is_none_is_one_line(name: str, content: bytes, here: Path) -> None:
    """The job would end in a traceback of pandas."""
    (here / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        labels(name)
    one_line(caught)


def test_labelled_text_of_odd_signs_is_text(here: Path) -> None:
    """A review with a NUL or an escape would end the reading of all."""
    rows = [{"text": ODD, "label": "=1+1"}, {"text": "plain", "label": "<b>"}]
    (here / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert labels("a.jsonl")["text"].tolist() == [" ".join(ODD.split()), "plain"]


def test_words_of_a_file_that_is_no_text_are_one_line(here: Path) -> None:
    """A word list in Latin-1 would be a traceback."""
    (here / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"^words\.txt is not UTF-8 text$"):
        lexicon.words(Path("words.txt"))
    (here / "words.txt").write_text("\ufeffGood\r\nbad\0\n", encoding="utf-8")
    assert lexicon.words(Path("words.txt")) == {"good", "bad\0"}


# --- pages and figures --------------------------------------------------------------------------

MARKUP = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "&lt;b&gt;", "</i></td>",
          "javascript:1", "\u202e", "\0", "$x", "${title}"]  # fmt: skip


def assert_escaped(page: str) -> None:
    """No token has become markup, or a place of the template."""
    for text in ("<script", "<img", "</i></td></", "onerror=alert(1)>"):
        assert text not in page.replace("&gt;", ">") or text == "onerror=alert(1)>"
    assert "<script" not in page and "<img" not in page
    assert "&lt;script&gt;" in page and "&amp;lt;b&amp;gt;" in page


def test_tokens_are_text_in_pages() -> None:
    """A token of a model, which its author chose, would run in whoever reads the report."""
    table = pd.DataFrame(
        {"vector": MARKUP, "tokens": [html_pages.chips(MARKUP, marked=MARKUP[:2])] * 9}
    )
    page = html_pages.page(
        MARKUP[0], MARKUP[1], {MARKUP[0]: html_pages.table(table), MARKUP[2]: "x"}
    )
    assert_escaped(page)
    assert "${title}" in page


def job(here: Path, **parts: dict[str, Any]) -> Any:
    """What Snakemake gives a script, with one output."""
    from types import SimpleNamespace

    named = {name: SimpleNamespace(**part) for name, part in parts.items()}
    return SimpleNamespace(output=[str(here / "page.html")], **named)


def test_the_pages_of_a_model_have_its_tokens_as_text(here: Path) -> None:
    """The same, through the scripts."""
    vocabulary = {"label": MARKUP, "text": MARKUP}
    heads = {"layer": [0], "head": [0], "matrix": ["VO"], "copying_score": [0.5]}
    pairs = {"layer": 0, "head": 0, "matrix": "VO", "order": "largest", "rank": range(9)}
    tables = {
        "vocabulary": vocabulary,
        "heads": heads | {"effective_rank": [1.0]},
        "pairs": pairs | {"row": range(9), "column": range(8, -1, -1)},
        "words": {
            "layer": [0], "group": ["K"], "index": [0], "head": [-1], "sign": ["+"],
            "tokens": [MARKUP], "sentiment": [[True] * 9],
        },
    }  # fmt: skip
    for name, columns in tables.items():
        artifacts.write_table(here / f"{name}.parquet", pd.DataFrame(columns))
    files = {name: str(here / f"{name}.parquet") for name in tables}
    page_heads.main(job(here, input=files, wildcards={"model": "mine"}))
    assert_escaped((here / "page.html").read_text("utf-8"))
    params = {"trained": True, "seed": 0}
    page_difference.main(job(here, input=files, wildcards={"run": "mine"}, params=params))
    assert_escaped((here / "page.html").read_text("utf-8"))


def test_the_ledger_has_claims_as_text(here: Path) -> None:
    """A claim is written by hand, and may have a sign that is markup."""
    row = dict.fromkeys(["id", "statement", "source", "expected"], MARKUP[0] + MARKUP[2])
    numbers = {"value": 1.0, "low": 0.5, "high": 2.0, "seeds": 3}
    table = pd.DataFrame([row | numbers | {"verdict": "reproduced"}])
    artifacts.write_table(here / "claims.csv", table)
    inputs = {"claims": str(here / "claims.csv")}
    ledger.main(job(here, input=inputs, params={"scale": "<script>"}))
    assert_escaped((here / "page.html").read_text("utf-8"))


@pytest.mark.parametrize(
    "text", ["$\\frac", "$\\frac$", "$$", "$", "a$b$c", "\\$x$", "%s", "{x}", "\0$"]
)
def test_a_figure_has_signs_as_they_are(text: str, here: Path) -> None:
    """A token with two dollars would be a formula, and a broken one end the job."""
    figure, ax = plt.subplots()
    ax.set_xticks([0], labels=[figures.plain(text)])
    ax.set_title(figures.plain(text))
    figures.save(figure, here / "a.png", here / "a.svg")
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown[0].replace("\\$", "$") == text
    assert (here / "a.svg").stat().st_size > 1000
