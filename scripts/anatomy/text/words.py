"""Split natural text into words as gensim's tokenizer does, with character offsets."""

from gensim.utils import PAT_ALPHABETIC, tokenize


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case, as `gensim.utils.tokenize` does."""
    return list(tokenize(text, lower=True))


def spans(text: str) -> list[tuple[str, int, int]]:
    """Return the words of a text with their start and end offsets.

    Offsets refer to `text` before lower-casing, as those of a tokenizer do.
    """
    lowered = text.lower()
    positions = range(len(text))
    if len(lowered) != len(text):  # a capital İ becomes two characters
        positions = [index for index, letter in enumerate(text) for _ in letter.lower()]
    return [
        (match.group(), positions[match.start()], positions[match.end() - 1] + 1)
        for match in PAT_ALPHABETIC.finditer(lowered)
    ]
