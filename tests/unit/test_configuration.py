"""The configuration: valid ones, `like` and null, and one line for every mistake."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from scripts.anatomy import configuration
from scripts.anatomy.configuration import Config, ConfigError, validate
from scripts.anatomy.topic.settings import CompactModelSettings, TopicVariantSettings

ROOT = Path(__file__).parents[2]
DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
LDA = {"kind": "lda", "train": 10, "validation": 10}


def merged(config: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with an overlay, merged as --configfile does."""
    result = copy.deepcopy(config)
    for key, value in overlay.items():
        deeper = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if deeper else value
    return result


def nested(path: str, value: Any) -> dict[str, Any]:
    """Return {"a": {"b": value}} for "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def with_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the default configuration with changes at some paths."""
    config = DEFAULT
    for path, value in changes.items():
        config = merged(config, nested(path, value))
    return config


def errors(changes: dict[str, Any]) -> list[str]:
    """Return the lines of the error about a configuration."""
    with pytest.raises(ConfigError) as caught:
        validate(with_changes(changes))
    assert caught.value.__suppress_context__  # no traceback of pydantic
    return str(caught.value).split("\n")


# --- what is right ------------------------------------------------------------------------------


def test_the_default_configuration_is_valid() -> None:
    settings = validate(DEFAULT)
    assert settings.scale == "laptop"
    study = settings.topic
    assert {"lda", "exact", "overlap"} <= {corpus.kind for corpus in study.corpora.values()}
    assert len(study.seeds) >= 3
    assert study.corpora["lda"].words_per_topic == 10


def overlays() -> list[Path]:
    return sorted((ROOT / "config").glob("*.yaml"))


@pytest.mark.parametrize("path", overlays(), ids=[path.name for path in overlays()])
def test_overlays_are_valid(path: Path) -> None:
    overlay = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings = validate(merged(DEFAULT, overlay))
    assert settings.topic.variants
    assert settings.scale == overlay.get("scale", "laptop")


@pytest.mark.parametrize(
    ("file", "generated"),
    [
        (configuration.SCHEMA, configuration.schema),
        (configuration.REFERENCE, configuration.reference),
    ],
    ids=["schema", "reference"],
)
def test_a_generated_file_is_in_step(file: Path, generated: Callable[[], str]) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert text == generated(), "run python -m scripts.anatomy.configuration"


def test_the_reference_has_a_row_for_every_key_and_its_links_lead_to_sections() -> None:
    page = configuration.reference()
    for model in Config.model_json_schema()["$defs"].values():
        for key, field in model["properties"].items():
            assert f"| `{key}` | " in page
            described = " ".join(field.get("description", "").split())
            assert described.replace("|", "\\|").replace("<", "&lt;") in page
    anchors = {
        re.sub(r"[^\w\- ]", "", line[3:].lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\(#([^)]*)\)", page)) <= anchors


def test_the_schema_allows_null_and_like_for_entries_alone() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(configuration.schema()))
    assert [*validator.iter_errors(DEFAULT)] == []
    changes = {
        "topic.variants.mine": {"like": "bert_one_layer"},
        "lego.tasks.mine": {"like": "chain"},
        "lego.comparisons.module_v0_helps": None,
        "models.mpnet": None,
    }
    assert [*validator.iter_errors(with_changes(changes))] == []
    assert validate(with_changes(changes)).lego.tasks["mine"].n == 5
    for wrong in ({"topic.masking": {"like": "x"}}, {"topic": None}, {"lego.tasks.mine": {}}):
        assert [*validator.iter_errors(with_changes(wrong))] != []


def test_every_key_is_described() -> None:
    definitions = Config.model_json_schema()["$defs"]
    for name, model in definitions.items():
        for key, field in model.get("properties", {}).items():
            assert "description" in field or "const" in field, f"{name}.{key}"


def test_validation_leaves_the_configuration_alone() -> None:
    config = with_changes({"topic.variants.mine": {"released_compat": True}})
    before = copy.deepcopy(config)
    validate(config)
    assert config == before


def test_settings_do_not_change() -> None:
    settings = validate(DEFAULT)
    with pytest.raises(ValueError, match="frozen"):
        settings.topic.measurement.documents = 1


def test_null_removes() -> None:
    name, figure = next((names[0], key) for key, names in DEFAULT["topic"]["figures"].items())
    before = validate(DEFAULT).topic
    study = validate(
        with_changes(
            {
                f"topic.variants.{name}": None,
                "topic.grids.tau": None,
                "topic.corpora.unused": None,
            }
        )
    ).topic
    assert before.variants.keys() - study.variants.keys() == {name}
    assert before.grids.keys() - study.grids.keys() == {"tau"}
    assert study.corpora == before.corpora
    # a figure that names a removed run shows the others
    assert name in getattr(before.figures, figure)
    assert getattr(study.figures, figure) == [
        other for other in getattr(before.figures, figure) if other != name
    ]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("models.minilm3", "text.models"),
        ("models.smollm2", "embedding.models"),
        ("text.corpora.wikipedia", "embedding.hidden.corpus"),
        ("topic.variants.bert_one_layer", "models.mine.variant"),
    ],
)
def test_a_removed_entry_that_is_used_is_reported(path: str, key: str) -> None:
    own = {"kind": "topic", "corpus": "lda", "variant": "bert_one_layer"}
    name = path.rpartition(".")[2]
    lines = errors({"models.mine": own, path: None})
    assert len(lines) == 1
    assert lines[0].startswith(f"{key}: no ") and f" named {name}; there are " in lines[0]


def test_studies_can_look_at_all_kinds_of_models(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    models = {
        "hub": {"kind": "hub", "id": "a/b", "revision": "c"},
        "folder": {"kind": "folder", "path": str(tmp_path)},
        "topic": {"kind": "topic", "corpus": "lda", "variant": "bert_two_layers", "seed": 1},
    }
    changes = {f"models.{name}": model for name, model in models.items()}
    settings = validate(with_changes(changes | {"text.models": [*models], "models.spare": None}))
    assert [settings.models[name].kind for name in settings.text.models] == [*models]
    assert "spare" not in settings.models


def test_a_removed_corpus_that_is_used_is_reported() -> None:
    lines = errors({"topic.corpora.mine": None, "topic.variants.mine.corpora": ["mine"]})
    assert lines[0].startswith("topic.variants.mine: no corpus named mine; there are lda")


def test_max_steps_caps_and_lengthens_nothing() -> None:
    changes = {"topic.variants.short.steps": 3, "topic.variants.long.steps": 5000}
    study = validate(with_changes(changes | {"topic.max_steps": 7})).topic
    free = validate(with_changes(changes)).topic
    assert free.max_steps is None
    assert (free.variants["long"].steps, study.variants["long"].steps) == (5000, 7)
    assert study.variants["short"].steps == 3
    assert study.grids and study.sweep.steps == 7
    for one, other in (
        *zip(study.variants.values(), free.variants.values(), strict=True),
        *zip(study.grids.values(), free.grids.values(), strict=True),
        (study.sweep, free.sweep),
    ):
        assert one.steps == min(7, other.steps)
        assert one == other.model_copy(update={"steps": one.steps})  # all else is as it was


def test_defaults_are_the_papers() -> None:
    variant = TopicVariantSettings()
    assert (variant.masking.mask_prob, variant.masking.keep_prob, variant.masking.random_prob) == (
        0.15,
        0.1,
        0.1,
    )
    assert (variant.masking.context, variant.masking.fresh) == ("visible", True)
    assert (variant.average, variant.batch, variant.l2) == ("document", 40, 0)
    assert (variant.model.embedding, variant.model.attention) == ("one_hot", "uniform")
    assert (variant.model.value, variant.model.head) == ("trained", "identity")
    assert not (variant.model.input_norm or variant.model.biases)


@pytest.mark.parametrize(
    ("loss", "average"), [(None, "token"), ("cross_entropy", "token"), ("squared", "entry")]
)
def test_released_compat_expands(loss: str | None, average: str) -> None:
    given = {
        "released_compat": True,
        "learning_rate": 0.01,
        "masking": {"mask_prob": 0.2, "context": "visible", "fresh": True},
        "model": {"attention": "trained"},
        "init": {"distribution": "normal", "scale": 0.3},
    }
    found = TopicVariantSettings.model_validate(given | ({"loss": loss} if loss else {}))
    assert found.average == average
    assert found.init.distribution == "library"
    masking = found.masking
    assert (masking.context, masking.fresh, masking.random_tokens) == ("hidden", False, "all")
    assert (found.model.input_norm, found.model.biases) == (True, True)
    # what it does not speak of is as given
    assert (masking.mask_prob, found.learning_rate, found.model.attention) == (0.2, 0.01, "trained")
    # and validating its own output changes nothing
    assert TopicVariantSettings.model_validate(found.model_dump(mode="json")) == found


def test_released_compat_alone_and_switched_off() -> None:
    assert TopicVariantSettings(released_compat=True).model.input_norm
    assert TopicVariantSettings(released_compat=False) == TopicVariantSettings()
    assert TopicVariantSettings.model_validate({"released_compat": False}).masking.fresh


def test_the_model_is_compact_unless_its_kind_is_bert() -> None:
    variants = validate(
        with_changes(
            {
                "topic.variants.one.model": {"attention": "trained"},
                "topic.variants.two.model": {"kind": "bert", "d_model": 32, "n_heads": 4},
            }
        )
    ).topic.variants
    assert isinstance(variants["one"].model, CompactModelSettings)
    assert variants["two"].model.n_heads == 4


def test_numbers_may_be_written_as_yaml_reads_them() -> None:
    # YAML takes 1e-5 for a word
    study = validate(with_changes({"topic.variants.mine.l2": "1e-5"})).topic
    assert study.variants["mine"].l2 == 1e-5


# --- what is wrong ------------------------------------------------------------------------------

VARIANT = "topic.variants.mine"
MASK_PROB, KEEP_PROB, RANDOM_PROB = (
    f"{VARIANT}.masking.{name}" for name in ("mask_prob", "keep_prob", "random_prob")
)
MODEL = "models.mine"
TEXT = "text.corpora.mine"
CORPUS = "topic.corpora.mine"
TASK = "lego.tasks.mine"
LEGO = "lego.variants.mine"
NARROW = {"d_model": 50, "head": "trained"}
BERT = {"kind": "bert", "d_model": 64}
MISTAKES: dict[str, tuple[str, Any, str, list[str]]] = {
    # the changed key, its value, the key that the line begins with, other parts of the line
    "unknown section": ("topics", {}, "topics", ["a section"]),
    "unknown key": ("topic.variant", {}, "topic.variant", ["a section"]),
    "unknown key of a variant": (f"{VARIANT}.step", 5, f"{VARIANT}.step", ["5"]),
    "unknown key below": (f"{VARIANT}.masking.p_q", 0.1, f"{VARIANT}.masking.p_q", ["0.1"]),
    "key of another kind of corpus": (CORPUS, LDA | {"tau": 2}, f"{CORPUS}.tau", ["2"]),
    "key of another model": (
        f"{VARIANT}.model",
        {"n_layers": 2},
        f"{VARIANT}.model.n_layers",
        ["2"],
    ),
    "word for a number": (f"{VARIANT}.steps", "many", f"{VARIANT}.steps", ["'many'", "integer"]),
    "fraction for a whole number": (f"{VARIANT}.batch", 2.5, f"{VARIANT}.batch", ["2.5"]),
    "number for a section": (VARIANT, 5, VARIANT, ["5", "section"]),
    "number for a model": (f"{VARIANT}.model", 5, f"{VARIANT}.model", ["section", "5"]),
    "null for a section": ("topic", None, "topic", ["section", "null"]),
    "list for a number": (f"{VARIANT}.steps", [5], f"{VARIANT}.steps", ["integer"]),
    "number for a list": ("topic.seeds", 3, "topic.seeds", ["3", "list"]),
    "no such choice": (f"{VARIANT}.loss", "hinge", f"{VARIANT}.loss", ["'hinge'", "'squared'"]),
    "no such device": ("compute.device", "tpu", "compute.device", ["'tpu'", "'cuda'"]),
    "no such scale": ("scale", "huge", "scale", ["'huge'", "'laptop'"]),
    "no such kind of corpus": (f"{CORPUS}.kind", "hmm", CORPUS, ["'hmm'", "'overlap'"]),
    "no such kind of model": (f"{VARIANT}.model.kind", "gpt", f"{VARIANT}.model", ["'gpt'"]),
    "corpus without a kind": (CORPUS, {"topics": 3}, CORPUS, ["kind"]),
    "not a number": (f"{VARIANT}.l2", float("nan"), f"{VARIANT}.l2", ["nan"]),
    "infinite": (f"{VARIANT}.clip", float("inf"), f"{VARIANT}.clip", ["inf"]),
    "words in no equal blocks": (CORPUS, LDA | {"words": 101}, CORPUS, ["101", "10", "multiple"]),
    "the same for a theorem's corpus": (
        CORPUS,
        {"kind": "exact", "words": 100, "topics": 7},
        CORPUS,
        ["words (100)", "topics (7)"],
    ),
    "more words than ids": (CORPUS, LDA | {"words": 40_000}, f"{CORPUS}.words", ["40000"]),
    "no documents": (CORPUS, LDA | {"train": 0}, f"{CORPUS}.train", ["0", "greater than 0"]),
    "no prior": (CORPUS, LDA | {"alpha": 0}, f"{CORPUS}.alpha", ["0", "greater than 0"]),
    "lengths the wrong way round": (
        CORPUS,
        LDA | {"min_length": 9, "max_length": 5},
        CORPUS,
        ["max_length (5)", "min_length (9)"],
    ),
    "tau above T": (CORPUS, {"kind": "exact", "tau": 11}, CORPUS, ["tau (11)", "topics (10)"]),
    "tau of zero": (CORPUS, {"kind": "exact", "tau": 0}, f"{CORPUS}.tau", ["0"]),
    "membership of one": (
        CORPUS,
        {"kind": "overlap", "membership": 1},
        f"{CORPUS}.membership",
        ["1", "less than 1"],
    ),
    "p_m of one": (
        MASK_PROB,
        1.0,
        MASK_PROB,
        ["1.0", "less than 1"],
    ),
    "p_m of zero": (
        MASK_PROB,
        0,
        MASK_PROB,
        ["0", "greater than"],
    ),
    "p_m below zero": (
        MASK_PROB,
        -0.2,
        MASK_PROB,
        ["-0.2"],
    ),
    "p_c above one": (KEEP_PROB, 1.2, KEEP_PROB, ["1.2"]),
    "p_r below zero": (
        RANDOM_PROB,
        -1,
        RANDOM_PROB,
        ["-1"],
    ),
    "keep_prob + random_prob above one": (
        f"{VARIANT}.masking",
        {"keep_prob": 0.6, "random_prob": 0.5},
        f"{VARIANT}.masking",
        ["keep_prob + random_prob", "1.1"],
    ),
    "one-hot in a narrow model": (f"{VARIANT}.model", NARROW, f"{VARIANT}.model", ["104", "50"]),
    "one-hot in a narrow BERT": (
        f"{VARIANT}.model",
        BERT | {"embedding": "one_hot"},
        f"{VARIANT}.model",
        ["104", "64"],
    ),
    "no head at another width": (
        f"{VARIANT}.model",
        {"d_model": 120},
        f"{VARIANT}.model",
        ["104", "120"],
    ),
    "heads that do not divide": (
        f"{VARIANT}.model",
        BERT | {"n_heads": 5},
        f"{VARIANT}.model",
        ["heads (5)", "64"],
    ),
    "heads that do not divide the tokens": (
        f"{VARIANT}.model",
        {"kind": "bert", "n_heads": 7},
        f"{VARIANT}.model",
        ["heads (7)", "104"],
    ),
    "nothing to train": (
        f"{VARIANT}.model.value",
        "identity",
        f"{VARIANT}.model",
        ["nothing is left to train"],
    ),
    "nothing to train, tied": (
        f"{VARIANT}.model",
        {"value": "block", "head": "tied"},
        f"{VARIANT}.model",
        ["nothing is left to train"],
    ),
    "blocks over embeddings": (
        f"{VARIANT}.model",
        {"value": "block", "embedding": "trained"},
        f"{VARIANT}.model",
        ["one_hot"],
    ),
    "a penalty on nothing": (
        VARIANT,
        {"l2": 1, "model": {"value": "block", "attention": "trained"}},
        VARIANT,
        ["l2"],
    ),
    "a penalty on BERT": (VARIANT, {"l2": 1, "model": BERT}, VARIANT, ["l2", "bert"]),
    "released BERT": (VARIANT, {"released_compat": True, "model": BERT}, VARIANT, ["compact"]),
    "released masking of no kind": (
        VARIANT,
        {"released_compat": True, "masking": 5},
        f"{VARIANT}.masking",
        ["5"],
    ),
    "no such corpus": (f"{VARIANT}.corpora", ["nope"], VARIANT, ["nope", "lda"]),
    "no corpus": (f"{VARIANT}.corpora", [], f"{VARIANT}.corpora", ["at least 1"]),
    "sweep of no such corpus": ("topic.sweep.corpus", "nope", "topic.sweep", ["nope", "lda"]),
    "sweep of nothing": ("topic.sweep", {"adam": [], "sgd": []}, "topic.sweep", ["learning rate"]),
    "figure of no such run": ("topic.figures.values", ["nope"], "topic.figures.values", ["nope"]),
    "learning rate of zero": (f"{VARIANT}.learning_rate", 0, f"{VARIANT}.learning_rate", ["0"]),
    "negative steps": (f"{VARIANT}.steps", -1, f"{VARIANT}.steps", ["-1"]),
    "no steps": ("topic.max_steps", 0, "topic.max_steps", ["0"]),
    "a seed twice": ("topic.seeds", [1, 1], "topic.seeds", ["twice: 1, 1"]),
    "a negative seed": ("topic.seeds", [-1, 1], "topic.seeds.0", ["-1"]),
    "no seeds": ("topic.seeds", [], "topic.seeds", ["at least 1"]),
    "a name that is no word": ("topic.variants.a/b", {}, "topic.variants.a/b", ["'a/b'"]),
    "a name that is taken": ("topic.corpora.grid", LDA, "topic.corpora", ["grid"]),
    "grid beyond T": ("topic.grids.tau.values", [1, 20], "topic.grids.tau", ["20", "10"]),
    "grid of fractions": ("topic.grids.tau.values", [1, 2.5], "topic.grids.tau", ["2.5"]),
    "grid of certainty": (
        "topic.grids.mine",
        {"varies": "mask_prob", "values": [0.5, 1.5]},
        "topic.grids.mine",
        ["1.5"],
    ),
    "grid of nothing": (
        "topic.grids.mine",
        {"varies": "topics", "values": [0, 5]},
        "topic.grids.mine",
        ["0"],
    ),
    "corpus named twice": (
        VARIANT,
        {"corpora": ["lda", "lda"]},
        "topic.variants.mine.corpora",
        ["twice", "lda"],
    ),
    "grid value given twice": (
        "topic.grids.mine",
        {"varies": "tau", "values": [2, 2]},
        "topic.grids.mine",
        ["twice"],
    ),
    "released_compat as a word": (
        f"{VARIANT}.released_compat",
        "true",
        f"{VARIANT}.released_compat",
        ["true"],
    ),
    "frozen embeddings in a figure of embeddings": (
        "topic.figures.embeddings",
        ["value_squared"],
        "topic.figures.embeddings",
        ["value_squared", "trained embeddings"],
    ),
    "BERT in a figure of value matrices": (
        "topic.figures.values",
        ["bert_one_layer"],
        "topic.figures.values",
        ["bert_one_layer", "compact"],
    ),
    "uniform attention in a figure of attention": (
        "topic.figures.sentences",
        ["value_squared"],
        "topic.figures.sentences",
        ["value_squared", "trained attention"],
    ),
    "uniform attention in a figure of components": (
        "topic.figures.compensation",
        ["value_squared"],
        "topic.figures.compensation",
        ["value_squared", "trained attention"],
    ),
    "packaged model of no kind": (
        f"{MODEL}.package",
        "minilm",
        MODEL,
        ["kind"],
    ),
    "no such package": ("models.minilm.package", "gpt5", "models.minilm.package", ["'gpt5'"]),
    "key of another kind of model source": (
        MODEL,
        {"kind": "hub", "id": "a/b", "revision": "c", "package": "minilm"},
        f"{MODEL}.package",
        ["'minilm'"],
    ),
    "no such kind of model source": (MODEL, {"kind": "torch"}, MODEL, ["'torch'", "'folder'"]),
    "hub address for a name": (
        MODEL,
        {"kind": "hub", "id": "https://a/b", "revision": "c"},
        f"{MODEL}.id",
        ["https"],
    ),
    "no such folder": (
        MODEL,
        {"kind": "folder", "path": "no/where"},
        f"{MODEL}.path",
        ["no/where"],
    ),
    "model of no such variant": (
        MODEL,
        {"kind": "topic", "corpus": "lda", "variant": "nope"},
        f"{MODEL}.variant",
        ["nope", "bert_one_layer"],
    ),
    "model of another corpus": (
        MODEL,
        {"kind": "topic", "corpus": "overlap", "variant": "bert_one_layer"},
        f"{MODEL}.corpus",
        ["overlap", "lda"],
    ),
    "model that is no BERT": (
        MODEL,
        {"kind": "topic", "corpus": "lda", "variant": "value_squared"},
        f"{MODEL}.variant",
        ["value_squared"],
    ),
    "model of no such seed": (
        MODEL,
        {"kind": "topic", "corpus": "lda", "variant": "bert_one_layer", "seed": 9},
        f"{MODEL}.seed",
        ["9", "topic.seeds"],
    ),
    "text with no such model": ("text.models", ["nope"], "text.models", ["nope", "minilm"]),
    "a model twice": ("text.models", ["minilm", "minilm"], "text.models", ["twice", "minilm"]),
    "embedding of no such model": ("embedding.models", ["nope"], "embedding.models", ["nope"]),
    "hidden states on no such corpus": (
        "embedding.hidden.corpus",
        "nope",
        "embedding.hidden.corpus",
        ["nope", "wikipedia"],
    ),
    "text without a kind": (TEXT, {"package": "news"}, TEXT, ["kind"]),
    "text with a key of another kind": (
        TEXT,
        {"kind": "packaged", "column": "text"},
        f"{TEXT}.column",
        ["'text'"],
    ),
    "text in no such file": (
        TEXT,
        {"kind": "dump", "path": "no/where.bz2"},
        f"{TEXT}.path",
        ["no/where.bz2"],
    ),
    "text of the hub that may change": (
        TEXT,
        {"kind": "hub", "id": "a/b"},
        f"{TEXT}.revision",
        ["a/b", "commit"],
    ),
    "text with a name that is taken": (
        "text.corpora.figures",
        {"kind": "packaged"},
        "text.corpora",
        ["figures"],
    ),
    "a reference that is no filter": (
        "text.measurement.reference.fraction",
        0.3,
        "text.measurement.reference",
        ["filters"],
    ),
    "filters that filter nothing": (
        "text.filters",
        {"fractions": [1], "thresholds": [0]},
        "text.filters.fractions",
        ["all topics"],
    ),
    "no reading": ("embedding.readings.plain", None, "embedding.readings", ["none left"]),
    "related tokens beyond the lists": (
        "embedding.related.k",
        101,
        "embedding.related.k",
        ["101", "top (100)"],
    ),
    "hidden tokens beyond the lists": ("embedding.top", 60, "embedding.related.k", ["100", "60"]),
    "golden head of another model": (
        "embedding.golden.mine",
        {"model": "minilm3", "matrix": "VO", "layer": 0, "head": 0, "pairs": [["a", "b"]]},
        "embedding.golden.mine.model",
        ["minilm3"],
    ),
    "alignment of no such model": (
        "embedding.alignment.pairs.mine",
        {"a": "nope", "b": "minilm"},
        "embedding.alignment.pairs.mine",
        ["nope", "minilm"],
    ),
    "alignment of a variant with other heads": (
        "embedding.alignment.training.variant",
        "v1",
        "embedding.alignment.training.variant",
        ["v1", "1/1/2"],
    ),
    "alignment of no such seed": (
        "embedding.alignment.training.seeds",
        [0, 7],
        "embedding.alignment.training.seeds",
        ["7", "pretraining.seeds"],
    ),
    "folder without a model": (
        MODEL,
        {"kind": "folder", "path": str(ROOT / "schemas")},
        f"{MODEL}.path",
        ["schemas", "config.json"],
    ),
    "model without a revision": (MODEL, {"kind": "hub", "id": "a/b"}, f"{MODEL}.revision", []),
    "no such text file": (
        TEXT,
        {"kind": "lines", "path": "none.txt"},
        f"{TEXT}.path",
        ["none.txt"],
    ),
    "table of an unknown format": (
        TEXT,
        {"kind": "table", "path": str(ROOT / "Makefile")},
        f"{TEXT}.path",
        ["Makefile", ".parquet"],
    ),
    "a table that is not a group": (
        TASK,
        {"n": 3, "group": {"names": ["e", "a"], "table": [[0, 1], [1, 1]]}},
        TASK,
        ["a", "inverse"],
    ),
    "too few letters": (TASK, {"n": 5, "letters": 4}, f"{TASK}.letters", ["4", "5"]),
    "too short a graph": (TASK, {"n": 2, "graph": {"kind": "branch"}}, TASK, ["branch", "3"]),
    "LEGO on no such task": (LEGO, {"task": "nope"}, f"{LEGO}.task", ["nope", "chain"]),
    "n_tr above n": (LEGO, {"task": "chain", "n_tr": 6}, f"{LEGO}.n_tr", ["6", "5"]),
    "mimicking with one head": (
        LEGO,
        {"task": "chain", "mimicking": {}, "model": {"heads": [{"learned": 1, "association": 3}]}},
        f"{LEGO}.mimicking",
        ["2", "1"],
    ),
    "LEGO of no such model": (
        LEGO,
        {"task": "published_chains", "pretrained": {"model": "nope"}},
        f"{LEGO}.pretrained.model",
        ["nope", "minilm3"],
    ),
    "LEGO in another layout": (
        LEGO,
        {"task": "chain", "pretrained": {"model": "minilm3"}},
        f"{LEGO}.task",
        ["chain", "published"],
    ),
    "pretraining on no such corpus": (
        "pretraining.corpus",
        "nope",
        "pretraining.corpus",
        ["nope", "wikipedia"],
    ),
    "tokenizer of no such model": (
        "pretraining.tokenizer.model",
        "nope",
        "pretraining.tokenizer.model",
        ["nope", "minilm"],
    ),
    "heads that do not fit": (
        "pretraining.variants.v1.heads.learned",
        3,
        "pretraining.variants.v1.heads",
        ["1/1/3", "4"],
    ),
    "grid over what cannot vary": (
        "topic.grids.mine",
        {"varies": "batch", "values": [1, 2]},
        "topic.grids.mine.varies",
        ["'batch'", "'tau'"],
    ),
}


@pytest.mark.parametrize(("path", "value", "key", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(path: str, value: Any, key: str, words: list[str]) -> None:
    lines = errors({path: value})
    assert len(lines) == 1
    assert lines[0].startswith((f"{key}: ", f"{key}.[key]: "))
    said = lines[0].removeprefix(key)
    assert all(word in said for word in words), lines[0]


RENAMED = [
    ("topic.variants.mine.masking.p_m", "mask_prob"),
    ("lego.variants.mine.evaluations", "eval_points"),
    ("lego.variants.mine.model.layers", "n_layers"),
    ("embedding.hidden.longest", "max_length"),
    ("lego.comparisons.mine.of", "variant"),
    ("pretraining.comparisons.mine.over", "baseline"),
    ("pretraining.comparisons.mine.towards", "normalise_by"),
]


@pytest.mark.parametrize(("key", "name"), RENAMED)
def test_a_renamed_key_is_refused_with_its_new_name(key: str, name: str) -> None:
    (line,) = [line for line in errors({key: 1}) if line.startswith(f"{key}: ")]
    assert name in line


def test_every_renamed_key_has_a_successor_in_its_section() -> None:
    for model in settings_classes():
        assert not model.renamed.keys() & model.model_fields.keys(), model
        names = " and ".join(model.renamed.values()).split(" and ")
        assert not model.renamed or {*names} <= model.model_fields.keys(), model


# One study each, with two of its variants
COMPARED = [("lego", "learned", "mimicked"), ("pretraining", "base", "v1")]


@pytest.mark.parametrize(("study", "one", "other"), COMPARED)
@pytest.mark.parametrize("role", ["variant", "baseline", "normalise_by"])
def test_a_comparison_that_names_an_unknown_variant_is_refused(
    study: str, one: str, other: str, role: str
) -> None:
    comparison = {"variant": one, "baseline": other, "metric": "loss"}
    key = f"{study}.comparisons.mine"
    assert validate(with_changes({key: comparison}))
    (line,) = errors({key: comparison | {role: "nope"}})
    assert line.startswith(f"{key}.{role}: ") and "nope" in line and one in line


@pytest.mark.parametrize(("study", "one", "other"), COMPARED)
def test_a_comparison_of_a_removed_variant_is_removed(study: str, one: str, other: str) -> None:
    comparison = {"variant": one, "baseline": other, "metric": "loss"}
    changes = {f"{study}.comparisons.mine": comparison, f"{study}.variants.{other}": None}
    if study == "pretraining":
        changes["pretraining.variants.base_flops_of_v1"] = None  # it needs v1
    assert "mine" not in getattr(validate(with_changes(changes)), study).comparisons


@pytest.mark.parametrize("study", ["topic", "text", "embedding", "lego", "pretraining"])
def test_a_seed_that_is_given_twice_is_refused_in_every_study(study: str) -> None:
    (line,) = errors({f"{study}.seeds": [4, 4]})
    assert line.startswith(f"{study}.seeds: ") and "4, 4" in line


@pytest.mark.parametrize("study", ["topic", "pretraining"])
def test_a_study_without_variants_is_refused(study: str) -> None:
    removed = dict.fromkeys(DEFAULT[study]["variants"])
    assert any(
        line.startswith(f"{study}.variants: ") for line in errors({f"{study}.variants": removed})
    )


# --- like ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "other", "changes"),
    [
        ("topic.variants", "bert_one_layer", {"steps": 7, "model": {"d_model": 112}}),
        ("topic.corpora", "lda", {"topics": 5}),
        ("lego.tasks", "chain", {"letters": 9}),
        ("lego.variants", "mimicked", {"mimicking": {"batch": 5}}),
        ("pretraining.variants", "v1_no_association", {}),
        ("embedding.finetuning.runs", "minilm_films", {"steps": 9}),
    ],
)
def test_an_entry_may_be_like_another(section: str, other: str, changes: dict[str, Any]) -> None:
    """Mappings are merged key by key, and chains of `like` are followed."""
    chain = {f"{section}.one": {"like": "two", **changes}, f"{section}.two": {"like": other}}
    entries: Any = validate(with_changes(chain))
    for key in section.split("."):
        entries = getattr(entries, key)
    dumped = {name: entry.model_dump(mode="json") for name, entry in entries.items()}
    assert dumped["two"] == dumped[other]
    assert dumped["one"] == merged(dumped[other], changes)


def test_null_beside_like_is_a_value() -> None:
    mine = {"like": "learned", "model": {"init": None}, "clip": None}
    study = validate(with_changes({LEGO: mine})).lego
    assert study.variants["mine"].clip is None is study.variants["mine"].model.init
    assert study.variants["mine"].model.n_layers == study.variants["learned"].model.n_layers


@pytest.mark.parametrize(
    ("entries", "key", "part"),
    [
        ({"one": {"like": "nope"}}, "one", "nope"),
        ({"one": {"like": "one"}}, "one", "one"),
        ({"one": {"like": "two"}, "two": {"like": "one"}}, "", "one"),
        ({"one": {"like": 5}}, "one", "5"),
        ({"one": {"like": "two"}, "two": None}, "one", "two"),
    ],
    ids=["unknown", "itself", "a cycle", "a number", "a removed entry"],
)
def test_like_without_a_usable_entry_is_refused(
    entries: dict[str, Any], key: str, part: str
) -> None:
    (line,) = errors({f"lego.tasks.{name}": entry for name, entry in entries.items()})
    assert line.startswith(f"lego.tasks.{key}") and ".like: " in line and part in line


# --- several mistakes ---------------------------------------------------------------------------


def test_overlapping_topics_have_no_block_matrix() -> None:
    lines = errors(
        {
            CORPUS: {"kind": "overlap", "train": 10, "validation": 10},
            VARIANT: {"corpora": ["mine"], "model": {"value": "block", "attention": "trained"}},
        }
    )
    assert len(lines) == 1
    assert lines[0].startswith(f"{VARIANT}.model: ")
    assert "mine overlap" in lines[0]


def test_a_width_is_checked_on_every_corpus_of_a_variant() -> None:
    changes = {
        CORPUS: LDA | {"words": 20, "topics": 2},
        VARIANT: {"corpora": ["mine", "lda"], "model": {"d_model": 24, "head": "trained"}},
    }
    assert "104" in errors(changes)[0]
    changes[VARIANT]["corpora"] = ["mine"]
    assert validate(with_changes(changes)).topic.variants["mine"].model.d_model == 24


def test_every_mistake_has_its_line() -> None:
    lines = errors(
        {
            "scale": "huge",
            "nonsense": 1,
            f"{CORPUS}": LDA | {"alpha": -1, "words": "many"},
            f"{VARIANT}.steps": 0,
            f"{VARIANT}.model": {"value": "identity"},
            "topic.seeds": [0, 0],
        }
    )
    keys = {line.split(": ")[0] for line in lines}
    assert len(lines) == 7
    assert keys == {
        "scale",
        "nonsense",
        f"{CORPUS}.alpha",
        f"{CORPUS}.words",
        f"{VARIANT}.steps",
        f"{VARIANT}.model",
        "topic.seeds",
    }


KINDS = ["lda", "exact", "overlap", "text", "compact", "bert", "packaged", "lines", "table", "dump"]
KINDS += ["hub", "folder", "topic", "pretraining"]


@pytest.mark.parametrize("name", [*KINDS, "model", "corpora", "mine"])
def test_keys_are_whole_whatever_the_names(name: str) -> None:
    # the name of an entry may be that of a kind
    config = copy.deepcopy(DEFAULT)
    config["topic"]["corpora"][name] = LDA | {"alpha": -1}
    config["topic"]["variants"][name] = {"model": {"kind": "bert", "n_layers": 0}}
    config["topic"]["variants"][f"{name}_2"] = {"model": {"value": 3}}
    config["topic"]["variants"][f"{name}_3"] = {"model": 5}
    config["models"][name] = {"kind": "packaged", "package": 5}
    config["text"]["corpora"][name] = {"kind": "hub", "id": 5}
    with pytest.raises(ConfigError) as caught:
        validate(config)
    assert [line.split(": ")[0] for line in str(caught.value).split("\n")] == [
        f"models.{name}.package",
        f"topic.corpora.{name}.alpha",
        f"topic.variants.{name}.model.n_layers",
        f"topic.variants.{name}_2.model.value",
        f"topic.variants.{name}_3.model",
        f"text.corpora.{name}.id",
    ]


def test_a_configuration_without_a_study_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^topic: the key is missing\n"):
        validate({"scale": "laptop"})


# --- files --------------------------------------------------------------------------------------


def text(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a corpus of six words in three blocks, read from files."""
    for name in ("train", "validation"):
        (folder / name).write_text("0 1 5 END\n2 END\n", encoding="utf-8")
    files = {"train": str(folder / "train"), "validation": str(folder / "validation")}
    return {"kind": "text", "topics": 3, "words": 6} | files | changes


def test_files_are_read(tmp_path: Path) -> None:
    study = validate(with_changes({CORPUS: text(tmp_path)})).topic
    assert study.corpora["mine"].words == 6


@pytest.mark.parametrize("key", ["train", "validation", "table"])
@pytest.mark.parametrize("kind", ["missing", "a folder"])
def test_a_file_that_does_not_exist(tmp_path: Path, key: str, kind: str) -> None:
    path = str(tmp_path if kind == "a folder" else tmp_path / "nowhere.txt")
    lines = errors({CORPUS: text(tmp_path, **{key: path})})
    assert lines[0] == f"{CORPUS}.{key}: no such file: {path}"
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("0 END\n0 6 END\n", ":2", "'6'"),
        ("0 END\n\n1 END\n", ":2", "empty line"),
        ("", "", "blank"),
        (" \n\n", "", "blank"),
        ("0 END\n1\n", ":2", "END"),
    ],
    ids=["unknown word", "empty line", "blank", "only spaces", "END missing"],
)
@pytest.mark.parametrize("which", ["train", "validation"])
def test_a_bad_text_is_named_by_file_and_line(
    tmp_path: Path, which: str, content: str, line: str, words: str
) -> None:
    changes = {CORPUS: text(tmp_path)}
    (tmp_path / which).write_text(content, encoding="utf-8")
    lines = errors(changes)
    assert len(lines) == 1
    assert lines[0].startswith(f"{CORPUS}: {tmp_path / which}{line}: ")
    assert words in lines[0]


def test_a_text_that_is_removed_is_not_read(tmp_path: Path) -> None:
    assert validate(with_changes({CORPUS: None}))
    changes = {CORPUS: text(tmp_path, topics=None, table=None)}
    assert "either topics" in errors(changes)[0]


def with_table(folder: Path, table: str, model: dict[str, Any]) -> dict[str, Any]:
    """Return a variant on a corpus whose vocabulary is a table."""
    (folder / "table.csv").write_text(table, encoding="utf-8")
    corpus = text(folder, topics=None, table=str(folder / "table.csv"))
    for name in ("train", "validation"):
        (folder / name).write_text("cat dog END\n", encoding="utf-8")
    return {CORPUS: corpus, VARIANT: {"corpora": ["mine"], "model": model}}


TABLE = "word,topic\ncat,pets\ndog,pets\ncow,farm\nhen,farm\n"


def test_a_table_gives_the_words(tmp_path: Path) -> None:
    assert validate(with_changes(with_table(tmp_path, TABLE, {})))
    lines = errors(with_table(tmp_path, "word,topic\ncat,pets\n", {}))
    assert lines[0].startswith(f"{CORPUS}: {tmp_path / 'train'}:1: ") and "'dog'" in lines[0]
    lines = errors(with_table(tmp_path, "cat,pets\n", {}))
    assert lines[0].startswith(f"{CORPUS}: {tmp_path / 'table.csv'}: ") and "word,topic" in lines[0]


def test_widths_are_checked_against_a_tables_words(tmp_path: Path) -> None:
    # four words and four special tokens
    assert validate(with_changes(with_table(tmp_path, TABLE, {"d_model": 8})))
    lines = errors(with_table(tmp_path, TABLE, {"d_model": 7, "head": "trained"}))
    assert lines[0].startswith(f"{VARIANT}.model: ")
    assert "8" in lines[0] and "7" in lines[0]


def test_a_block_matrix_needs_a_table_of_blocks(tmp_path: Path) -> None:
    model = {"value": "block", "attention": "trained"}
    assert validate(with_changes(with_table(tmp_path, TABLE, model)))
    lines = errors(with_table(tmp_path, TABLE + "cat,farm\n", model))
    assert lines[0].startswith(f"{VARIANT}.model: ")
    assert "block" in lines[0]


# --- the schema ---------------------------------------------------------------------------------


def test_the_schema_is_json_and_refuses_unknown_keys() -> None:
    schema = json.loads(configuration.schema())
    assert schema["additionalProperties"] is False
    for name, model in schema["$defs"].items():
        assert model.get("additionalProperties") is False, name


def test_every_section_refuses_unknown_keys() -> None:
    classes = settings_classes()
    assert len(classes) > 10
    for model in classes:
        assert model.model_config["extra"] == "forbid", model


def settings_classes() -> set[type[BaseModel]]:
    """Return all classes of settings below Config."""
    seen, waiting = {Config}, [Config]
    while waiting:
        annotations = [field.annotation for field in waiting.pop().model_fields.values()]
        while annotations:
            annotation = annotations.pop()
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                waiting += {annotation} - seen
                seen.add(annotation)
            annotations += getattr(annotation, "__args__", ())
    return seen
