"""Words of natural text, as gensim's tokenizer finds them, and where they stand in it."""

from gensim.utils import PAT_ALPHABETIC, tokenize


def tokens(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters, as `gensim.utils.tokenize` has them."""
    return list(tokenize(text, lower=True))


def spans(text: str) -> list[tuple[str, int, int]]:
    """The same words, each with the place of its first character and the place after its last.

    Places are those in `text` as it is, so that a model's tokens, whose character offsets refer
    to the same text, can be joined with the words.
    """
    lowered = text.lower()
    places = range(len(text))
    if len(lowered) != len(text):  # a capital İ becomes two characters
        places = [place for place, letter in enumerate(text) for _ in letter.lower()]
    return [
        (found.group(), places[found.start()], places[found.end() - 1] + 1)
        for found in PAT_ALPHABETIC.finditer(lowered)
    ]
