"""Configuration of the LEGO study: tasks, models, training runs, probes.

Each class is a part of the `lego:` section. Where Zhang et al. (2022, "Unveiling Transformers with
LEGO") or their released code describe a model its values are the defaults; those of a training run
are a laptop's, and the paper's are in `config/paper.yaml`.
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
    """A group of one's own."""

    names: list[str] = Field(min_length=2, description="Its elements, as values.")
    operators: list[str] | None = Field(
        None, description="The elements as operators, other words; by default the names marked."
    )
    table: list[list[NonNegativeInt]] = Field(
        description="Row g, column x: the number of the element g . x."
    )


class GraphSettings(Settings):
    """The dependency graph of a sentence."""

    renamed = {"shortest": "min_length"}
    kind: Literal["path", "paths", "varied", "branch", "star", "balanced", "recursive"] = Field(
        "path",
        description="path: a chain; paths: several of equal length; varied: a chain of random "
        "length, the rest in a second; branch: a chain whose last clause hangs off any earlier "
        "one; star; balanced: a binary tree; recursive: each clause uses a random earlier one.",
    )
    count: PositiveInt = Field(2, description="Number of `paths`.")
    min_length: PositiveInt = Field(1, description="Fewest clauses of the chain if `varied`.")


class TaskSettings(Settings):
    """A law of sentences."""

    group: str | GroupSettings = Field(
        "z2", description="z2 (signs, as published), d3, s3, klein, z3, z4, ... or a table."
    )
    graph: GraphSettings = Field(GraphSettings(), description="Which clause uses which variable.")
    n: Clauses = Field(description="Number of clauses in a sentence.")
    layout: Literal["compact", "published"] = Field(
        "compact",
        description="compact: variable, operator, operand; published: variable = operator operand "
        "and a comma.",
    )
    letters: PositiveInt = Field(26, description="Size of the alphabet; pairs of letters from 27.")
    operators: list[NonNegativeInt] | None = Field(
        None, description="Numbers of the group's elements that act, such as two generators."
    )
    shuffled: bool = Field(True, description="Clauses in random order; false: in chain order.")
    held_out: NonNegativeInt = Field(
        0,
        description="Letters of the alphabet that no training sentence has; sentences of these "
        "alone are then tested as well.",
    )

    @model_validator(mode="after")
    def _enough_letters(self) -> Self:
        seen = self.letters - self.held_out
        if seen < self.n:
            raise inconsistent("letters", f"{seen} to train with are too few for {self.n} clauses")
        if 0 < self.held_out < self.n:
            raise inconsistent("held_out", f"{self.held_out} are too few for {self.n} clauses")
        return self


class ArchitectureSettings(Settings):
    """A transformer for LEGO sentences."""

    renamed = {"layers": "n_layers"}
    n_layers: PositiveInt = Field(12, description="Layers; of a tied model, times its layer runs.")
    tied: bool = Field(False, description="One layer's weights for all layers, as in ALBERT.")
    d_model: PositiveInt = Field(768, description="Width; a multiple of the number of heads.")
    d_ff: PositiveInt = Field(3072, description="Width of the feed-forward layers.")
    heads: tuple[Heads, ...] = Field(
        (Heads(),),
        min_length=1,
        description="Kinds of heads; for all layers, or one entry a layer.",
    )
    window: PositiveInt = Field(5, description="Offsets that a convolution head sees; odd.")
    chained: bool = Field(
        False,
        description="Convolution heads also read what the association heads of their layer found, "
        "so that one layer can do a whole step along the chain.",
    )
    norm: Literal["post", "pre"] = Field(
        "post", description="LayerNorm after each sublayer (BERT) or before it."
    )
    dropout: NonNegativeFloat = Field(
        0.0, lt=1, description="Dropout on hidden states and attention; BERT has 0.1."
    )
    init: PositiveFloat | None = Field(
        0.02,
        description="Standard deviation of initial weights; null for 1 / sqrt(inputs of the "
        "matrix), which suits narrow models.",
    )
    library: bool = Field(
        False,
        description="The same as the transformers library has it: BertModel, or AlbertModel if "
        "tied. Slower, and with learned heads only.",
    )
    d_embedding: PositiveInt | None = Field(
        None,
        description="Width of the embeddings of the library's AlbertModel, 128 as published; "
        "null: that of the layers.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.library and (
            self.norm != "post"
            or self.init is None
            or len(self.heads) > 1
            or self.heads[0].learned < self.heads[0].total
        ):
            message = (
                "goes with learned heads alone, the same in all layers, norm: post and an init"
            )
            raise inconsistent("library", message)
        if self.d_embedding is not None and not (self.library and self.tied):
            raise inconsistent("d_embedding", "is for the library's tied model")
        if len(self.heads) not in ({1} if self.tied else {1, self.n_layers}):
            wanted = "1, since layers are tied" if self.tied else f"1 or {self.n_layers}"
            raise inconsistent("heads", f"has {len(self.heads)} entries, not {wanted}")
        for heads in self.heads:
            if heads.total == 0 or self.d_model % heads.total:
                message = f"{self.d_model} is not a multiple of the {heads.total} heads"
                raise inconsistent("d_model", message)
            if self.chained and not (heads.association and heads.convolution):
                raise inconsistent("chained", "needs association and convolution heads")
        if self.window % 2 == 0:
            raise inconsistent("window", f"{self.window} is even, so it has no centre")
        return self


class MimickingSettings(Settings):
    """Pretraining of two heads a layer towards the two attention patterns, before the task."""

    steps: PositiveInt = Field(300, description="Steps, before those of the task.")
    batch: PositiveInt = Field(64, description="Sentences a step.")
    learning_rate: PositiveFloat = Field(0.001, description="Learning rate.")
    patterns: list[Literal["convolution", "association"]] = Field(
        ["convolution", "association"], min_length=1, description="Which patterns are mimicked."
    )
    shuffled: bool = Field(
        False,
        description="Control: association targets of other sentences, so that they are wrong.",
    )
    keep: NonNegativeFloat = Field(
        0.0, description="Weight of the same loss while the task is trained; the paper drops it."
    )


class PretrainedSettings(Settings):
    """Where a training starts, instead of at a model of random weights."""

    model: Name = Field(description="One of the models, an encoder; its tokenizer is used too.")
    random: bool = Field(
        False, description="Control: random weights in the same architecture, the same tokens."
    )
    dropout: NonNegativeFloat | None = Field(
        None, lt=1, description="Dropout while training; null: what the model's own settings say."
    )
    words: dict[str, str] = Field(
        {},
        description="Other words for some symbols: where the tokenizer splits one, or to hide "
        "from the model what `not` means.",
    )


class ProbingSettings(Settings):
    """How trained and pretrained models are looked into."""

    test: PositiveInt = Field(2000, description="Test sentences.")
    train: PositiveInt = Field(4000, description="Sentences that layer probes are fitted to.")
    maps: PositiveInt = Field(200, description="Sentences that heads are scored on.")
    n: Clauses = Field(12, description="Clauses of the sentences that pretrained models read.")
    iterations: list[int] = Field(
        [],
        description="How many layers more (or, below 0, fewer) a tied model is also tested with "
        "than it was trained with.",
    )


class LegoVariantSettings(Settings):
    """One training run."""

    renamed = {"evaluations": "eval_points"}
    task: Name = Field(description="One of the tasks.")
    n_tr: PositiveInt | None = Field(
        None, description="Leading positions that are supervised; null: all."
    )
    leaf_only: bool = Field(False, description="Supervise the last position and no other.")
    model: ArchitectureSettings = Field(ArchitectureSettings(), description="The transformer.")
    pretrained: PretrainedSettings | None = Field(
        None, description="A pretrained model in its place; sentences are then in its tokens."
    )
    one_logit: bool = Field(
        True, description="For two values one logit, as published; else a logit a value."
    )
    mimicking: MimickingSettings | None = Field(None, description="Mimicking before the task.")
    deep: bool = Field(
        False, description="Deep supervision: the loss after every layer, not only after the last."
    )
    curriculum: PositiveInt | None = Field(
        None, description="Supervise one position more every so many steps; null: all at once."
    )
    sentences: PositiveInt | None = Field(
        None, description="Size of a fixed training set; null draws fresh sentences at each step."
    )
    steps: PositiveInt = Field(800, description="Optimiser steps.")
    batch: PositiveInt = Field(128, description="Sentences a step.")
    learning_rate: PositiveFloat = Field(0.003, description="Peak learning rate of Adam.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "cosine", description="Learning rate after the warm-up."
    )
    warmup: NonNegativeInt = Field(100, description="Steps of linear warm-up.")
    clip: PositiveFloat | None = Field(1.0, description="Largest gradient norm.")
    eval_points: PositiveInt = Field(25, description="Points of the learning curves.")
    probing: ProbingSettings | None = Field(
        None, description="How it is looked into, where not as the study says."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leaf_only and self.n_tr is not None:
            raise inconsistent("leaf_only", "goes without n_tr")
        if self.pretrained is not None:
            if "model" in self.model_fields_set:
                raise inconsistent("model", "goes without pretrained, which has its own")
            return self
        learned = min(heads.learned for heads in self.model.heads)
        if self.mimicking is not None and learned < 2:
            raise inconsistent("mimicking", f"needs 2 learned heads a layer, there are {learned}")
        return self

    @model_serializer(mode="wrap")
    def _without_a_shape(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As plain values: one that starts from a pretrained model tells no shape of its own."""
        found = serialise(self)
        if self.pretrained is not None:
            found.pop("model", None)
        return found

    @property
    def has_maps(self) -> bool:
        """Whether every layer has learned heads, so that there are attention maps to look at."""
        return self.pretrained is not None or all(heads.learned for heads in self.model.heads)

    @property
    def tied(self) -> bool:
        """Whether one layer is applied several times (of a pretrained model: not known here)."""
        return self.pretrained is None and self.model.tied


class LegoFigureSettings(Settings):
    """Which variants each figure shows, in order."""

    curves: list[Name] = Field([], description="Accuracy by position over training.")
    extrapolation: list[Name] = Field([], description="Accuracy on positions never supervised.")
    percolation: list[Name] = Field([], description="Layer probes.")
    mimicking: list[Name] = Field([], description="With and without mimicking.")
    shortcut: list[Name] = Field([], description="Shortcut agreement, and its fixes.")
    module: list[Name] = Field([], description="With and without the LEGO attention module.")
    pretraining: list[Name] = Field([], description="Pretrained and other starts, by position.")
    d3: list[Name] = Field([], description="Learning curves over another group.")
    graphs: list[Name] = Field([], description="Other dependency graphs, by depth.")
    depth: list[Name] = Field([], description="Models of several depths, by position.")
    iterations: list[Name] = Field([], description="More or fewer layers at test than in training.")


class LegoSettings(VariantStudySettings):
    """The `lego:` section."""

    tasks: dict[Name, TaskSettings] = Field(description="Named tasks.")
    variants: dict[Name, LegoVariantSettings] = Field(description="Named training runs.")
    pretrained: list[Name] = Field(
        [], description="Which of the models to look for association and manipulation heads in."
    )
    probing: ProbingSettings = Field(ProbingSettings(), description="How models are looked into.")
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
        """Raise for a variant whose task is not there, or does not fit."""
        check_known(f"{key}.task", variant.task, self.tasks, "task")
        task = self.tasks[variant.task]
        if variant.n_tr is not None and variant.n_tr > task.n:
            raise inconsistent(f"{key}.n_tr", f"{variant.n_tr} is above the {task.n} clauses")
        if variant.pretrained is not None and task.layout != "published":
            raise inconsistent(f"{key}.task", f"{variant.task} has not got the published layout")

    def probing_of(self, variant: str) -> ProbingSettings:
        """How a variant is looked into."""
        return self.variants[variant].probing or self.probing
