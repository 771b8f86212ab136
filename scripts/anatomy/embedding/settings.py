"""Configuration of the embedding-space study; each class is a part of the `embedding:` section.

The defaults are the settings of Dar, Geva, Gupta & Berant (ACL 2023) and of their released code.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from scripts.anatomy.embedding.finetuning_settings import FinetuningSettings, TranslationSettings
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
        """The seeds of fine-tuning."""
        return self.finetuning.seeds or self.seeds

    @property
    def reading(self) -> str:
        """The reading of the experiments and figures."""
        return next(iter(self.readings))

    def golden_of(self, model: str) -> dict[str, GoldenSettings]:
        """The golden heads of a model."""
        return {n: g for n, g in self.golden.items() if g.model == model}
