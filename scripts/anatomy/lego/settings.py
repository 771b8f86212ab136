"""Configuration of the LEGO study: tasks, models, training runs, probes.

Each class is a part of the `lego:` section. Where Zhang et al. (2022, "Unveiling Transformers with
LEGO") or their released code describe a model its values are the defaults; those of a training run
are a laptop's, and the paper's are in `config/paper.yaml`.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scripts.anatomy.settings import Name, Settings, check_known, inconsistent, present

Clauses = Annotated[int, Field(ge=2, le=100)]


class Table(Settings):
    """A group of one's own."""

    names: list[str] = Field(min_length=2, description="Its elements, as values.")
    operators: list[str] | None = Field(
        None, description="The elements as operators, other words; by default the names marked."
    )
    table: list[list[NonNegativeInt]] = Field(
        description="Row g, column x: the number of the element g . x."
    )


class Graph(Settings):
    """The dependency graph of a sentence."""

    kind: Literal["path", "paths", "varied", "branch", "star", "balanced", "recursive"] = Field(
        "path",
        description="path: a chain; paths: several of equal length; varied: a chain of random "
        "length, the rest in a second; branch: a chain whose last clause hangs off any earlier "
        "one; star; balanced: a binary tree; recursive: each clause uses a random earlier one.",
    )
    count: PositiveInt = Field(2, description="Number of `paths`.")
    shortest: PositiveInt = Field(1, description="Fewest clauses of the chain if `varied`.")


class Task(Settings):
    """A law of sentences."""

    group: str | Table = Field(
        "z2", description="z2 (signs, as published), d3, s3, klein, z3, z4, ... or a table."
    )
    graph: Graph = Field(Graph(), description="Which clause uses which variable.")
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

    @model_validator(mode="after")
    def _enough_letters(self) -> Self:
        if self.letters < self.n:
            raise inconsistent("letters", f"{self.letters} are too few for {self.n} clauses")
        return self


class Heads(Settings):
    """The kinds of a layer's heads, all of the same width."""

    learned: NonNegativeInt = Field(4, description="Heads of ordinary learned self-attention.")
    association: NonNegativeInt = Field(
        0, description="Hard-coded heads that average over the other places of the same token."
    )
    convolution: NonNegativeInt = Field(
        0, description="Hard-coded heads with one learned weight per offset in a window."
    )

    @property
    def total(self) -> int:
        """All heads of a layer."""
        return self.learned + self.association + self.convolution


class Architecture(Settings):
    """A transformer for LEGO sentences."""

    layers: PositiveInt = Field(12, description="Layers; of a tied model, times its layer runs.")
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.heads) not in ({1} if self.tied else {1, self.layers}):
            wanted = "1, since layers are tied" if self.tied else f"1 or {self.layers}"
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


class Mimicking(Settings):
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


class Variant(Settings):
    """One training run."""

    task: Name = Field(description="One of the tasks.")
    n_tr: PositiveInt | None = Field(
        None, description="Leading positions that are supervised; null: all."
    )
    leaf_only: bool = Field(False, description="Supervise the last position and no other.")
    model: Architecture = Field(Architecture(), description="The transformer.")
    one_logit: bool = Field(
        True, description="For two values one logit, as published; else a logit a value."
    )
    mimicking: Mimicking | None = Field(None, description="Mimicking before the task.")
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
    evaluations: PositiveInt = Field(25, description="Points of the learning curves.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leaf_only and self.n_tr is not None:
            raise inconsistent("leaf_only", "goes without n_tr")
        learned = min(heads.learned for heads in self.model.heads)
        if self.mimicking is not None and learned < 2:
            raise inconsistent("mimicking", f"needs 2 learned heads a layer, there are {learned}")
        return self


class Probing(Settings):
    """How trained and pretrained models are looked into."""

    test: PositiveInt = Field(2000, description="Test sentences.")
    train: PositiveInt = Field(4000, description="Sentences that layer probes are fitted to.")
    maps: PositiveInt = Field(200, description="Sentences that heads are scored on.")
    n: Clauses = Field(12, description="Clauses of the sentences that pretrained models read.")


class Figures(Settings):
    """Which variants each figure shows, in order."""

    curves: list[Name] = Field([], description="Accuracy by position over training.")
    extrapolation: list[Name] = Field([], description="Accuracy on positions never supervised.")
    percolation: list[Name] = Field([], description="Layer probes.")
    mimicking: list[Name] = Field([], description="With and without mimicking.")
    shortcut: list[Name] = Field([], description="Shortcut agreement, and its fixes.")


class Comparison(Settings):
    """Two variants set against each other, seed by seed."""

    of: Name = Field(description="A variant.")
    over: Name = Field(description="The variant that is subtracted.")
    metric: str = Field(description="A number in metrics.json, keys joined with dots.")


class LegoStudy(Settings):
    """The `lego:` section."""

    seeds: list[NonNegativeInt] = Field(
        [0, 1, 2], min_length=1, description="One replicate of every training per seed."
    )
    tasks: dict[Name, Task | None] = Field(description="Named tasks; null removes one.")
    variants: dict[Name, Variant | None] = Field(description="Named runs; null removes one.")
    pretrained: list[Name] = Field(
        [], description="Which of the models to look for association and manipulation heads in."
    )
    probing: Probing = Field(Probing(), description="How models are looked into.")
    comparisons: dict[Name, Comparison | None] = Field(
        {}, description="Differences between variants; null removes one."
    )
    figures: Figures = Field(Figures(), description="Variants in each figure.")
    max_steps: PositiveInt | None = Field(
        None, description="No training takes more steps than this; for quick checks."
    )

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed is given twice: {seeds}")
        return seeds

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, variant in self.present_variants.items():
            self._check(f"variants.{name}", variant)
        for figure, names in self.figures:
            for name in names:
                if name not in self.variants:
                    raise inconsistent(f"figures.{figure}", f"no variant named {name}")
        return self

    @property
    def present_comparisons(self) -> dict[str, Comparison]:
        """The comparisons that were not removed, and whose variants were not either."""
        return {
            name: comparison
            for name, comparison in present(self.comparisons).items()
            if {comparison.of, comparison.over} <= self.present_variants.keys()
        }

    def _check(self, key: str, variant: Variant) -> None:
        """Raise for a variant whose task is not there, or does not fit."""
        check_known(f"{key}.task", variant.task, self.present_tasks, "task")
        task = self.present_tasks[variant.task]
        if variant.n_tr is not None and variant.n_tr > task.n:
            raise inconsistent(f"{key}.n_tr", f"{variant.n_tr} is above the {task.n} clauses")

    @property
    def present_tasks(self) -> dict[str, Task]:
        """The tasks that were not removed."""
        return present(self.tasks)

    @property
    def present_variants(self) -> dict[str, Variant]:
        """The variants that were not removed, none longer than `max_steps`."""
        return {
            name: variant.model_copy(
                update={"steps": min(variant.steps, self.max_steps or variant.steps)}
            )
            for name, variant in present(self.variants).items()
        }

    def shown(self, figure: str) -> list[str]:
        """The variants of a figure that were not removed."""
        return [name for name in getattr(self.figures, figure) if name in self.present_variants]
