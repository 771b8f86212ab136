"""Natural text from every kind of source, and the places of its words."""

import bz2
import json
import tracemalloc
from pathlib import Path

import pandas
import pytest
from gensim.utils import tokenize
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from scripts.anatomy import assets, data_sources
from scripts.anatomy.text import corpora, settings, words

TEXTS = [
    "The quick brown fox, it's said, jumps.",
    "Too short.",
    "Über den   Wolken:\tthe freedom there is boundless!",
    "A first paragraph of words.\n\nAnd its second paragraph, longer.\nNo.",
]
CLEAN = [
    "The quick brown fox, it's said, jumps.",
    "Über den Wolken: the freedom there is boundless!",
    "A first paragraph of words. And its second paragraph, longer. No.",
]
PARAGRAPHS = [*CLEAN[:2], "A first paragraph of words.", "And its second paragraph, longer."]


def corpus(**keys: object) -> settings.TextCorpusSettings:
    """A corpus as the configuration has it, with documents of three words or more."""
    return TypeAdapter(settings.TextCorpusSettings).validate_python({"min_length": 3} | keys)


def read(**keys: object) -> list[str]:
    return list(corpora.documents(corpus(**keys)))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `datasets` keeps its locks; it is not to ask the hub either."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


# --- files --------------------------------------------------------------------------------------


def write_table(path: Path, texts: list[str | None], column: str = "text") -> Path:
    table = pandas.DataFrame({"n": range(len(texts)), column: texts})
    match path.suffix:
        case ".jsonl":
            table.to_json(path, orient="records", lines=True)
        case ".csv":
            table.to_csv(path, index=False)
        case ".parquet":
            table.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("ending", data_sources.TABLES)
def test_tables(ending: str, tmp_path: Path) -> None:
    """Otherwise a user's table gives other documents than it holds, or depends on its format."""
    path = write_table(tmp_path / f"table{ending}", [*TEXTS[:2], None, *TEXTS[2:]], column="body")
    assert read(kind="table", path=path, column="body") == CLEAN
    assert read(kind="table", path=path, column="body", unit="paragraph") == PARAGRAPHS


def test_lines(tmp_path: Path) -> None:
    """Otherwise a plain text file is cut elsewhere than at its lines."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(" ".join(text.split()) for text in TEXTS), encoding="utf-8")
    assert read(kind="lines", path=path) == CLEAN


def test_local_data_set(tmp_path: Path) -> None:
    """Otherwise a folder that stands in for a hub data set, as on a cluster, does not read."""
    (tmp_path / "data").mkdir()
    write_table(tmp_path / "data" / "train.jsonl", TEXTS)
    write_table(tmp_path / "data" / "test.jsonl", TEXTS[:1])
    assert read(kind="hub", id=str(tmp_path)) == CLEAN
    assert read(kind="hub", id=str(tmp_path), split="test") == CLEAN[:1]


def test_limit_and_shortest(tmp_path: Path) -> None:
    """Otherwise the limit counts documents that are left out, or a length is off by one."""
    path = tmp_path / "corpus.txt"
    path.write_text("one two\none two three\none\nfour five\nsix seven\n")
    assert read(kind="lines", path=path, min_length=2, limit=2) == ["one two", "one two three"]
    assert read(kind="lines", path=path, min_length=3) == ["one two three"]


# --- dumps --------------------------------------------------------------------------------------

PROSE = (
    "'''Anarchism''' is a [[political philosophy|philosophy]] of ''free'' [[society|societies]]"
    "{{cite book|title=A {{nested}} template}}, without rulers<ref>A footnote.</ref> &amp;lt; 5."
)
MARKUP = f"""{{{{Infobox
| name = Box
}}}}
{PROSE}

== A heading of several words ==
* A list item of several words
:An indented line of several words
{{| class="wikitable"
|-
| a short cell || another cell here
|}}
[[File:Map.png|thumb|left|The caption.]]
Its second paragraph has <math>x^2</math> words.
[[Category:Philosophy of everything there is]]
"""
ARTICLE = [
    "Anarchism is a philosophy of free societies, without rulers < 5.",
    "Its second paragraph has words.",
]


def page(text: str, namespace: int = 0, extra: str = "") -> str:
    text = text.replace("<", "&lt;")
    return (
        f"<page><title>A</title><ns>{namespace}</ns><id>1</id>{extra}"
        f'<revision><id>2</id><text xml:space="preserve">{text}</text></revision></page>'
    )


def dump(path: Path, *pages: str) -> Path:
    opening = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo/>'
    path.write_bytes(bz2.compress("\n".join([opening, *pages, "</mediawiki>"]).encode()))
    return path


def test_dump(tmp_path: Path) -> None:
    """Otherwise markup, tables, redirects or talk pages get into the topics of Wikipedia."""
    path = dump(
        tmp_path / "dump.xml.bz2",
        page(MARKUP),
        page(
            "#REDIRECT [[Another]]\n\nA remark on the redirect itself.",
            extra='<redirect title="B" />',
        ),
        page("A talk page with several words.", namespace=1),
        page("The last page has one paragraph."),
        page(""),
    )
    last = "The last page has one paragraph."
    assert read(kind="dump", path=path, min_length=5) == [*ARTICLE, last]
    first, second = read(kind="dump", path=path, unit="document")
    assert first.startswith(ARTICLE[0]) and first.endswith(ARTICLE[1]) and second == last
    assert not set("=*:|[]{}") & set(first) and "heading" not in first


def test_memory_does_not_grow_with_a_dump(tmp_path: Path) -> None:
    """Otherwise a user runs out of memory somewhere in the millions of pages of Wikipedia."""
    peaks = []
    for count in (1000, 8000):
        path = dump(tmp_path / "dump.xml.bz2", *[page("A page of few words.")] * count)
        tracemalloc.start()
        assert sum(1 for _ in corpora.documents(corpus(kind="dump", path=path))) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# --- packages -----------------------------------------------------------------------------------


def test_packaged_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise articles that the package has twice count twice, or its other columns are read."""
    table = pandas.DataFrame({"title": "A title", "text": [*TEXTS, None, TEXTS[0]]})
    table.to_csv(tmp_path / "news.zip", index=False, compression="zip")
    monkeypatch.setattr(assets, "find", lambda name: {"news": tmp_path / "news.zip"}[name])
    assert read(kind="packaged", package="news", unit="document") == CLEAN


def test_packaged_wikipedia() -> None:
    """Otherwise the default corpus is not the Wikipedia paragraphs that the docs speak of."""
    found = list(corpora.documents(settings.PackagedCorpusSettings(kind="packaged")))
    # one count of lines with 40 words or more, lists left out, gives 3,919
    assert len(found) == pytest.approx(3919, rel=0.01)
    assert found[0].startswith("Anarchism is a political philosophy that advocates self-governed")
    for mark in ("''", "[[", "{{", "|", "&nbsp;", "==", "  ", "\n", "<ref"):
        assert not [text for text in found if mark in text and "^`~" not in text]
    assert min(len(text.split()) for text in found) == 40


# --- what users get wrong -----------------------------------------------------------------------


def test_a_missing_column(tmp_path: Path) -> None:
    """Otherwise a misspelt column ends in a KeyError that names no file."""
    path = write_table(tmp_path / "table.csv", TEXTS)
    with pytest.raises(ValueError, match=r"table\.csv: no column body; there are n, text$"):
        read(kind="table", path=path, column="body")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.txt", b"caf\xe9 au lait here", "lines"),
        ("a.jsonl", b'{"text": "cut o', "table"),
        ("a.parquet", b"PAR1 and no more", "table"),
        ("a.bz2", b"no archive", "dump"),
        ("a.bz2", bz2.compress(page(MARKUP).encode() * 99)[:-20], "dump"),
        ("a.bz2", bz2.compress(b"<mediawiki><page>"), "dump"),
    ],
)
def test_unreadable_files(name: str, content: bytes, kind: str, tmp_path: Path) -> None:
    """Otherwise a damaged file ends in a reader's traceback, or passes as a shorter one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: .") as raised:
        read(kind=kind, path=tmp_path / name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["", "Too short.\nThis too.\n"])
def test_nothing_long_enough(content: str, tmp_path: Path) -> None:
    """Otherwise an empty corpus fails somewhere inside LDA."""
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=r"a\.txt: no document of 3 words or more"):
        read(kind="lines", path=tmp_path / "a.txt")


def test_a_hub_data_set_without_network() -> None:
    """Otherwise a job on an offline node does not say which data set it wanted."""
    with pytest.raises(ValueError, match="^some/set: "):
        read(kind="hub", id="some/set", revision="abc")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "lines", "path": "no/such.txt"}, "no/such.txt"),
        ({"kind": "table", "path": __file__}, f"path: {__file__}"),
        ({"kind": "hub", "id": "some/set"}, "revision: some/set"),
    ],
)
def test_configurations_that_cannot_work(keys: dict[str, str], message: str) -> None:
    """Otherwise the mistake shows only when a job runs."""
    with pytest.raises(ValidationError) as raised:
        corpus(**keys)
    assert message in str(raised.value)


# --- words --------------------------------------------------------------------------------------

ODD = "Don't STOP: naïve_ΣΊΣΥΦΟΣ, İstanbul'da 42nd x2y — \u0130\u0130b ½ Straße e\u0301clair"


@given(st.text(max_size=60) | st.text(alphabet="aİΣ1_'ß é\u0307", max_size=20))
def test_spans_are_the_dictionarys_words(text: str) -> None:
    """Otherwise words in a document are not found in the dictionary made from it."""
    found = words.spans(text)
    assert [word for word, _, _ in found] == words.tokens(text) == list(tokenize(text, lower=True))


@pytest.mark.parametrize("text", [ODD, *TEXTS])
def test_spans_point_at_the_words(text: str) -> None:
    """Otherwise a model's tokens are joined with the wrong words."""
    found = words.spans(text)
    for word, start, end in found:
        assert text[start:end].lower().startswith(word)
        assert len(text[start:end].lower()) - len(word) <= text[start:end].count("İ")
    assert [start for _, start, _ in found] == sorted(start for _, start, _ in found)


def test_spans_by_hand() -> None:
    """Otherwise places are off after a letter that becomes two in lower case."""
    assert words.spans("İb, It's") == [("i", 0, 1), ("b", 1, 2), ("it", 4, 6), ("s", 7, 8)]


def test_json_text_is_read_as_it_is(tmp_path: Path) -> None:
    """Otherwise escapes in a JSON file change the text that models see."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": ODD}) + "\n")
    assert read(kind="table", path=path) == [" ".join(ODD.split())]
