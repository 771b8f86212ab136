"""Which dictionary word a model's token is: by its place in the text, exactly.

A fast tokenizer says which characters a token stands for. A token is a word if it stands for
that word and nothing else but white space, whatever the tokenizer's marks for pieces and spaces
are (WordPiece, byte-level BPE, SentencePiece). Words that fall into several pieces are left out,
as in the released code of Li, Li & Risteski (ICML 2023).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from tokenizers import Encoding
from transformers import PreTrainedTokenizerFast

from scripts.anatomy.text.words import spans

WORDS_AT_ONCE = 4096
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's; before a text it is on the first letter
CONTEXT = "of "  # a word is looked up after another, since many tokenizers mark a text's first


@dataclass(frozen=True)
class WordTokens:
    """How a model reads a document.

    Attributes:
        tokens: Token ids, special ones included, cut to what the model is given.
        words: The number of the dictionary word that a token is; -1 for all else.
        split: Occurrences of dictionary words that are no token: in several pieces, or unknown.
        cut: Whether the document was longer.
    """

    tokens: Int[np.ndarray, "positions"]
    words: Int[np.ndarray, "positions"]
    split: int
    cut: bool


def read(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerFast,
    dictionary: Sequence[str],
    *,
    max_length: int,
) -> list[WordTokens]:
    """Tokenize documents, cut to `longest` tokens, and find the dictionary words among them."""
    number = {word: place for place, word in enumerate(dictionary)}
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, padding=False)
    return [
        _reading(text, encoded[place], number, tokenizer.unk_token_id)
        for place, text in enumerate(texts)
    ]


def _reading(
    text: str, encoding: Encoding, number: Mapping[str, int], unknown: int | None
) -> WordTokens:
    whole = _words(text, encoding, unknown)
    numbers = [-1 if word is None else number.get(word, -1) for word in whole]
    end = max((stop for _, stop in encoding.offsets), default=0)
    seen = sum(word in number for word, _, stop in spans(text) if stop <= end)
    return WordTokens(
        np.array(encoding.ids, dtype=np.int64),
        np.array(numbers, dtype=np.int64),
        split=seen - sum(place >= 0 for place in numbers),
        cut=bool(encoding.overflowing),
    )


def statistics(readings: Sequence[WordTokens]) -> dict[str, float]:
    """How many documents and tokens were read, what was cut, and the share of words left out."""
    whole = sum(int((reading.words >= 0).sum()) for reading in readings)
    split = sum(reading.split for reading in readings)
    return {
        "documents": len(readings),
        "documents_cut": sum(reading.cut for reading in readings),
        "tokens": sum(len(reading.tokens) for reading in readings),
        "words": whole + split,
        "split_share": split / max(whole + split, 1),
    }


def _words(text: str, encoding: Encoding, unknown: int | None) -> list[str | None]:
    """The word that each token is as a whole, or None."""
    parts = [encoding, *encoding.overflowing]  # what is read, and what is cut off
    places = [
        _place(text, *of_token)
        for part in parts
        for of_token in zip(part.tokens, part.offsets, strict=True)
    ]
    # the bytes of a character can be in several tokens, and each of them has its whole place
    tokens_at = Counter(place for start, end in places for place in range(start, end))
    at = {(start, end): word for word, start, end in spans(text)}
    return [
        at.get((start, end))
        if token != unknown and all(tokens_at[place] == 1 for place in range(start, end))
        else None
        for token, (start, end) in zip(encoding.ids, places, strict=False)
    ]


def _place(text: str, token: str, offset: tuple[int, int]) -> tuple[int, int]:
    """Where in a text a token stands, without the white space around it."""
    start, end = offset
    if token == SPACE:
        return end, end
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def token_of_words(
    words: Sequence[str], tokenizer: PreTrainedTokenizerFast
) -> Int[np.ndarray, "words"]:
    """The token that each word is after another word; -1 if it is split into pieces."""
    tokens = np.full(len(words), -1)
    for first in range(0, len(words), WORDS_AT_ONCE):
        part = [CONTEXT + word for word in words[first : first + WORDS_AT_ONCE]]
        encoded = tokenizer(part, add_special_tokens=False)
        for place, text in enumerate(part):
            whole = _words(text, encoded[place], tokenizer.unk_token_id)
            if whole[-1] == words[first + place]:
                tokens[first + place] = encoded[place].ids[-1]
    return tokens
