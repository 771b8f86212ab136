"""Words of sentiment: which tokens of a vocabulary are among them."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from scripts.anatomy import assets
from scripts.anatomy.embedding.tokens import Vocabulary


def words(path: Path | None = None) -> set[str]:
    """Return the words of a file, or of the VADER lexicon, in lower case.

    VADER's entries that are no words (emoticons) are left out. People rated them one by one,
    without any film review. Raises ValueError for a file without words, or if the package is
    missing.
    """
    if path is None:
        lines = assets.find("vader").read_text("utf-8").splitlines()
        words = {line.split("\t")[0].lower() for line in lines}
        return {word for word in words if word.isalpha()}
    return {word.lower() for word in listed(path)}


def listed(path: Path) -> list[str]:
    """Return the words of a file, separated by white space. Raises ValueError if there is none."""
    try:
        words = path.read_text("utf-8-sig").split()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if not words:
        raise ValueError(f"{path} has no words")
    return words


def among(vocabulary: Vocabulary, lexicon: Collection[str]) -> Bool[np.ndarray, "d_vocab"]:
    """Return which tokens are words of the lexicon."""
    return np.array([text.lower() in lexicon for text in vocabulary.texts])
