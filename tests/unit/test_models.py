"""Models of every architecture are stored, loaded and read as they are; bad ones are named."""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import load_file, save_file
from tiny_models import fill
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForCausalLM,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    MPNetConfig,
    OPTConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
)

from scripts.anatomy import assets
from scripts.anatomy.artifacts import UnreadableArtifact, writing_folder
from scripts.anatomy.assets import PackageMissing
from scripts.anatomy.models import loading, store
from scripts.anatomy.models.loading import UnfitModel
from scripts.anatomy.models.settings import (
    FolderModelSettings,
    HubModelSettings,
    ModelSettings,
    PackagedModelSettings,
)
from scripts.anatomy.models.store import ModelUnavailable
from scripts.anatomy.text import measures
from scripts.anatomy.text.word_tokens import WordTokens

D_VOCAB, POSITIONS = 40, 24
SIZES = {
    **{"vocab_size": D_VOCAB, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 16, "max_position_embeddings": POSITIONS},
}
BART_SIZES = {
    **{"vocab_size": D_VOCAB, "d_model": 8, "max_position_embeddings": POSITIONS},
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")},
}
ENCODERS = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
    "electra": ElectraConfig(embedding_size=4, **SIZES),
    "albert": AlbertConfig(embedding_size=4, **SIZES),
    "bart": BartConfig(**BART_SIZES),
    "mpnet": MPNetConfig(**SIZES),
    "distilbert": DistilBertConfig(
        vocab_size=D_VOCAB, dim=8, n_layers=2, n_heads=2, hidden_dim=16,
        max_position_embeddings=POSITIONS,
    ),
    "t5": T5Config(vocab_size=D_VOCAB, d_model=8, d_kv=4, num_layers=2, num_heads=2, d_ff=16),
}  # fmt: skip
DECODERS = {
    "gpt2": GPT2Config(
        vocab_size=D_VOCAB, n_embd=8, n_layer=2, n_head=2, n_positions=POSITIONS,
        bos_token_id=0, eos_token_id=0,
    ),
    "llama": LlamaConfig(num_key_value_heads=1, **SIZES),
    "opt": OPTConfig(
        ffn_dim=16, word_embed_proj_dim=8,
        **{name: size for name, size in SIZES.items() if name != "intermediate_size"},
    ),
    "neox": GPTNeoXConfig(**SIZES),
}  # fmt: skip
ARCHITECTURES = ENCODERS | DECODERS
architectures = pytest.mark.parametrize("name", ARCHITECTURES)


def save_tokenizer(folder: Path, tokens: int = D_VOCAB) -> None:
    """A fast tokenizer that knows some words by heart."""
    vocabulary = {"[UNK]": 0} | {f"w{number}": number for number in range(1, tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders with a tiny model and a tokenizer, made when they are first asked for."""
    base = tmp_path_factory.mktemp("models")

    def folder(name: str) -> Path:
        if not (base / name).is_dir():
            fill(AutoModel.from_config(ARCHITECTURES[name])).save_pretrained(base / name)
            save_tokenizer(base / name)
        return base / name

    return folder


@pytest.fixture
def bert(stored: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder of one's own with a tiny BERT, to do damage to."""
    return Path(shutil.copytree(stored("bert"), tmp_path / "bert"))


def change_config(folder: Path, **changes: Any) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | changes))


def refuse_code(folder: Path) -> dict[str, str]:
    """Code in a model's folder that would be noticed, and the map that asks for it."""
    (folder / "evil.py").write_text("import os\nos._exit(3)\n")
    return {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoTokenizer": ["evil.T", "evil.T"]}


# --- every architecture -------------------------------------------------------------------------


@architectures
def test_a_model_comes_back_as_it_was_saved(name: str, stored: Callable[[str], Path]) -> None:
    """Measurements would be of other weights, of half precision, or with dropout."""
    loaded = loading.model(stored(name))
    saved = load_file(stored(name) / "model.safetensors")
    state = loaded.state_dict()
    for tensor in saved:
        assert state[tensor].equal(saved[tensor]), tensor
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert not any(module.training for module in loaded.modules())
    tokenizer = loading.tokenizer(stored(name), len(loaded.get_input_embeddings().weight))
    assert tokenizer("w3 other w5").input_ids == [3, 0, 5]


def test_weights_stored_in_half_precision_are_read_in_full(bert: Path) -> None:
    """Attention would be computed to two digits, and on many CPUs fifty times slower."""
    exact = {name: tensor.bfloat16() for name, tensor in loading.model(bert).state_dict().items()}
    save_file(exact, bert / "model.safetensors", {"format": "pt"})
    change_config(bert, dtype="bfloat16")
    for name, tensor in loading.model(bert).state_dict().items():
        assert tensor.dtype == torch.float32
        assert tensor.equal(exact[name].float())


@architectures
def test_controls_are_fresh_weights_that_only_the_seed_decides(
    name: str, stored: Callable[[str], Path]
) -> None:
    """A control would keep trained weights, or disturb or depend on other random draws."""
    folder = stored(name)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = loading.control(folder, 0).state_dict(), loading.control(folder, 1).state_dict()
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(6)
    again, trained = loading.control(folder, 0).state_dict(), loading.model(folder).state_dict()
    assert all(tensor.equal(again[key]) for key, tensor in one.items())
    drawn = [key for key, tensor in one.items() if tensor.ndim == 2 and tensor.std() > 0]
    assert len(drawn) > 4
    for key in drawn:
        assert not one[key].equal(other[key]), key
        assert not one[key].equal(trained[key]), key
    assert {tensor.shape for tensor in one.values()} == {t.shape for t in trained.values()}


def test_a_control_has_the_initial_law_of_its_architecture(tmp_path: Path) -> None:
    """A control would be initialised by torch's defaults, fifty times too large."""
    settings = BertConfig(**SIZES | {"vocab_size": 2000, "initializer_range": 0.03})
    fill(AutoModel.from_config(settings)).save_pretrained(tmp_path)
    weight = loading.control(tmp_path, 0).embeddings.word_embeddings.weight
    assert weight.std().item() == pytest.approx(0.03, rel=0.03)
    assert not weight[settings.pad_token_id].any()


def test_a_control_of_half_precision_weights_is_drawn_in_full(bert: Path) -> None:
    """A control would have weights rounded to 8 bits because the trained ones were stored so."""
    full = loading.control(bert, 0)
    change_config(bert, dtype="bfloat16")
    half = loading.control(bert, 0)
    assert half.embeddings.word_embeddings.weight.equal(full.embeddings.word_embeddings.weight)
    assert half.embeddings.word_embeddings.weight.dtype == torch.float32


@architectures
def test_only_decoders_are_causal(name: str, stored: Callable[[str], Path]) -> None:
    """Uniform attention would be the wrong one, and half the pairs with it."""
    for model in (loading.model(stored(name)), loading.control(stored(name), 0)):
        assert measures.is_causal(model) is (name in DECODERS)


def documents(rng: np.random.Generator) -> list[WordTokens]:
    """Documents of unequal lengths, in which two tokens in three are words."""
    found = []
    for length in (9, 17, 5, 12, 20):
        words = rng.integers(0, 12, length)
        words[rng.random(length) < 1 / 3] = -1
        found.append(WordTokens(rng.integers(2, D_VOCAB, length), words, split=0, cut=False))
    return found


@torch.inference_mode()
def maps_alone(model: PreTrainedModel, tokens: np.ndarray) -> np.ndarray:
    """The library's attention maps of one document without padding, layers by heads by n by n."""
    network = model.get_encoder() if model.config.is_encoder_decoder else model
    output = network(input_ids=torch.from_numpy(tokens)[None], output_attentions=True)
    return torch.cat(output.attentions).numpy().astype(np.float64)


@architectures
def test_attention_equals_a_loop_over_single_documents(
    name: str, stored: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, batches, or an architecture's own kind of output would change the numbers."""
    from benchmarks.structure import plain_loop, topic_sets

    monkeypatch.setattr(measures, "DOCUMENT_BATCH", 3)
    rng = np.random.default_rng(0)
    readings, member = documents(rng), rng.random((2, 12, 3)) < 0.4
    model = loading.model(stored(name))
    found = measures.attention(
        model, readings, torch.from_numpy(member), replicates=2, rng=np.random.default_rng(7)
    )
    times = np.random.default_rng(7).poisson(1.0, (len(readings), 2))  # as the bootstrap draws
    mass, pairs = np.zeros_like(found.mass), np.zeros_like(found.pairs)
    for reading, drawn in zip(readings, times, strict=True):
        maps = maps_alone(model, reading.tokens)
        alone = plain_loop(maps, reading.words, topic_sets(member), causal=name in DECODERS)
        mass += np.multiply.outer([1, *drawn], alone[0])
        pairs += np.multiply.outer([1, *drawn], alone[1])
    assert mass.shape == (3, 2, 3, 2, 2)
    assert mass[0].std(axis=-1).min() > 1e-5  # heads differ
    np.testing.assert_allclose(found.mass, mass, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found.pairs, pairs)


def test_a_model_without_attention_is_named(tmp_path: Path) -> None:
    """The study would end in an error about None."""
    settings = MambaConfig(vocab_size=D_VOCAB, hidden_size=8, num_hidden_layers=2, state_size=2)
    AutoModel.from_config(settings).save_pretrained(tmp_path)
    with pytest.raises(measures.NoAttention, match="mamba"):
        measures.is_causal(loading.model(tmp_path))


@architectures
def test_all_positions_can_be_read_and_no_more(name: str, stored: Callable[[str], Path]) -> None:
    """Long documents would be cut too early, or end in an index error."""
    model = loading.model(stored(name))
    max_length = loading.positions(model)
    if name == "t5":  # which has distances instead
        assert max_length > 1e9
        return
    assert max_length == POSITIONS - 2 * (name in ("roberta", "mpnet"))
    assert np.isfinite(maps_alone(model, np.full(max_length, 5))).all()
    if name not in ("llama", "neox"):  # which turn vectors by any angle
        with pytest.raises((IndexError, RuntimeError)):
            maps_alone(model, np.full(max_length + 1, 5))


def test_a_decoder_is_loaded_with_its_head(tmp_path: Path) -> None:
    """The projection onto the vocabulary would be missing, or made up."""
    settings = LlamaConfig(num_key_value_heads=1, tie_word_embeddings=False, **SIZES)
    saved = fill(AutoModelForCausalLM.from_config(settings))
    saved.save_pretrained(tmp_path)
    loaded = loading.model(tmp_path, head=True)
    assert loaded.lm_head.weight.equal(saved.lm_head.weight)
    assert not hasattr(loading.model(tmp_path), "lm_head")


# --- models that cannot be used -----------------------------------------------------------------


def damage(folder: Path, kind: str) -> None:
    """One way for a model's folder to be bad."""
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    match kind:
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "cut in its header":
            weights.write_bytes(weights.read_bytes()[:100])
        case "no weights":
            weights.write_bytes(b"<html>404</html>" * 100)
        case "pickle":
            weights.unlink()
            torch.save(tensors, folder / "pytorch_model.bin")
        case "tensors missing":
            rest = {name: t for name, t in tensors.items() if "layer.1.attention.self" not in name}
            save_file(rest, weights, {"format": "pt"})
        case "other shape":
            name = "embeddings.word_embeddings.weight"
            save_file(tensors | {name: torch.zeros(D_VOCAB, 3)}, weights, {"format": "pt"})
        case "unknown":
            change_config(folder, model_type="nonesuch")
        case "not JSON":
            (folder / "config.json").write_text("{")
        case "wrong type":
            change_config(folder, hidden_size="wide")
        case "contradiction":
            change_config(folder, num_attention_heads=3)
        case "remote code":
            change_config(folder, model_type="nonesuch", auto_map=refuse_code(folder))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("cut", UnreadableArtifact, "has no readable weights"),
        ("cut in its header", UnreadableArtifact, "has no readable weights"),
        ("no weights", UnreadableArtifact, "has no readable weights"),
        ("pickle", UnreadableArtifact, "no file named model.safetensors"),
        ("tensors missing", UnfitModel, "^6 tensors are missing .*layer.1.attention.self.key"),
        ("other shape", UnfitModel, r"^1 tensors have other shapes .*word_embeddings.weight"),
        ("unknown", UnfitModel, "config.json.*`nonesuch`"),
        ("not JSON", UnfitModel, "config.json"),
        ("wrong type", UnfitModel, "config.json.*hidden_size"),
        ("contradiction", UnfitModel, "config.json.*attention heads"),
        ("remote code", UnfitModel, "config.json.*custom code"),
    ],
)
def test_a_bad_folder_is_one_clear_line(
    bert: Path, kind: str, error: type[Exception], message: str
) -> None:
    """A user would see a traceback, or worse, numbers of weights that were made up."""
    damage(bert, kind)
    with pytest.raises(error, match=message) as caught:
        loading.model(bert)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_code_in_a_folder_is_not_run_for_a_known_architecture(bert: Path) -> None:
    """Looking at a model would run whatever its author put beside the weights."""
    change_config(bert, auto_map=refuse_code(bert))
    tokenizer = json.loads((bert / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = refuse_code(bert)
    (bert / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert type(loading.model(bert)).__name__ == "BertModel"
    assert loading.tokenizer(bert, D_VOCAB)("w3").input_ids == [3]


def test_a_pooler_may_be_missing(bert: Path) -> None:
    """Checkpoints of masked language models, which have none, would be refused."""
    weights = load_file(bert / "model.safetensors")
    rest = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    assert len(rest) < len(weights)
    save_file(rest, bert / "model.safetensors", {"format": "pt"})
    assert loading.model(bert).embeddings.word_embeddings.weight.shape == (D_VOCAB, 8)


def test_a_tokenizer_with_more_tokens_than_rows_is_refused(bert: Path) -> None:
    """Tokens without an embedding would end in an index error, or be read as others."""
    save_tokenizer(bert, D_VOCAB + 3)
    with pytest.raises(UnfitModel, match=f"{D_VOCAB} .* {D_VOCAB + 3}"):
        loading.tokenizer(bert, D_VOCAB)
    assert len(loading.tokenizer(bert, D_VOCAB + 3)) == D_VOCAB + 3
    assert len(loading.tokenizer(bert, D_VOCAB + 60)) == D_VOCAB + 3  # rows beyond are usual


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama"])
def test_a_folder_without_a_tokenizer_is_refused(
    name: str, stored: Callable[[str], Path], tmp_path: Path
) -> None:
    """The library makes up a tokenizer to which every word is unknown, and the study goes on."""
    for file in ("config.json", "model.safetensors"):
        shutil.copy(stored(name) / file, tmp_path)
    with pytest.raises(UnfitModel, match="tokenizer.json"):
        loading.tokenizer(tmp_path, D_VOCAB)


def test_a_damaged_tokenizer_is_refused(bert: Path) -> None:
    """A file that was cut off would end in a traceback of the JSON parser."""
    text = (bert / "tokenizer.json").read_text()
    (bert / "tokenizer.json").write_text(text[: len(text) // 2])
    with pytest.raises(UnfitModel, match="tokenizer") as caught:
        loading.tokenizer(bert, D_VOCAB)
    assert "\n" not in str(caught.value)


# --- bringing models in -------------------------------------------------------------------------

CHECKED = TypeAdapter(ModelSettings)


def test_a_folder_is_taken_in_without_what_is_not_needed(bert: Path, tmp_path: Path) -> None:
    """Code, optimiser states or pickles would be carried along."""
    for name in ("modeling_evil.py", "pytorch_model.bin", "optimizer.pt", "README.md"):
        (bert / name).write_text("x")
    (tmp_path / "in").mkdir()
    source = store.store(CHECKED.validate_python({"kind": "folder", "path": bert}), tmp_path / "in")
    assert source == {"folder": str(bert)}
    assert sorted(os.listdir(tmp_path / "in")) == [
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]
    assert loading.model(tmp_path / "in").get_input_embeddings().weight.shape == (D_VOCAB, 8)
    assert loading.tokenizer(tmp_path / "in", D_VOCAB)("w3").input_ids == [3]


def test_taking_a_folder_in_leaves_it_as_it_is(bert: Path, tmp_path: Path) -> None:
    """Private weights would become readable for everyone, or those of others not be taken in."""
    weights = bert / "model.safetensors"
    weights.chmod(0o600)
    before = (weights.stat().st_mode, weights.read_bytes())
    with writing_folder(tmp_path / "in") as folder:
        store.store(FolderModelSettings(kind="folder", path=bert), folder)
    assert (weights.stat().st_mode, weights.read_bytes()) == before
    assert (tmp_path / "in/model.safetensors").samefile(weights)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no safetensors weights"),
        (None, "no such folder"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_in_the_configuration(
    bert: Path, gone: str | None, message: str
) -> None:
    """The mistake would show only when the job runs."""
    if gone is None:
        shutil.rmtree(bert)
    else:
        (bert / gone).unlink()
    with pytest.raises(ValidationError, match=message):
        CHECKED.validate_python({"kind": "folder", "path": bert})


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "packaged", "package": "bert"},
        {"kind": "hub", "id": "org/name"},
        {"kind": "hub", "id": "org/name", "revision": ""},
        {"kind": "hub", "id": "https://hub/org/name", "revision": "main"},
        {"kind": "torchhub", "id": "org/name"},
    ],
)
def test_a_model_that_cannot_be_is_refused_in_the_configuration(wrong: dict[str, str]) -> None:
    """The mistake would show only when the job runs."""
    with pytest.raises(ValidationError):
        CHECKED.validate_python(wrong)


def shard(folder: Path) -> list[Path]:
    """Save a model's weights again, in several files."""
    loaded = loading.model(folder)
    (folder / "model.safetensors").unlink()
    loaded.save_pretrained(folder, max_shard_size="2KB")
    return sorted(folder.glob("model-*.safetensors"))


def test_sharded_weights_are_taken_in_whole_or_the_missing_one_is_named(
    bert: Path, tmp_path: Path
) -> None:
    """Half a model would be stored, and the gap found by a later job or never."""
    whole = loading.model(bert).state_dict()
    shards = shard(bert)
    assert len(shards) > 2
    (tmp_path / "whole").mkdir()
    store.store(FolderModelSettings(kind="folder", path=bert), tmp_path / "whole")
    assert all(
        tensor.equal(whole[name])
        for name, tensor in loading.model(tmp_path / "whole").state_dict().items()
    )
    shards[1].unlink()
    (tmp_path / "part").mkdir()
    with pytest.raises(ModelUnavailable, match=f"^shards .* are missing: {shards[1].name}$"):
        store.store(FolderModelSettings(kind="folder", path=bert), tmp_path / "part")
    with pytest.raises(UnreadableArtifact, match=shards[1].name):
        loading.model(bert)
    (bert / "model.safetensors.index.json").write_text("{")
    (tmp_path / "index").mkdir()
    with pytest.raises(UnreadableArtifact, match="index.json: is not readable as JSON"):
        store.store(FolderModelSettings(kind="folder", path=bert), tmp_path / "index")


HUB = HubModelSettings(kind="hub", id="org/name", revision="v1")


def test_a_hub_model_is_fetched_without_pickles_and_keeps_its_commit(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results could not say which weights they are of; the wrong files would be downloaded."""
    asked = {}

    def fetch(repository: str, **options: Any) -> str:
        asked.update(options, repository=repository)
        return str(bert.rename(bert.with_name("0123abcd")))

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (tmp_path / "in").mkdir()
    source = store.store(HUB, tmp_path / "in")
    assert source == {"hub": "org/name", "revision": "v1", "commit": "0123abcd"}
    assert (asked["repository"], asked["revision"]) == ("org/name", "v1")
    wanted = asked["allow_patterns"]
    assert {"*.safetensors", "config.json", "tokenizer.json"} <= set(wanted)
    assert not any(pattern.endswith((".bin", ".py", ".pt", "*", ".pkl")) for pattern in wanted)
    assert loading.model(tmp_path / "in").config.model_type == "bert"


def test_a_hub_without_connection_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user on a cluster node would see pages of a connection's traceback."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))

    def fetch(*_: Any, **__: Any) -> str:
        raise ConnectionError("Max retries exceeded\nwith url: /api")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    with pytest.raises(ModelUnavailable) as caught:
        store.store(HUB, tmp_path)
    assert str(caught.value) == (
        "org/name at v1 cannot be fetched from the hub "
        "(ConnectionError: Max retries exceeded); offline, name a local folder instead"
    )


def test_a_hub_model_that_is_only_pickled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty model would be stored."""
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/config.json").write_text("{}")
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path / "snapshot")
    )
    (tmp_path / "in").mkdir()
    with pytest.raises(ModelUnavailable, match="safetensors"):
        store.store(HUB, tmp_path / "in")
    (tmp_path / "snapshot/config.json").unlink()
    (tmp_path / "none").mkdir()
    with pytest.raises(ModelUnavailable, match="config.json"):
        store.store(HUB, tmp_path / "none")


def test_a_folder_replaces_another_only_when_it_is_whole(tmp_path: Path) -> None:
    """A job that is killed would leave half a model under the real name."""
    target = tmp_path / "deep" / "model"
    with writing_folder(target) as temporary:
        (temporary / "old").touch()
        assert not target.exists()
    with pytest.raises(KeyboardInterrupt), writing_folder(target) as temporary:
        (temporary / "half").touch()
        raise KeyboardInterrupt
    assert os.listdir(target) == ["old"]
    with writing_folder(target) as temporary:
        (temporary / "new").touch()
        assert os.listdir(target) == ["old"]
    assert os.listdir(target) == ["new"]
    assert os.listdir(target.parent) == ["model"]


# --- packaged models ----------------------------------------------------------------------------


def packaged(name: str, folder: Path) -> dict[str, str]:
    """Store a packaged model, or skip where its package is not installed."""
    try:
        assets.files(name)
    except PackageMissing as error:
        pytest.skip(str(error))
    folder.mkdir()
    return store.store(PackagedModelSettings(kind="packaged", package=name), folder)


@torch.inference_mode()
def cosines(folder: Path) -> list[float]:
    """Mean-pooled sentences: how alike are cats and kittens, and cats and stocks."""
    model = loading.model(folder)
    tokenizer = loading.tokenizer(folder, len(model.get_input_embeddings().weight))
    assert len(tokenizer) == 30_522
    pooled = []
    for text in ("A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell on Monday."):
        output = model(**tokenizer(text, return_tensors="pt"))
        pooled.append(output.last_hidden_state[0].mean(dim=0))
    cosine = torch.nn.functional.cosine_similarity
    return [cosine(pooled[0], other, dim=0).item() for other in pooled[1:]]


@pytest.mark.parametrize(
    ("name", "version", "parameters", "layers"),
    [("minilm", "0.1.0", 22_713_216, 6), ("minilm3", "0.2.1", 17_241_984, 3)],
)
def test_packaged_encoders_are_the_models_they_are_said_to_be(
    name: str, version: str, parameters: int, layers: int, tmp_path: Path
) -> None:
    """A conversion that mixes weights up would give plausible numbers of no model."""
    source = packaged(name, tmp_path / name)
    assert (source["package"], source["version"]) == (name, version)
    model = loading.model(tmp_path / name)
    pooler = 0 if name == "minilm" else sum(p.numel() for p in model.pooler.parameters())
    assert sum(p.numel() for p in model.parameters()) - pooler == parameters
    assert model.config.num_hidden_layers == layers
    near, far = cosines(tmp_path / name)
    assert near > 0.5 > 0.25 > far


def test_the_onnx_weights_are_put_where_they_belong(tmp_path: Path) -> None:
    """A linear layer that is transposed or swapped with another would go unnoticed."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    arrays = {
        "model.0.auto_model.a.weight": rng.normal(size=(3, 4)),
        "b.bias": rng.normal(size=2),
        "c.bias": rng.normal(size=2),
        "onnx::MatMul_7": rng.normal(size=(4, 2)),
        "onnx::MatMul_9": rng.normal(size=(4, 2)),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_9"], ["p"]),
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["q"]),
        helper.make_node("Add", ["b.bias", "q"], ["r"]),
        helper.make_node("Add", ["p", "c.bias"], ["s"]),
        helper.make_node("Add", ["r", "s"], ["y"]),
        helper.make_node("MatMul", ["y", "y"], ["z"]),  # between activations: no weight
    ]
    initial = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [], [], initializer=initial)
    onnx.save(helper.make_model(graph), tmp_path / "a.onnx")
    found = dict(store._onnx_weights(tmp_path / "a.onnx"))
    np.testing.assert_array_equal(found["b.weight"], arrays["onnx::MatMul_7"].T)
    np.testing.assert_array_equal(found["c.weight"], arrays["onnx::MatMul_9"].T)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The parts of an archive with a model, as five packages ship them; returns the weights."""
    weights = bytes(range(256)) * 4
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as zipped:
        for name in store.MPNET:
            content = weights if name == "model.safetensors" else b"{}"
            zipped.writestr(f"all-mpnet-base-v2/{name}", content)
    whole = (tmp_path / "whole.zip").read_bytes()
    parts = [tmp_path / f"whole.zip.00{part}" for part in range(1, 6)]
    for place, part in enumerate(parts):
        part.write_bytes(whole[place * 300 : (place + 1) * 300 if place < 4 else None])
    monkeypatch.setattr(assets, "parts", lambda _: parts)
    monkeypatch.setattr(assets, "version", lambda _: "0.0.1")
    return weights


def test_an_archive_in_parts_is_joined_and_checked(
    archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages by an unknown hand could put other weights in, or the archive would be kept."""
    mpnet = PackagedModelSettings(kind="packaged", package="mpnet")
    (tmp_path / "in").mkdir()
    with pytest.raises(PackageMissing, match="model.safetensors: .*SHA-256"):
        store.store(mpnet, tmp_path / "in")
    monkeypatch.setitem(store.MPNET, "model.safetensors", hashlib.sha256(archive).hexdigest())
    (tmp_path / "again").mkdir()
    assert store.store(mpnet, tmp_path / "again")["package"] == "mpnet"
    assert (tmp_path / "again/model.safetensors").read_bytes() == archive
    assert sorted(os.listdir(tmp_path / "again")) == sorted(store.MPNET)
