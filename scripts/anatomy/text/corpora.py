"""Stream documents of natural text from packages, files, Wikipedia dumps and the hub.

Case and punctuation stay, since models read them. Memory holds one document at a time, except for
the packaged news, which are few and read whole.
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

# Lines that gensim's filter leaves although they are not prose: headings, lists, indented lines,
# and cells and captions with deeply nested markup. Other table cells stay as lines of their own:
# most are shorter than a paragraph, and the long ones are prose.
NOT_PROSE = re.compile(r"^[=*#:;!]|[|{}]")
QUOTES = re.compile("'{2,}")  # wiki markup of italics and bold face
MAX_CHARACTERS = (
    5_000_000  # of a document; a longer one is a file without line breaks, not a corpus
)


def documents(corpus: settings.TextCorpusSettings) -> Iterator[str]:
    """Yield the documents of a corpus in order, each on one line with white space collapsed.

    Raises:
        ValueError: The source cannot be read, lacks the column, or has no document that is long
            enough; the message names the source.
    """
    count = 0
    try:
        for document in islice(_documents(corpus), corpus.limit):
            count += 1
            yield document
    except MemoryError:
        raise
    except Exception as error:  # each reader raises its own kinds
        raise ValueError(f"{_source(corpus)}: {artifacts.first_line(error)}") from error
    if not count:
        raise ValueError(f"{_source(corpus)}: no document of {corpus.min_length} words or more")


def _documents(corpus: settings.TextCorpusSettings) -> Iterator[str]:
    """Yield the texts cut into units, without those that are too short."""
    by_line = getattr(corpus, "unit", "document") == "paragraph"
    for number, text in enumerate(_texts(corpus), start=1):
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"document {number} has more than {MAX_CHARACTERS} characters")
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
    """Return the name of a corpus in errors."""
    match corpus:
        case settings.PackagedCorpusSettings():
            return corpus.package
        case settings.HubCorpusSettings():
            return corpus.id
    return str(corpus.path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig") as file:
        while line := file.readline(MAX_CHARACTERS + 1):  # bounds the memory of a longer line
            yield line


def _column(rows: Iterable[dict[str, Any]], column: str) -> Iterator[str]:
    """Yield a column of a table; rows without text are left out."""
    for row in rows:
        if column not in row:
            raise ValueError(f"no column {column}; there are {', '.join(row)}")
        if isinstance(row[column], dict | list | bytes):
            kind = type(row[column]).__name__
            raise ValueError(f"column {column}: expected text, got a {kind}")
        if row[column] is not None:
            yield str(row[column])


def _news(path: Path) -> Iterator[str]:
    """Yield the text of each article once."""
    yield from pandas.read_csv(path, usecols=["text"])["text"].dropna().drop_duplicates()


def _articles(path: Path) -> Iterator[str]:
    """Yield the prose of each article of a dump, one paragraph a line."""
    for page in _pages(path):
        if page.findtext("{*}ns", "0") == "0" and page.find("{*}redirect") is None:
            markup = page.findtext("{*}revision/{*}text", "")
            lines = (QUOTES.sub("", line.strip()) for line in filter_wiki(markup).splitlines())
            yield "\n".join(line for line in lines if not NOT_PROSE.search(line))


def _pages(path: Path) -> Iterator[Element]:
    """Yield the page elements of a dump.

    gensim's own reader keeps every emptied page in the tree: gigabytes on all of Wikipedia.
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
    """A file that raises ValueError on an endless page: a few bytes can unpack to gigabytes.

    Attributes:
        file: The file that is read.
        since: Bytes read since the caller last set this to 0.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.since = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        self.since += size
        if self.since > 4 * MAX_CHARACTERS:  # UTF-8 has at most 4 bytes a character
            raise ValueError(f"a page has more than {MAX_CHARACTERS} characters")
        return self.file.read(size)
