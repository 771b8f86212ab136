"""Match a model's tokens with dictionary words by their character offsets in the text.

A token is a word if its offsets cover that word and nothing else but white space. This holds for
WordPiece, byte-level BPE and SentencePiece alike. Words split into several tokens are left out, as
in the released code of Li, Li & Risteski (ICML 2023).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from tokenizers import Encoding
from transformers import PreTrainedTokenizerFast

from scripts.anatomy.text.words import spans

WORD_CHUNK = 4096
SPACE = (
    "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark; at a text's start it has a letter's offset
)
CONTEXT = "of "  # precedes a word to look up: many tokenizers mark a text's first


@dataclass(frozen=True)
class WordTokens:
    """The tokens of a document, and the dictionary words among them.

    Attributes:
        tokens: Token ids, special ones included, cut to the maximal length.
        words: The number of the dictionary word at each token; -1 for none.
        split: Number of dictionary words in the text that are split into pieces or unknown.
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
    """Return the tokens of documents, at most `max_length` each, with the dictionary words."""
    number = {word: index for index, word in enumerate(dictionary)}
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, padding=False)
    return [
        _reading(text, encoded[index], number, tokenizer.unk_token_id)
        for index, text in enumerate(texts)
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
        split=seen - sum(word >= 0 for word in numbers),
        cut=bool(encoding.overflowing),
    )


def statistics(readings: Sequence[WordTokens]) -> dict[str, float]:
    """Return the numbers of documents, of those cut, of tokens and words, and the split share."""
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
    """Return the word that each token is as a whole, or None."""
    parts = [encoding, *encoding.overflowing]  # overflowing: beyond the maximal length
    offsets = [
        _stripped(text, *of_token)
        for part in parts
        for of_token in zip(part.tokens, part.offsets, strict=True)
    ]
    # the bytes of one character can be in several tokens, each with the whole character's offsets
    tokens_at = Counter(position for start, end in offsets for position in range(start, end))
    at = {(start, end): word for word, start, end in spans(text)}
    return [
        at.get((start, end))
        if token != unknown and all(tokens_at[position] == 1 for position in range(start, end))
        else None
        for token, (start, end) in zip(encoding.ids, offsets, strict=False)
    ]


def _stripped(text: str, token: str, offset: tuple[int, int]) -> tuple[int, int]:
    """Return a token's character offsets without the white space around it."""
    start, end = offset
    if token == SPACE:
        return end, end
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def token_of_words(
    words: Sequence[str], tokenizer: PreTrainedTokenizerFast
) -> Int[np.ndarray, "words"]:
    """Return the token of each word after another word; -1 if it is split into pieces."""
    tokens = np.full(len(words), -1)
    for first in range(0, len(words), WORD_CHUNK):
        part = [CONTEXT + word for word in words[first : first + WORD_CHUNK]]
        encoded = tokenizer(part, add_special_tokens=False)
        for index, text in enumerate(part):
            whole = _words(text, encoded[index], tokenizer.unk_token_id)
            if whole[-1] == words[first + index]:
                tokens[first + index] = encoded[index].ids[-1]
    return tokens
