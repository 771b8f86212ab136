"""A tokenizer's vocabulary as people read it: strings, the start of a word, and filters.

The three ways in which tokenizers say where a word starts (WordPiece's ## before what goes on, the
spaces of byte-level BPE and of SentencePiece before what starts) become one. The paper's code marks
every token without a leading space with #, which collides with WordPiece's ## and takes the first
word of a text for the rest of one; here the mark is MARK, and a capitalised piece starts a word.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Int

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

MARK = "·"  # before a piece that goes on with a word
GOES_ON, BYTE_SPACE, SPACE = "##", "Ġ", "▁"
UNUSED = re.compile(r"\[unused\d+\]")  # BERT's spare tokens, which its tokenizer calls normal
PROFANITY = Path(__file__).with_name("profanity.txt")

Keep = Literal["all", "ascii", "alphanumeric", "whole_word"]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, one for each row of its embedding.

    Attributes:
        texts: What each stands for, without any mark of a space; empty where there is no token.
        starts_word: Whether it begins a word, or is no part of one.
        readable: Whether it is text; not for special tokens and for rows that have no token.
    """

    texts: tuple[str, ...]
    starts_word: Bool[np.ndarray, "d_vocab"]
    readable: Bool[np.ndarray, "d_vocab"]


def read_vocabulary(tokenizer: PreTrainedTokenizerBase, d_vocab: int) -> Vocabulary:
    """Return the vocabulary of a tokenizer for an embedding with `d_vocab` rows.

    Rows beyond the tokenizer's last token are not readable. A tokenizer with more tokens than
    rows belongs to another model: ValueError.
    """
    ids = tokenizer.get_vocab()
    length = max(ids.values()) + 1
    if length > d_vocab:
        raise ValueError(
            f"the tokenizer has {length} tokens, {length - d_vocab} more than "
            f"the {d_vocab} rows of the embedding: they do not belong together"
        )
    pieces = [""] * d_vocab
    for piece, number in ids.items():
        pieces[number] = piece
    added = tokenizer.added_tokens_decoder.items()
    special = {*tokenizer.all_special_ids, *(number for number, token in added if token.special)}
    convention = _convention(ids)
    read = [_read_piece(piece, convention) for piece in pieces]
    return Vocabulary(
        texts=tuple(text for text, _ in read),
        starts_word=np.array([starts for _, starts in read]),
        readable=np.array(
            [bool(p) and i not in special and not UNUSED.match(p) for i, p in enumerate(pieces)]
        ),
    )


def cut(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[Int[Tensor, "positions"]]:
    """Texts as token ids with the tokenizer's special tokens, at most `longest` of each."""
    import torch  # here, since pages and search only read strings

    encoded = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
    return [torch.tensor(ids, dtype=torch.long) for ids in encoded]


def _convention(pieces: Collection[str]) -> str:
    """Return the mark of word starts that most pieces have; empty if every piece is a word."""
    counts = {m: sum(p.startswith(m) for p in pieces) for m in (GOES_ON, BYTE_SPACE, SPACE)}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else ""


def _read_piece(piece: str, convention: str) -> tuple[str, bool]:
    """Return the text of a piece, and whether it starts a word or is no part of one."""
    marked = bool(convention) and piece.startswith(convention)
    text = piece.removeprefix(convention)
    if convention == BYTE_SPACE:
        text = _from_bytes(text)
    if convention in ("", GOES_ON):
        return text, not marked
    capitalised = text[:1].isupper() and text[1:2].islower()  # as after a new line
    return text.replace(SPACE, " "), marked or capitalised or not text[:1].isalnum()


def _from_bytes(text: str) -> str:
    """Return the text that byte-level BPE spells with one printable character for each byte."""
    try:
        return bytes(map(_bytes().__getitem__, text)).decode(errors="replace")
    except KeyError:  # a token that was added as plain text
        return text


@cache
def _bytes() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the rest for what follows 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    codes = [*printable, *range(256, 256 + len(rest))]
    return {chr(code): byte for code, byte in zip(codes, [*printable, *rest], strict=True)}


def labels(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens for display: MARK before a continued word, white space made visible.

    Two tokens may share a label, as a word with and without a space before it.
    """
    return [
        _visible(text) if starts else MARK + _visible(text)
        for text, starts in zip(vocabulary.texts, vocabulary.starts_word, strict=True)
    ]


def _visible(text: str) -> str:
    printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return printable if printable.strip() else "␣" * max(1, len(printable))


def token_filter(
    vocabulary: Vocabulary, *, keep: Keep = "all", words: Collection[str] | None = None
) -> Bool[np.ndarray, "d_vocab"]:
    """Return which tokens are readable, of a kind and, if `words` are given, among these.

    Kinds: `ascii`; `alphanumeric`; `whole_word`, which starts a word, is alphabetic and has two
    letters or more. `words` are compared without regard to case.
    """
    tests = {
        "all": lambda text: True,
        "ascii": lambda text: text != "" and text.isascii(),
        "alphanumeric": str.isalnum,
        "whole_word": lambda text: text.isalpha() and len(text.lower()) >= 2,
    }
    kept = vocabulary.readable & np.array([tests[keep](text) for text in vocabulary.texts])
    if keep == "whole_word":
        kept &= vocabulary.starts_word
    if words is not None:
        known = {word.lower() for word in words}
        kept &= np.array([text.lower() in known for text in vocabulary.texts])
    return kept


def masked(text: str) -> str:
    """Return the text with the words in PROFANITY reduced to their first letter and stars."""
    return _profanity().sub(lambda match: match[0][0] + "*" * (len(match[0]) - 1), text)


@cache
def _profanity() -> re.Pattern[str]:
    """Return a pattern for the words in PROFANITY, whose entries end in - if anything may follow.

    The file is in ROT13, so that nobody reads it by accident.
    """
    stems = codecs.decode(PROFANITY.read_text(encoding="ascii"), "rot13").split()
    words = "|".join(re.sub("-$", r"\\w*", stem) for stem in stems)
    return re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
