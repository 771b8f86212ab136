"""Configuration of the LEGO study: tasks, models, training runs, probes.

Each class is a part of the `lego:` section. Defaults of a model are those of Zhang et al. (2022,
"Unveiling Transformers with LEGO") or their released code. Defaults of a training run suit a
laptop; the paper's are in `config/paper.yaml`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from scripts.anatomy.settings import (
    ComparisonSettings,
    Heads,
    Name,
    Settings,
    VariantStudySettings,
    check_known,
    distinct,
    inconsistent,
)

Clauses = Annotated[int, Field(ge=2, le=100)]


class GroupSettings(Settings):
    """A group given by its multiplication table."""

    names: list[str] = Field(min_length=2, description="Names of the elements as values.")
    operators: list[str] | None = Field(
        None, description="Names of the elements as operators; null: the values with a star."
    )
    table: list[list[NonNegativeInt]] = Field(
        description="Row g, column x: the index of the element g . x."
    )


class GraphSettings(Settings):
    """The dependency graph of a sentence."""

    renamed = {"shortest": "min_length"}
    kind: Literal["path", "paths", "varied", "branch", "star", "balanced", "recursive"] = Field(
        "path",
        description="path: a chain; paths: several of equal length; varied: a chain of random "
        "length, the rest in a second; branch: a chain whose last clause uses a random earlier "
        "one; star: all use the root; balanced: a binary tree; recursive: each clause uses a "
        "random earlier one.",
    )
    count: PositiveInt = Field(2, description="Number of chains, for `paths`.")
    min_length: PositiveInt = Field(1, description="Minimum length of the chain, for `varied`.")


class TaskSettings(Settings):
    """A distribution of sentences."""

    group: str | GroupSettings = Field(
        "z2", description="z2 (signs, as published), d3, s3, klein, z3, z4, ..., or a table."
    )
    graph: GraphSettings = Field(GraphSettings(), description="The clause that each clause uses.")
    n: Clauses = Field(description="Number of clauses in a sentence.")
    layout: Literal["compact", "published"] = Field(
        "compact",
        description="compact: variable, operator, operand; published: variable = operator operand "
        "and a comma.",
    )
    letters: PositiveInt = Field(26, description="Size of the alphabet; pairs of letters from 27.")
    operators: list[NonNegativeInt] | None = Field(
        None, description="Indices of the elements used as operators; null: all."
    )
    shuffled: bool = Field(True, description="Clauses in random order; false: in chain order.")
    held_out: NonNegativeInt = Field(
        0,
        description="Number of letters that no training sentence contains. The model is also "
        "tested on sentences of these letters alone.",
    )

    @model_validator(mode="after")
    def _enough_letters(self) -> Self:
        seen = self.letters - self.held_out
        if seen < self.n:
            message = (
                f"expected at least {self.n} letters to train with, one per clause, got {seen}"
            )
            raise inconsistent("letters", message)
        if 0 < self.held_out < self.n:
            message = f"expected 0 or at least {self.n}, one per clause, got {self.held_out}"
            raise inconsistent("held_out", message)
        return self


class ArchitectureSettings(Settings):
    """A transformer for LEGO sentences."""

    renamed = {"layers": "n_layers"}
    n_layers: PositiveInt = Field(12, description="Number of layers, or of applications if tied.")
    tied: bool = Field(
        False, description="Share one layer's weights among all layers, as in ALBERT."
    )
    d_model: PositiveInt = Field(768, description="Width; a multiple of the number of heads.")
    d_ff: PositiveInt = Field(3072, description="Width of the feed-forward layers.")
    heads: tuple[Heads, ...] = Field(
        (Heads(),),
        min_length=1,
        description="Numbers of heads of each kind: one entry for all layers, or one per layer.",
    )
    window: PositiveInt = Field(5, description="Number of offsets of a convolution head; odd.")
    chained: bool = Field(
        False,
        description="Convolution heads also read the output of the association heads of their "
        "layer, so that one layer can do a whole step along the chain.",
    )
    norm: Literal["post", "pre"] = Field(
        "post", description="LayerNorm after each sublayer (BERT) or before it."
    )
    dropout: NonNegativeFloat = Field(
        0.0, lt=1, description="Dropout on hidden states and attention; BERT has 0.1."
    )
    init: PositiveFloat | None = Field(
        0.02,
        description="Standard deviation of initial weights; null: 1 / sqrt(inputs of the "
        "matrix), which suits narrow models.",
    )
    library: bool = Field(
        False,
        description="Use the transformers library's BertModel, or AlbertModel if tied. Slower, "
        "and with learned heads only.",
    )
    d_embedding: PositiveInt | None = Field(
        None,
        description="Width of the embeddings of the library's AlbertModel, 128 as published; "
        "null: d_model.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.library and (
            self.norm != "post"
            or self.init is None
            or len(self.heads) > 1
            or self.heads[0].learned < self.heads[0].total
        ):
            message = "needs learned heads only, the same in all layers, norm: post and an init"
            raise inconsistent("library", message)
        if self.d_embedding is not None and not (self.library and self.tied):
            raise inconsistent("d_embedding", "needs library: true and tied: true")
        if len(self.heads) not in ({1} if self.tied else {1, self.n_layers}):
            expected = (
                "1 entry, since layers are tied" if self.tied else f"1 or {self.n_layers} entries"
            )
            raise inconsistent("heads", f"expected {expected}, got {len(self.heads)}")
        for heads in self.heads:
            if heads.total == 0 or self.d_model % heads.total:
                message = f"expected a multiple of the {heads.total} heads, got {self.d_model}"
                raise inconsistent("d_model", message)
            if self.chained and not (heads.association and heads.convolution):
                raise inconsistent("chained", "needs association and convolution heads")
        if self.window % 2 == 0:
            raise inconsistent("window", f"expected an odd number, got {self.window}")
        return self


class MimickingSettings(Settings):
    """Training of two heads per layer towards the two attention patterns, before the task."""

    steps: PositiveInt = Field(300, description="Steps before those of the task.")
    batch: PositiveInt = Field(64, description="Sentences per step.")
    learning_rate: PositiveFloat | None = Field(
        None,
        description="Peak learning rate of these steps, which share warm-up and schedule with "
        "those of the task; null: that of the task.",
    )
    patterns: list[Literal["convolution", "association"]] = Field(
        ["convolution", "association"], min_length=1, description="Patterns to mimic."
    )
    shuffled: bool = Field(
        False,
        description="Control: wrong association targets, those of shuffled tokens.",
    )
    keep: NonNegativeFloat = Field(
        0.0, description="Weight of the mimicking loss during the task; 0 in the paper."
    )


class PretrainedSettings(Settings):
    """The pretrained model that a training starts from."""

    model: Name = Field(description="Name of an encoder in `models`; its tokenizer is used too.")
    random: bool = Field(
        False, description="Control: random weights in the same architecture, the same tokens."
    )
    dropout: NonNegativeFloat | None = Field(
        None, lt=1, description="Dropout during training; null: that of the model's configuration."
    )
    words: dict[str, str] = Field(
        {},
        description="Other words for some symbols: where the tokenizer splits one, or to hide "
        "the meaning of `not` from the model.",
    )


class ProbingSettings(Settings):
    """Measurements on trained and pretrained models."""

    test: PositiveInt = Field(2000, description="Test sentences.")
    train: PositiveInt = Field(4000, description="Sentences to fit layer probes to.")
    maps: PositiveInt = Field(200, description="Sentences to score heads on.")
    n: Clauses = Field(12, description="Clauses in a sentence for pretrained models.")
    iterations: list[int] = Field(
        [],
        description="Additional layers (negative: fewer) that a tied model is also tested with, "
        "relative to its training.",
    )


class LegoVariantSettings(Settings):
    """A training run."""

    renamed = {"evaluations": "eval_points"}
    task: Name = Field(description="Name of a task.")
    n_tr: PositiveInt | None = Field(
        None, description="Number of leading positions that are supervised; null: all."
    )
    leaf_only: bool = Field(False, description="Supervise the last position only.")
    model: ArchitectureSettings = Field(ArchitectureSettings(), description="The transformer.")
    pretrained: PretrainedSettings | None = Field(
        None, description="A pretrained model instead of `model`; sentences are in its tokens."
    )
    one_logit: bool = Field(
        True, description="One logit for two values, as published; false: one logit per value."
    )
    mimicking: MimickingSettings | None = Field(None, description="Mimicking before the task.")
    deep: bool = Field(
        False, description="Deep supervision: the loss after every layer, not only after the last."
    )
    curriculum: PositiveInt | None = Field(
        None, description="Steps until one more position is supervised; null: all from the start."
    )
    sentences: PositiveInt | None = Field(
        None, description="Size of a fixed training set; null: new sentences at each step."
    )
    steps: PositiveInt = Field(800, description="Optimiser steps.")
    batch: PositiveInt = Field(128, description="Sentences per step.")
    learning_rate: PositiveFloat = Field(0.003, description="Peak learning rate of Adam.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "cosine", description="Learning rate after the warm-up."
    )
    warmup: NonNegativeInt = Field(100, description="Steps of linear warm-up.")
    clip: PositiveFloat | None = Field(1.0, description="Maximum gradient norm.")
    eval_points: PositiveInt = Field(25, description="Points of the learning curves.")
    probing: ProbingSettings | None = Field(
        None, description="Probe settings for this variant; null: the study's."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leaf_only and self.n_tr is not None:
            raise inconsistent("leaf_only", "cannot be combined with n_tr")
        if self.pretrained is not None:
            if "model" in self.model_fields_set:
                raise inconsistent("model", "cannot be combined with pretrained")
            return self
        learned = min(heads.learned for heads in self.model.heads)
        if self.mimicking is not None and learned < 2:
            raise inconsistent("mimicking", f"needs 2 learned heads per layer, got {learned}")
        return self

    @model_serializer(mode="wrap")
    def _without_a_shape(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return plain values, without the unused `model` if there is a pretrained one."""
        values = serialise(self)
        if self.pretrained is not None:
            values.pop("model", None)
        return values

    @property
    def has_maps(self) -> bool:
        """Return whether every layer has learned heads, and so attention maps."""
        return self.pretrained is not None or all(heads.learned for heads in self.model.heads)

    @property
    def tied(self) -> bool:
        """Return whether one layer is applied several times; False for a pretrained model."""
        return self.pretrained is None and self.model.tied


class LegoFigureSettings(Settings):
    """The variants of each figure, in order."""

    curves: list[Name] = Field([], description="Accuracy by position over training.")
    extrapolation: list[Name] = Field([], description="Accuracy on unsupervised positions.")
    percolation: list[Name] = Field([], description="Layer probes.")
    mimicking: list[Name] = Field([], description="With and without mimicking.")
    shortcut: list[Name] = Field(
        [], description="Agreement with the shortcut, with and without changes."
    )
    module: list[Name] = Field([], description="With and without the LEGO attention module.")
    pretraining: list[Name] = Field([], description="Pretrained and random starts.")
    d3: list[Name] = Field([], description="Learning curves over another group.")
    graphs: list[Name] = Field([], description="Other dependency graphs, by depth.")
    depth: list[Name] = Field([], description="Models of several depths, by position.")
    iterations: list[Name] = Field([], description="More or fewer layers at test time.")


class LegoSettings(VariantStudySettings):
    """The `lego:` section."""

    tasks: dict[Name, TaskSettings] = Field(description="Named tasks.")
    variants: dict[Name, LegoVariantSettings] = Field(description="Named training runs.")
    pretrained: list[Name] = Field(
        [], description="Models whose association and manipulation heads are measured."
    )
    probing: ProbingSettings = Field(ProbingSettings(), description="Measurements on models.")
    comparisons: dict[Name, ComparisonSettings] = Field(
        {}, description="Differences between variants."
    )
    figures: LegoFigureSettings = Field(
        LegoFigureSettings(), description="Variants in each figure."
    )

    _distinct = field_validator("pretrained")(distinct)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, variant in self.variants.items():
            self._check(f"variants.{name}", variant)
        return self

    def _check(self, key: str, variant: LegoVariantSettings) -> None:
        """Raise if a variant's task is unknown or does not fit the variant."""
        check_known(f"{key}.task", variant.task, self.tasks, "task")
        task = self.tasks[variant.task]
        if variant.n_tr is not None and variant.n_tr > task.n:
            message = f"expected at most the {task.n} clauses of {variant.task}, got {variant.n_tr}"
            raise inconsistent(f"{key}.n_tr", message)
        if variant.pretrained is not None and task.layout != "published":
            message = f"expected a task with layout: published, got {variant.task}"
            raise inconsistent(f"{key}.task", message)

    def probing_of(self, variant: str) -> ProbingSettings:
        """Return the probe settings of a variant."""
        return self.variants[variant].probing or self.probing
