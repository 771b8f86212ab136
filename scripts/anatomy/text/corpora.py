"""Natural text, a document at a time: from packages, files, Wikipedia dumps and the hub.

Case and punctuation stay, since models read them. Nothing here holds more than a document (of
the packaged news, which are few, all): six million articles need no more memory than six thousand.
"""

import bz2
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree.ElementTree import Element, iterparse

import pandas
from gensim.corpora.wikicorpus import filter_wiki

from scripts.anatomy import artifacts, assets, data_sources, hf_datasets
from scripts.anatomy.text import settings

# What gensim's filter leaves of a page that is no prose: headings, lists and indented
# lines; cells and captions whose markup was too nested for it. Other cells stay as
# lines of their own: as paragraphs most are too short, and those that are not are prose.
NOT_PROSE = re.compile(r"^[=*#:;!]|[|{}]")
QUOTES = re.compile("'{2,}")  # wiki markup of italics and bold face
LONGEST = 5_000_000  # characters of a document; a file that was cut nowhere is no corpus


def documents(corpus: settings.TextCorpusSettings) -> Iterator[str]:
    """The documents of a corpus in its order, each on one line, white space collapsed.

    Raises:
        ValueError: A file or data set that cannot be read, a missing column, or no document that
            is long enough; the message names the source.
    """
    found = 0
    try:
        for document in islice(_documents(corpus), corpus.limit):
            found += 1
            yield document
    except MemoryError:
        raise
    except Exception as error:  # each reader has its own; all of them are about this source
        raise ValueError(f"{_source(corpus)}: {artifacts.first_line(error)}") from error
    if not found:
        raise ValueError(f"{_source(corpus)}: no document of {corpus.min_length} words or more")


def _documents(corpus: settings.TextCorpusSettings) -> Iterator[str]:
    """Texts cut into units, without those that are too short."""
    by_line = getattr(corpus, "unit", "document") == "paragraph"
    for number, text in enumerate(_texts(corpus), start=1):
        if len(text) > LONGEST:
            raise ValueError(f"document {number} has more than {LONGEST} characters")
        for unit in text.splitlines() if by_line else [text]:
            words = unit.split()
            if len(words) >= corpus.min_length:
                yield " ".join(words)


def _texts(corpus: settings.TextCorpusSettings) -> Iterator[str]:
    match corpus:
        case settings.PackagedCorpusSettings(package="wikipedia"):
            return _articles(assets.find("wikipedia"))
        case settings.PackagedCorpusSettings(package="news"):
            return _news(assets.find("news"))
        case settings.LinesCorpusSettings():
            return _lines(corpus.path)
        case settings.TableCorpusSettings():
            kind = data_sources.TABLES[corpus.path.suffix]
            return _column(hf_datasets.of_file(kind, corpus.path), corpus.column)
        case settings.DumpCorpusSettings():
            return _articles(corpus.path)
        case settings.HubCorpusSettings():
            rows = hf_datasets.of_set(
                corpus.id, corpus.config, split=corpus.split, revision=corpus.revision
            )
            return _column(rows, corpus.column)


def _source(corpus: settings.TextCorpusSettings) -> str:
    """What an error calls the corpus."""
    match corpus:
        case settings.PackagedCorpusSettings():
            return corpus.package
        case settings.HubCorpusSettings():
            return corpus.id
    return str(corpus.path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig") as file:
        while line := file.readline(LONGEST + 1):  # of a longer one no more than that is held
            yield line


def _column(rows: Iterable[dict[str, Any]], column: str) -> Iterator[str]:
    """A column of a table; rows without text are left out."""
    for row in rows:
        if column not in row:
            raise ValueError(f"no column {column}, only {', '.join(row)}")
        if isinstance(row[column], dict | list | bytes):
            raise ValueError(f"column {column} holds a {type(row[column]).__name__}, not text")
        if row[column] is not None:
            yield str(row[column])


def _news(path: Path) -> Iterator[str]:
    """The articles' bodies, each once."""
    yield from pandas.read_csv(path, usecols=["text"])["text"].dropna().drop_duplicates()


def _articles(path: Path) -> Iterator[str]:
    """The prose of a dump's articles, a paragraph a line."""
    for page in _pages(path):
        if page.findtext("{*}ns", "0") == "0" and page.find("{*}redirect") is None:
            markup = page.findtext("{*}revision/{*}text", "")
            lines = (QUOTES.sub("", line.strip()) for line in filter_wiki(markup).splitlines())
            yield "\n".join(line for line in lines if not NOT_PROSE.search(line))


def _pages(path: Path) -> Iterator[Element]:
    """The page elements of a dump.

    gensim's own reader leaves every page, emptied, in the tree: gigabytes on all of Wikipedia.
    """
    with bz2.open(path) as file:
        source = _Measured(file)
        events = iterparse(source, events=("start", "end"))
        _, root = next(events)
        for event, element in events:
            if event == "end" and element.tag.rpartition("}")[2] == "page":
                yield element
                root.clear()
                source.since = 0


class _Measured:
    """A file that ends in a ValueError where a page does not: a few bytes unpack to gigabytes.

    Attributes:
        file: What is read.
        since: Bytes that were read since the reader has set this to 0.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.since = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        self.since += size
        if self.since > 4 * LONGEST:  # as many as that many characters can have
            raise ValueError(f"a page has more than {LONGEST} characters")
        return self.file.read(size)
