"""Configuration of the topic study: corpora, masking, models, training runs and grids.

Each class describes a part of the `topic:` section of `config.yaml`. The defaults are the
values of Li, Li & Risteski (ICML 2023) where the paper or its released code gives them.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
    model_validator,
)

from scripts.anatomy.settings import (
    Name,
    Seeds,
    Settings,
    UserPath,
    VariantStudySettings,
    check_distinct,
    check_known,
    distinct,
    inconsistent,
    is_file,
)

SPECIAL_TOKENS = 4  # PAD, MASK, START, END come before the words

Probability = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
MAX_WORDS = 32_000  # token ids are stored in 16 bits
Words = Annotated[int, Field(gt=0, le=MAX_WORDS)]
NonNegative = Annotated[float, Field(ge=0)]


class SampledCorpusSettings(Settings):
    """Settings of every sampled corpus; document lengths are uniform between the limits."""

    renamed = {"length": "min_length and max_length", "dev": "validation"}
    topics: PositiveInt = Field(10, description="Number of topics T.")
    min_length: PositiveInt = Field(100, description="Fewest words in a document.")
    max_length: PositiveInt = Field(150, description="Most words in a document.")
    train: PositiveInt = Field(10_000, description="Training documents.")
    validation: PositiveInt = Field(2_000, description="Held-out documents.")
    boundaries: bool = Field(
        True, description="Put START before and END after each document, as the released data do."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_length < self.min_length:
            raise ValueError(
                f"max_length ({self.max_length}) is below min_length ({self.min_length})"
            )
        return self


class BlockCorpusSettings(SampledCorpusSettings):
    """A corpus whose topics are disjoint blocks of equally likely words."""

    words: Words = Field(100, description="Number of words, a multiple of `topics`.")

    @model_validator(mode="after")
    def _blocks(self) -> Self:
        if self.words % self.topics:
            raise ValueError(
                f"words ({self.words}) is not a multiple of topics ({self.topics}), "
                "so the words cannot be split into equal blocks"
            )
        return self

    @property
    def words_per_topic(self) -> int:
        """Return the size v of a topic's block."""
        return self.words // self.topics


class LdaCorpusSettings(BlockCorpusSettings):
    """LDA with disjoint uniform topics: the corpus of the paper's synthetic experiments."""

    kind: Literal["lda"]
    alpha: PositiveFloat = Field(
        0.1, description="Concentration, per topic, of the symmetric Dirichlet prior over topics."
    )


class ExactCorpusSettings(BlockCorpusSettings):
    """The corpus of the theorems: every document has exactly tau topics in equal shares."""

    kind: Literal["exact"]
    tau: PositiveInt = Field(2, description="Distinct topics in each document, at most `topics`.")
    min_length: PositiveInt = Field(150, description="Fewest words in a document.")
    max_length: PositiveInt = Field(150, description="Most words in a document.")
    boundaries: bool = Field(False, description="Put START and END around each document.")

    @model_validator(mode="after")
    def _tau(self) -> Self:
        if self.tau > self.topics:
            raise ValueError(f"tau ({self.tau}) is above topics ({self.topics})")
        return self


class OverlapCorpusSettings(SampledCorpusSettings):
    """General LDA: topic-word distributions drawn from a Dirichlet prior, so topics share words."""

    kind: Literal["overlap"]
    words: Words = Field(100, description="Number of words.")
    alpha: PositiveFloat = Field(0.1, description="Concentration of the prior over topics.")
    beta: PositiveFloat = Field(
        0.05, description="Concentration, per word, of the prior over a topic's words."
    )
    membership: Probability = Field(
        0.25,
        description="A word belongs to every topic that holds at least this share of the word's "
        "probability summed over topics.",
    )


class TextFileCorpusSettings(Settings):
    """Documents read from text files: one a line, tokens separated by spaces, END last."""

    renamed = {"dev": "validation"}
    kind: Literal["text"]
    train: UserPath = Field(description="File with the training documents.")
    validation: UserPath = Field(description="File with the held-out documents.")
    topics: PositiveInt | None = Field(
        None,
        description="Words are the numbers 0 to words-1, split into this many consecutive blocks.",
    )
    words: Words = Field(100, description="Number of words when `topics` gives the blocks.")
    table: UserPath | None = Field(
        None, description="CSV file with the columns word,topic; a word may have several rows."
    )

    @model_validator(mode="after")
    def _one_assignment(self) -> Self:
        if (self.topics is None) == (self.table is None):
            raise ValueError("give either topics (consecutive blocks) or table (a CSV file)")
        if self.topics is not None and self.words % self.topics:
            raise ValueError(f"words ({self.words}) is not a multiple of topics ({self.topics})")
        return self

    @field_validator("train", "validation", "table")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not is_file(path):
            raise ValueError(f"no such file: {path}")
        return path


CorpusSettings = Annotated[
    LdaCorpusSettings | ExactCorpusSettings | OverlapCorpusSettings | TextFileCorpusSettings,
    Field(discriminator="kind"),
]


class TopicMaskingSettings(Settings):
    """How words are selected and replaced for masked language modelling."""

    renamed = {"p_m": "mask_prob", "p_c": "keep_prob", "p_r": "random_prob"}

    mask_prob: Probability = Field(
        0.15, description="Share of words that are selected for prediction (the paper's p_m)."
    )
    keep_prob: Share = Field(
        0.1, description="Share of the selected words that stay as they are (the paper's p_c)."
    )
    random_prob: Share = Field(
        0.1, description="Share of the selected words replaced by a random token (the paper's p_r)."
    )
    context: Literal["visible", "hidden"] = Field(
        "visible",
        description="visible: selected positions can be attended to, as in the theorems; "
        "hidden: they cannot, as in the released code.",
    )
    fresh: bool = Field(
        True, description="Draw masks anew at each step; false: once, as the released code does."
    )
    random_tokens: Literal["words", "all"] = Field(
        "words",
        description="Random replacements come from the words (theorems) or from every token "
        "including the special ones (released code).",
    )

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.keep_prob + self.random_prob > 1:
            raise ValueError(
                f"keep_prob + random_prob is {self.keep_prob + self.random_prob:g}, above 1"
            )
        return self


def _width(d_model: int | None, embedding: str, d_vocab: int) -> int:
    """Return the width of a model; ValueError if it is too small for one-hot embeddings."""
    if embedding == "one_hot" and d_model is not None and d_model < d_vocab:
        raise ValueError(f"one_hot needs d_model of at least {d_vocab} (the tokens), got {d_model}")
    return d_model or d_vocab


class CompactModelSettings(Settings):
    """The paper's one-layer transformer without positions, residual, feed-forward or norm."""

    renamed = {"width": "d_model"}
    kind: Literal["compact"] = "compact"
    embedding: Literal["one_hot", "trained"] = Field("one_hot", description="Token embeddings W_E.")
    attention: Literal["uniform", "trained"] = Field(
        "uniform", description="Attention: frozen uniform, or W_K and W_Q are trained."
    )
    value: Literal["trained", "identity", "block"] = Field(
        "trained", description="Value matrix W_V: trained, the identity, or Theorem 2's optimum."
    )
    head: Literal["identity", "tied", "trained"] = Field(
        "identity", description="Prediction head: none, tied to W_E, or a matrix of its own."
    )
    d_model: PositiveInt | None = Field(
        None, description="Width d_model; by default the vocabulary size."
    )
    value_gain: PositiveFloat = Field(
        1.0, description="Factor on the frozen block value matrix; cross-entropy wants about 57."
    )
    input_norm: bool = Field(
        False,
        description="Add a trained token-type vector and LayerNorm to the input, as the released "
        "code does even when its switches say otherwise.",
    )
    biases: bool = Field(False, description="Trained biases of the value matrix and the head.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        parts = (self.embedding, self.attention, self.value, self.head)
        if "trained" not in parts and not (self.input_norm or self.biases):
            raise ValueError(
                "nothing is left to train: embedding, attention, value and head are all frozen"
            )
        if self.value != "block" and self.value_gain != 1:
            raise ValueError(
                f"value_gain: expected value: block beside it, got value: {self.value}"
            )
        if self.value == "block" and self.embedding != "one_hot":
            raise ValueError("value: block is a matrix over tokens, so it needs embedding: one_hot")
        return self

    def check_width(self, d_vocab: int) -> None:
        """Raise ValueError if the width does not suit a vocabulary of `d_vocab` tokens."""
        d_model = _width(self.d_model, self.embedding, d_vocab)
        if (self.head == "identity" or self.value == "block") and d_model != d_vocab:
            raise ValueError(
                f"head: identity and value: block need d_model {d_vocab}, got {d_model}"
            )


class BertModelSettings(Settings):
    """A BERT of the transformers library, for checks on the real architecture."""

    kind: Literal["bert"]
    renamed = {
        "layers": "n_layers",
        "heads": "n_heads",
        "width": "d_model",
        "feed_forward": "d_ff",
    }
    n_layers: PositiveInt = Field(1, description="Transformer layers.")
    n_heads: PositiveInt = Field(1, description="Attention heads in a layer; divides d_model.")
    d_model: PositiveInt | None = Field(
        None, description="Hidden width; by default the vocabulary size."
    )
    d_ff: PositiveInt = Field(128, description="Width of the feed-forward layer.")
    embedding: Literal["one_hot", "trained"] = Field(
        "trained", description="Word embeddings: trained and tied, or frozen one-hot."
    )
    attention: Literal["uniform", "trained"] = Field(
        "trained", description="Attention: trained, or frozen uniform (W_K = W_Q = 0)."
    )

    @model_validator(mode="after")
    def _heads(self) -> Self:
        if self.d_model is not None and self.d_model % self.n_heads:
            raise ValueError(f"n_heads ({self.n_heads}) does not divide d_model ({self.d_model})")
        return self

    def check_width(self, d_vocab: int) -> None:
        """Raise ValueError if the width does not suit a vocabulary of `d_vocab` tokens."""
        d_model = _width(self.d_model, self.embedding, d_vocab)
        if d_model % self.n_heads:
            raise ValueError(
                f"n_heads ({self.n_heads}) does not divide d_model {d_model} (the tokens)"
            )


def _kind(model: object) -> str:
    """Return the kind of a model's settings; the default is compact."""
    return model.get("kind", "compact") if isinstance(model, dict) else getattr(model, "kind", "")


TopicModelSettings = Annotated[
    Annotated[CompactModelSettings, Tag("compact")] | Annotated[BertModelSettings, Tag("bert")],
    Discriminator(_kind),
]


class InitSettings(Settings):
    """Distribution of the initial weights."""

    renamed = {"law": "distribution"}
    distribution: Literal["normal", "uniform", "library"] = Field(
        "normal",
        description="normal: N(0, scale^2); uniform: U[0, scale], as the released code's near-zero "
        "start; library: torch's own defaults for linear layers and embeddings.",
    )
    scale: PositiveFloat = Field(0.01, description="Scale of the distribution.")


class TopicVariantSettings(Settings):
    """One training run: a model, its loss and its optimiser, on one or more corpora."""

    renamed = {"seeds_apart": "job_per_seed"}
    corpora: list[Name] = Field(["lda"], min_length=1, description="Names of corpora to train on.")
    model: TopicModelSettings = Field(
        CompactModelSettings(), description="Architecture and what of it is trained."
    )
    loss: Literal["cross_entropy", "squared"] = Field(
        "cross_entropy",
        description="squared is the squared norm of (output - one-hot target), summed over tokens.",
    )
    average: Literal["document", "token", "entry"] = Field(
        "document",
        description="Average the loss within each document first (the paper's objective), over "
        "all selected tokens of the batch (the released code), or over these and the outputs too "
        "(the released code's squared loss).",
    )
    l2: NonNegative = Field(
        0.0, description="Weight of the squared Frobenius norm of W_V, or of W_E if W_V is frozen."
    )
    masking: TopicMaskingSettings = Field(
        TopicMaskingSettings(), description="Masking of the training documents."
    )
    optimiser: Literal["adam", "sgd"] = Field("adam", description="Optimiser; sgd is plain.")
    learning_rate: PositiveFloat = Field(0.003, description="Peak learning rate.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Learning rate after the warm-up."
    )
    warmup: int = Field(0, ge=0, description="Steps of linear warm-up.")
    clip: PositiveFloat | None = Field(None, description="Largest gradient norm; null: no limit.")
    init: InitSettings = Field(InitSettings(), description="Initial weights.")
    batch: PositiveInt = Field(40, description="Documents in a batch.")
    steps: PositiveInt = Field(1500, description="Optimiser steps.")
    checkpoints: PositiveInt = Field(20, description="Log-spaced checkpoints that are kept.")
    job_per_seed: bool = Field(
        False,
        description="Train each seed in a job of its own, for trainings of minutes or more; else "
        "one job trains all seeds, so that starting up does not cost more than training.",
    )
    released_compat: bool = Field(
        False,
        strict=True,
        description="Train as the released code does: hidden context, masks drawn once over every "
        "token, LayerNorm, token type and biases in the model, torch's default init, loss "
        "averaged over tokens (and, if squared, over outputs). Overrides those keys.",
    )

    @model_validator(mode="before")
    @classmethod
    def _released(cls, data: object) -> object:
        if not isinstance(data, dict) or data.get("released_compat") is not True:
            return data
        model, masking = data.get("model") or {}, data.get("masking") or {}
        if not isinstance(model, dict) or not isinstance(masking, dict):
            return data  # refused by the validation of the fields
        if model.get("kind", "compact") != "compact":
            raise ValueError("released_compat needs a compact model")
        as_released = {"context": "hidden", "fresh": False, "random_tokens": "all"}
        return data | {
            "average": "entry" if data.get("loss") == "squared" else "token",
            "init": {"distribution": "library"},
            "masking": masking | as_released,
            "model": model | {"input_norm": True, "biases": True},
        }

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.l2 and isinstance(self.model, BertModelSettings):
            raise ValueError("l2 is defined on the compact model's W_V or W_E; not with kind: bert")
        if self.l2 and self.model.value != "trained" and self.model.embedding != "trained":
            raise ValueError("l2 needs a trained W_V or W_E")
        return self


class GridSettings(Settings):
    """Comparisons of the theorems with trained models, one setting varied at a time."""

    renamed = {"p_m": "mask_prob"}
    varies: Literal["tau", "topics", "words_per_topic", "l2", "mask_prob"] = Field(
        description="The setting that varies."
    )
    values: list[float] = Field(min_length=2, description="Its values.")
    measures: list[Literal["value", "attention"]] = Field(
        ["value", "attention"],
        min_length=1,
        description="value: entries of W_V and Theorem 2; attention: R and Theorem 3.",
    )
    topics: PositiveInt = Field(10, description="Topics T where they do not vary.")
    words_per_topic: PositiveInt = Field(10, description="Words v of a topic where fixed.")
    tau: PositiveInt = Field(3, description="Topics of a document where fixed.")
    mask_prob: Probability = Field(0.15, description="Selected share where fixed.")
    l2: NonNegative = Field(0.0, description="L2 weight where fixed; 0 is the limit to 0.")
    steps: PositiveInt = Field(600, description="Optimiser steps of each training.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        whole = self.varies in ("tau", "topics", "words_per_topic")
        for value in self.values:
            if value < 0 or (value == 0 and self.varies != "l2"):
                raise ValueError(f"{self.varies}: expected a positive number, got {value:g}")
            if whole and value != int(value):
                raise ValueError(f"{self.varies}: expected a whole number, got {value:g}")
        distinct(self.values)
        if self.measures == ["attention"] and self.varies != "tau" and self.tau == 1:
            raise ValueError("measures: attention has no ratio R at tau 1")
        size = {
            name: max(self.values) if self.varies == name else getattr(self, name)
            for name in ("topics", "words_per_topic")
        }
        if size["topics"] * size["words_per_topic"] > MAX_WORDS:
            raise ValueError(f"topics times words_per_topic is above {MAX_WORDS}")
        for value in self.values:
            if self.varies == "mask_prob" and value >= 1:
                raise ValueError(f"mask_prob must be below 1, got {value:g}")
        taus = self.values if self.varies == "tau" else [self.tau]
        topics = self.values if self.varies == "topics" else [self.topics]
        if max(taus) >= min(topics):
            raise ValueError(
                f"tau ({max(taus):g}) must be below topics ({min(topics):g}): "
                "if every document has every topic, there is no structure to learn"
            )
        return self


class SweepSettings(Settings):
    """Optimisers and learning rates under which topic structure is measured."""

    corpus: Name = Field("lda", description="Corpus to train on.")
    adam: list[PositiveFloat] = Field([0.003, 0.01, 0.03], description="Learning rates of Adam.")
    sgd: list[PositiveFloat] = Field([1.0, 10.0, 30.0], description="Learning rates of SGD.")
    losses: list[Literal["cross_entropy", "squared"]] = Field(
        ["cross_entropy", "squared"], min_length=1, description="Losses to try."
    )
    steps: PositiveInt = Field(600, description="Optimiser steps of each training.")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.adam or self.sgd):
            raise ValueError("give at least one learning rate, under adam or sgd")
        return self


class TopicFigureSettings(Settings):
    """Which variants each figure shows, in order; each on the first of its corpora."""

    embeddings: list[Name] = Field([], description="Gram matrices of the embeddings.")
    values: list[Name] = Field([], description="Value matrices W_V and their column products.")
    sentences: list[Name] = Field([], description="Learned attention on documents, and W_K^T W_Q.")
    stages: list[Name] = Field([], description="Norms, blocks, attention and loss over training.")
    compensation: list[Name] = Field([], description="One component frozen, the rest trained.")
    architectures: list[Name] = Field([], description="From the compact model to a real BERT.")


class TopicMeasurementSettings(Settings):
    """How attention is measured on held-out documents."""

    renamed = {"longest": "max_length"}
    documents: PositiveInt = Field(500, description="Held-out documents.")
    max_length: int = Field(
        100, ge=3, description="Documents are cut to this many tokens, START included."
    )
    reference_length: PositiveInt = Field(
        100,
        description="Attention weights are multiplied by (document length / this), so that "
        "uniform attention has the value 1 / this in documents of any length.",
    )


class TopicSettings(VariantStudySettings):
    """The `topic:` section."""

    seeds: Seeds = Field(
        [0, 1, 2], description="One replicate of documents, masks, weights and order per seed."
    )
    corpora: dict[Name, CorpusSettings] = Field(description="Named corpora.")
    variants: dict[Name, TopicVariantSettings] = Field(description="Named training runs.")
    grids: dict[Name, GridSettings] = Field(
        {}, description="Comparisons of theory and measurement."
    )
    sweep: SweepSettings = Field(
        SweepSettings(), validate_default=True, description="Optimisers and learning rates."
    )
    measurement: TopicMeasurementSettings = Field(
        TopicMeasurementSettings(), description="Attention on held-out documents."
    )
    figures: TopicFigureSettings = Field(
        TopicFigureSettings(), description="Variants in each figure."
    )

    @field_validator("variants")
    @classmethod
    def _some(cls, variants: dict[str, TopicVariantSettings]) -> dict[str, TopicVariantSettings]:
        if not variants:
            raise ValueError("expected at least one variant, got none")
        return variants

    @field_validator("corpora")
    @classmethod
    def _not_folders(cls, corpora: dict) -> dict:
        taken = {"grid", "sweep", "figures"} & corpora.keys()
        if taken:
            raise ValueError(
                f"no corpus can be named {taken.pop()}: results have a folder of that name"
            )
        return corpora

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, variant in self.variants.items():
            check_distinct(f"variants.{name}.corpora", variant.corpora)
            for corpus in variant.corpora:
                self._check(f"variants.{name}", corpus, variant.model)
                self._check_context(f"variants.{name}", corpus, variant.masking)
        self._check("sweep", self.sweep.corpus, CompactModelSettings())
        for figure, names in self.figures:
            for name in names:
                self._check_figure(figure, name)
        return self

    def _check(
        self, key: str, corpus: str, model: CompactModelSettings | BertModelSettings
    ) -> None:
        """Raise ValueError if a model cannot be trained on a corpus."""
        check_known(key, corpus, self.corpora, "corpus")
        settings = self.corpora[corpus]
        if isinstance(settings, TextFileCorpusSettings) and settings.table is not None:
            return  # the vocabulary is known when the table is read
        try:
            model.check_width(settings.words + SPECIAL_TOKENS)
        except ValueError as error:
            raise inconsistent(f"{key}.model", str(error)) from None
        if getattr(model, "value", None) == "block" and settings.topics == 1:
            raise inconsistent(f"{key}.model", "value: block needs more than one topic")
        if getattr(model, "value", None) == "block" and isinstance(settings, OverlapCorpusSettings):
            raise inconsistent(
                f"{key}.model",
                f"value: block needs topics that are blocks; those of {corpus} overlap",
            )

    def _check_figure(self, figure: str, name: str) -> None:
        """Raise if a variant does not train what a figure shows."""
        model = self.variants[name].model
        compact = isinstance(model, CompactModelSettings)
        attends = model.attention == "trained"
        embeds = model.embedding == "trained"
        suitable, wanted = {
            "embeddings": (compact and embeds, "a compact model with trained embeddings"),
            "values": (
                compact and (embeds or model.value == "trained"),
                "a compact model with a trained W_V or trained embeddings",
            ),
            "sentences": (compact and attends, "a compact model with trained attention"),
            "stages": (
                compact and attends and model.value == "trained",
                "a compact model with trained attention and a trained W_V",
            ),
        }.get(figure, (not compact or attends, "a BERT or a compact model with trained attention"))
        if not suitable:
            raise inconsistent(f"figures.{figure}", f"expected {wanted}, got {name}")

    def _check_context(self, key: str, corpus: str, masking: TopicMaskingSettings) -> None:
        """Raise if all words of a document can be selected and hidden."""
        settings = self.corpora[corpus]
        if masking.context == "visible" or not isinstance(settings, SampledCorpusSettings):
            return
        min_length = settings.min_length
        if not settings.boundaries and masking.mask_prob**min_length > 1e-9:
            raise inconsistent(
                f"{key}.masking",
                "context: hidden leaves nothing to attend to if all words of a document are "
                f"selected; {corpus} has documents of {min_length} words: set boundaries to true",
            )
