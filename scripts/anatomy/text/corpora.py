"""Natural text, a document at a time: from packages, files, Wikipedia dumps and the hub.

Case and punctuation stay, since models read them. Nothing here holds more than a document (of
the packaged news, which are few, all): six million articles need no more memory than six thousand.
"""

import bz2
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element, iterparse

import pandas
from gensim.corpora.wikicorpus import filter_wiki

from scripts.anatomy import artifacts, packages
from scripts.anatomy.text import settings

# What gensim's filter leaves of a page that is no prose: headings, lists and indented
# lines; cells and captions whose markup was too nested for it. Other cells stay as
# lines of their own: as paragraphs most are too short, and those that are not are prose.
NOT_PROSE = re.compile(r"^[=*#:;!]|[|{}]")
QUOTES = re.compile("'{2,}")  # wiki markup of italics and bold face


def documents(corpus: settings.Corpus) -> Iterator[str]:
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
        raise ValueError(f"{_source(corpus)}: no document of {corpus.shortest} words or more")


def _documents(corpus: settings.Corpus) -> Iterator[str]:
    """Texts cut into units, without those that are too short."""
    by_line = getattr(corpus, "unit", "document") == "paragraph"
    for text in _texts(corpus):
        for unit in text.splitlines() if by_line else [text]:
            words = unit.split()
            if len(words) >= corpus.shortest:
                yield " ".join(words)


def _texts(corpus: settings.Corpus) -> Iterator[str]:
    match corpus:
        case settings.PackagedCorpus(package="wikipedia"):
            return _articles(packages.find("wikipedia"))
        case settings.PackagedCorpus(package="news"):
            return _news(packages.find("news"))
        case settings.LinesCorpus():
            return _lines(corpus.path)
        case settings.TableCorpus():
            kind = settings.TABLES[corpus.path.suffix]
            return _rows(kind, corpus.column, split="train", data_files=str(corpus.path))
        case settings.DumpCorpus():
            return _articles(corpus.path)
        case settings.HubCorpus():
            name, revision = corpus.config, corpus.revision
            return _rows(corpus.id, corpus.column, name=name, split=corpus.split, revision=revision)


def _source(corpus: settings.Corpus) -> str:
    """What an error calls the corpus."""
    match corpus:
        case settings.PackagedCorpus():
            return corpus.package
        case settings.HubCorpus():
            return corpus.id
    return str(corpus.path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _rows(source: str, column: str, **choices: str | None) -> Iterator[str]:
    """A column of whatever `datasets` can stream; rows without text are left out."""
    from datasets import load_dataset  # here, since most corpora do not need it

    for row in load_dataset(source, streaming=True, **choices):
        if column not in row:
            raise ValueError(f"no column {column}, only {', '.join(row)}")
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
        events = iterparse(file, events=("start", "end"))
        _, root = next(events)
        for event, element in events:
            if event == "end" and element.tag.rpartition("}")[2] == "page":
                yield element
                root.clear()
