"""Tokenizers for pretraining: WordPiece trained on the corpus, or that of a pretrained model.

A tokenizer is stored as two files that the transformers library can also read: tokenizer.json, and
tokenizer_config.json, which has the names of its special tokens.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from scripts.anatomy import artifacts

SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


class Special(NamedTuple):
    """Ids of the special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def train(
    texts: Callable[[], Iterable[str]], *, size: int, alphabet: int, lowercase: bool
) -> Tokenizer:
    """Train a WordPiece tokenizer like BERT's; it is the same on every machine and in every run.

    Args:
        texts: Returns the texts; called twice, for their letters and for their words.
        size: Number of tokens with the five special ones; fewer if the texts have fewer pieces.
        alphabet: Maximum number of letters; a word with a rarer one becomes [UNK].
        lowercase: Whether case and accents are dropped.

    Raises:
        ValueError: The vocabulary is too small for the letters.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    letters = _letters(map(normalizer.normalize_str, texts()), alphabet)
    # The library numbers pieces in the order of a hash table, which varies from run to run, and
    # breaks ties between merges by these numbers. Pieces given in advance keep their numbers.
    pieces = [*SPECIAL.values(), *letters, *(f"##{letter}" for letter in letters)]
    if len(pieces) >= size:
        raise ValueError(
            f"d_vocab: expected more than the {len(pieces)} letters and special tokens, got {size}"
        )
    made = _word_pieces(dict.fromkeys(pieces, 0), normalizer)
    rare = re.compile(rf"\S*[^\s{re.escape(''.join(letters))}]\S*")
    made.train_from_iterator(
        (rare.sub(" ", normalizer.normalize_str(text)) for text in texts()),
        trainers.WordPieceTrainer(vocab_size=size, special_tokens=pieces, show_progress=False),
    )
    others = sorted(made.get_vocab().keys() - set(pieces))
    vocabulary = {piece: number for number, piece in enumerate([*pieces, *others])}
    whole = _word_pieces(vocabulary, normalizer)
    whole.add_special_tokens([*SPECIAL.values()])
    return whole


def _letters(texts: Iterable[str], count: int) -> list[str]:
    """Return the most frequent letters, sorted."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ordered = sorted(counts, key=lambda letter: (-counts[letter], letter))
    return sorted([letter for letter in ordered if not letter.isspace()][:count])


def _word_pieces(vocabulary: Mapping[str, int], normalizer: normalizers.Normalizer) -> Tokenizer:
    made = Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL["unk"]))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def of_model(folder: Path, rows: int) -> tuple[Tokenizer, dict[str, str]]:
    """Return the tokenizer of a stored model, and the names of its special tokens.

    Raises:
        ValueError: The model has no fast tokenizer, or its tokenizer has more tokens than `rows` or
            lacks a special token that masking needs.
    """
    from scripts.anatomy.models import loading  # here, since it imports torch

    loaded = loading.tokenizer(folder, rows)
    names = {kind: getattr(loaded, f"{kind}_token") for kind in SPECIAL}
    missing = [kind for kind, name in names.items() if name is None]
    if missing:
        raise ValueError(f"its tokenizer has no {missing[0]} token")
    return loaded.backend_tokenizer, names


def save(tokenizer: Tokenizer, names: Mapping[str, str], files: tuple[Path, Path]) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    with artifacts.writing(files[0]) as path:
        tokenizer.save(str(path))
    named = {f"{kind}_token": name for kind, name in names.items()}
    artifacts.write_json(files[1], {"tokenizer_class": "PreTrainedTokenizerFast"} | named)


def load(files: tuple[Path, Path]) -> tuple[Tokenizer, Special]:
    """Load the files of `save`: the tokenizer, without truncation or padding, and its special ids.

    Raises:
        UnreadableArtifact: A file is missing or damaged, or the files are of two tokenizers.
    """
    with artifacts.reading(files[0], "a tokenizer"):
        tokenizer = Tokenizer.from_str(files[0].read_text("utf-8"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    names = artifacts.read_json(files[1])
    with artifacts.reading(files[1], "names of the special tokens"):
        ids = {kind: tokenizer.token_to_id(names[f"{kind}_token"]) for kind in SPECIAL}
        if None in ids.values():
            raise ValueError("the tokenizer does not have all of them")
    return tokenizer, Special(**ids)
