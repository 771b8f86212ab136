"""A model's token is a dictionary word exactly if it stands for that word's characters."""

import unicodedata
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from scripts.anatomy import assets
from scripts.anatomy.assets import PackageMissing
from scripts.anatomy.text import word_tokens
from scripts.anatomy.text.word_tokens import WordTokens, read, token_of_words
from scripts.anatomy.text.words import spans

# --- tokenizers of three families, trained on the spot ------------------------------------------

CORPUS = [
    "the cafe by the house of words, and the words of the house by the sea.",
    "attention to topics, topics of attention; the naive topic of coffee",
    "a 1 2 3 12 house houses wording café élan naïve éa aé 日本 日 한",
] * 4
SPACE = "▁"  # SentencePiece's
BYTES = pre_tokenizers.ByteLevel.alphabet()


def word_piece() -> PreTrainedTokenizerFast:
    """BERT's kind: lower case, accents stripped, pieces marked by ##."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


def byte_level(*, prefix: bool) -> PreTrainedTokenizerFast:
    """GPT-2's and RoBERTa's kind: pieces are of bytes, a space belongs to the word after it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=310, special_tokens=["<s>", "</s>"], initial_alphabet=BYTES, show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), add_prefix_space=prefix
    )
    return PreTrainedTokenizerFast(tokenizer_object=made)


def unigram() -> PreTrainedTokenizerFast:
    """T5's and ALBERT's kind: the likeliest pieces, spaces marked; other characters unknown."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama's kind: nothing is split beforehand, and unknown characters become bytes."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=special, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


TOKENIZERS = {
    "word_piece": word_piece(),
    "byte_level": byte_level(prefix=False),
    "byte_level_prefix": byte_level(prefix=True),
    "unigram": unigram(),
    "byte_fallback": byte_fallback(),
}
tokenizers = pytest.mark.parametrize("kind", TOKENIZERS)
split_by_words = pytest.mark.parametrize("kind", [k for k in TOKENIZERS if k != "byte_fallback"])


# --- what each token covers, worked out without the tokenizer's offsets ---------------------------

Covered = Iterator[tuple[int, int] | None]  # characters of the text, or None for none in whole


PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
REST = [byte for byte in range(256) if byte not in PRINTABLE]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + place): byte for place, byte in enumerate(REST)
}  # as GPT-2's tokenizer writes bytes


def of_bytes(text: str, tokens: list[str]) -> Covered:
    """Lay the bytes of the tokens end to end over the bytes of the text."""
    pieces = [bytes(BYTE_OF[letter] for letter in token) for token in tokens]
    return _laid(text, pieces, prefix=" ")


def of_metaspace(text: str, tokens: list[str]) -> Covered:
    """The same where spaces are marked and single bytes spelt out."""
    pieces = [
        bytes([int(token[3:5], 16)]) if token.startswith("<0x") else token.encode()
        for token in tokens
    ]
    return _laid(text.replace(" ", SPACE), pieces, prefix=SPACE)


def _laid(text: str, pieces: list[bytes], *, prefix: str) -> Covered:
    """The characters that each piece stands for, if it is of whole ones, without white space."""
    whole = text.encode()
    if sum(map(len, pieces)) > len(whole):
        text, whole = prefix + text, (prefix + text).encode()
    else:
        prefix = ""
    assert b"".join(pieces) == whole
    place = 0
    for piece in pieces:
        before, place = place, place + len(piece)
        try:
            start = len(whole[:before].decode()) - len(prefix)
            covered = piece.decode().replace(SPACE, " ")
        except UnicodeDecodeError:
            yield None
            continue
        start += len(covered) - len(covered.lstrip())
        yield start, start + len(covered.strip())


def of_word_piece(text: str, tokens: list[str]) -> Covered:
    """Lay the pieces over the text's words as BERT cleans and cuts them, letter by letter."""
    rest = iter(tokens)
    for word in _bert_words(text):
        letters = [place for place, clean in word for _ in clean]
        spelt = "".join(clean for _, clean in word)
        while letters:
            token = next(rest)
            size = len(letters) if token == "[UNK]" else len(token.removeprefix("##"))
            assert token == "[UNK]" or spelt.startswith(token.removeprefix("##"))
            taken, letters, spelt = letters[:size], letters[size:], spelt[size:]
            # a syllable of Hangul is taken apart into letters, which can be several pieces
            parts = sum(len(clean) for place, clean in word if taken[0] <= place <= taken[-1])
            yield (taken[0], taken[-1] + 1) if parts == size else None
    assert next(rest, None) is None


def _bert_words(text: str) -> list[list[tuple[int, str]]]:
    """Runs of letters between spaces and punctuation, each with its place and what is read."""
    words: list[list[tuple[int, str]]] = [[]]
    for place, letter in enumerate(text):
        clean = "".join(
            part
            for part in unicodedata.normalize("NFD", letter)
            if unicodedata.category(part) != "Mn"
        ).lower()
        alone = unicodedata.category(letter)[0] == "P" or letter in "$+<=>^`|~"
        alone |= 0x4E00 <= ord(letter) <= 0x9FFF
        if letter.isspace():
            words.append([])
        elif alone:
            words += [[(place, clean)], []]
        elif clean:
            words[-1].append((place, clean))
    return [word for word in words if word]


COVERED: dict[str, Callable[[str, list[str]], Covered]] = {
    "word_piece": of_word_piece,
    "byte_level": of_bytes,
    "byte_level_prefix": of_bytes,
    "unigram": of_metaspace,
    "byte_fallback": of_metaspace,
}


def by_hand(kind: str, text: str) -> list[str | None]:
    """The word that each token stands for, special ones included."""
    tokenizer = TOKENIZERS[kind]
    encoding = tokenizer(text)[0]
    special = encoding.special_tokens_mask
    content = [token for token, s in zip(encoding.tokens, special, strict=True) if not s]
    covered = list(COVERED[kind](text, content))
    at = {(start, end): word for word, start, end in spans(text)}
    found = iter([None if c is None else at.get(c) for c in covered])
    words = [None if s else next(found) for s in special]
    unknown = tokenizer.unk_token_id
    return [None if i == unknown else w for i, w in zip(encoding.ids, words, strict=True)]


# --- reading ------------------------------------------------------------------------------------

WORDS = sorted({word for text in CORPUS for word, _, _ in spans(text)})
PIECES = st.sampled_from(
    [
        *WORDS,
        *("The", "HOUSE", "Café", "zèbre", "Zebra", "é", "éa", "aé", "ĩa", "q"),
        *("日", "日本語", "한국", "☃", "İstanbul", "straße"),
        *("12", "3d", "4th", "2024", ".", ",", "'", "-", "_", "!", "(", "don't", "😀"),
    ]
)
SEPARATORS = st.sampled_from([" ", " ", "  ", "", "\n", "\t "])
TEXTS = st.lists(st.tuples(PIECES, SEPARATORS), max_size=12).map(
    lambda pairs: "".join(piece + separator for piece, separator in pairs)
) | st.text("abé日 .1", max_size=20)


def words_of(reading: WordTokens, dictionary: list[str]) -> list[str | None]:
    return [None if number < 0 else dictionary[number] for number in reading.words]


@tokenizers
@given(text=TEXTS)
@hypothesis_settings(max_examples=150)
def test_a_token_is_a_word_if_and_only_if_it_covers_it(kind: str, text: str) -> None:
    """Attention would be counted between pieces of words, or words would be missed."""
    dictionary = sorted({word for word, _, _ in spans(text)})
    (reading,) = read([text], TOKENIZERS[kind], dictionary, max_length=10_000)
    expected = by_hand(kind, text)
    assert words_of(reading, dictionary) == expected
    assert reading.tokens.tolist() == TOKENIZERS[kind](text).input_ids
    assert reading.split == len(spans(text)) - sum(word is not None for word in expected)
    assert not reading.cut


@tokenizers
@given(text=TEXTS, max_length=st.integers(3, 12))
@hypothesis_settings(max_examples=60)
def test_a_cut_document_is_read_as_the_beginning_of_the_whole(
    kind: str, text: str, max_length: int
) -> None:
    """At the cut the first piece of a word would be taken for it; cuts would go unreported."""
    dictionary = sorted({word for word, _, _ in spans(text)})
    tokenizer = TOKENIZERS[kind]
    (whole,) = read([text], tokenizer, dictionary, max_length=10_000)
    (cut,) = read([text], tokenizer, dictionary, max_length=max_length)
    specials = tokenizer.num_special_tokens_to_add()
    kept = max_length - (specials > 0)  # the last one, if any, is put at the end again
    assert len(cut.tokens) == min(max_length, len(whole.tokens))
    assert cut.tokens[:kept].tolist() == whole.tokens[:kept].tolist()
    assert cut.words[:kept].tolist() == whole.words[: min(kept, len(cut.words))].tolist()
    assert cut.cut is (len(whole.tokens) > max_length)
    assert 0 <= cut.split <= whole.split or cut.cut


def test_words_behind_the_cut_are_not_counted_as_split() -> None:
    """The share of words left out would be that of text that no model has seen."""
    text = "the zzqzz house " * 30  # zzqzz is unknown
    (reading,) = read([text], TOKENIZERS["word_piece"], ["house", "the", "zzqzz"], max_length=8)
    assert reading.words.tolist() == [-1, 1, -1, 0, 1, -1, 0, -1]
    assert reading.split == 2


@tokenizers
def test_words_outside_the_dictionary_are_not_counted(kind: str) -> None:
    """The share of split words would be of words that the study does not look at."""
    text = "The house of zzqzz and the words of the house"
    (reading,) = read([text], TOKENIZERS[kind], ["zzqzz", "house", "sea"], max_length=100)
    whole = by_hand(kind, text).count("house")
    assert reading.words.tolist().count(1) == whole > 0
    assert set(reading.words.tolist()) == {-1, 1}
    assert reading.split == 3 - whole  # zzqzz, and what is left of two houses


def test_documents_read_together_are_read_as_if_alone() -> None:
    """Padding, or the numbers of another document, would get into one."""
    texts = ["the house", "", "of café, by the sea; words of attention", "☃"]
    for tokenizer in TOKENIZERS.values():
        together = read(texts, tokenizer, WORDS, max_length=50)
        for text, reading in zip(texts, together, strict=True):
            (alone,) = read([text], tokenizer, WORDS, max_length=50)
            for name in ("tokens", "words"):
                np.testing.assert_array_equal(getattr(reading, name), getattr(alone, name))
                assert getattr(reading, name).dtype == np.int64


# --- corners ------------------------------------------------------------------------------------


def hand_made(merges: list[tuple[str, str]]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that joins only these."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(BYTES))}
    for one, other in merges:
        vocabulary[one + other] = len(vocabulary)
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_the_bytes_of_one_character_are_no_word() -> None:
    """A third of a Chinese character would be taken for the word, three times."""
    (reading,) = read(["日"], hand_made([]), ["日"], max_length=10)
    assert reading.words.tolist() == [-1, -1, -1]
    assert reading.split == 1
    (cut,) = read(["日"], hand_made([]), ["日"], max_length=1)  # the others are cut off
    assert cut.words.tolist() == [-1]
    assert cut.cut


def test_a_token_that_has_part_of_a_characters_bytes_is_no_word() -> None:
    """The half of a letter, with the next letter, has the place of the whole word."""
    one, other = "Ã", "©"  # the two bytes of é
    (reading,) = read(["éa"], hand_made([(other, "a")]), ["éa"], max_length=10)
    assert reading.words.tolist() == [-1, -1]
    merges = [(other, "a"), (one, other + "a")]
    (reading,) = read(["éa"], hand_made(merges), ["éa"], max_length=10)
    assert reading.words.tolist() == [0]


def test_unknown_words_never_count_whatever_their_place() -> None:
    """Every rare word would be the same token, and attention to it that to all of them."""
    text = "☃☃ house ЖЖ words"
    for kind in ("word_piece", "unigram"):
        tokenizer = TOKENIZERS[kind]
        (reading,) = read([text], tokenizer, ["house", "жж", "words"], max_length=50)
        assert tokenizer.unk_token_id in reading.tokens
        assert sorted(set(reading.words.tolist())) == [-1, 0, 2]
        assert reading.split == 1
        assert token_of_words(["жж"], tokenizer).tolist() == [-1]


def test_a_text_that_writes_special_tokens_out_has_no_words_in_them() -> None:
    """A token such as </s> in a text would be counted as the word s."""
    (reading,) = read(
        ["the </s> house"], TOKENIZERS["byte_level"], ["the", "s", "house"], max_length=50
    )
    assert reading.tokens.tolist().count(1) == 2
    assert (reading.words == 1).sum() == 0


def test_statistics_count_what_was_read() -> None:
    """The report would say that more of the text was measured than was."""
    array = np.array
    readings = [
        WordTokens(array([1, 2, 3]), array([0, -1, 4]), split=1, cut=True),
        WordTokens(array([1, 2]), array([-1, -1]), split=0, cut=False),
    ]
    assert word_tokens.statistics(readings) == {
        **{"documents": 2, "documents_cut": 1, "tokens": 5, "words": 3, "split_share": 1 / 3}
    }
    assert word_tokens.statistics([])["split_share"] == 0


# --- a word's token -----------------------------------------------------------------------------


@split_by_words
def test_a_words_token_is_the_one_that_it_has_in_a_sentence(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embeddings would be those of a text's first words, which many models hold apart."""
    monkeypatch.setattr(word_tokens, "WORD_CHUNK", 7)
    tokenizer = TOKENIZERS[kind]
    words = [*WORDS, "zebra", "ж", "zèbre"]
    tokens = token_of_words(words, tokenizer)
    assert 5 < (tokens >= 0).sum() < len(words)
    for number, (word, token) in enumerate(zip(words, tokens.tolist(), strict=True)):
        (reading,) = read([f"by {word}, the"], tokenizer, words, max_length=50)
        assert reading.tokens[reading.words == number].tolist()[-1:] == [token] * (token >= 0), word


def test_words_at_the_start_of_a_text_have_tokens_of_their_own() -> None:
    """The test above would not see it if the tokenizer made no difference."""
    tokenizer = TOKENIZERS["byte_level"]
    (reading,) = read(["the house of the house"], tokenizer, ["the"], max_length=50)
    first, later = reading.tokens[reading.words == 0]
    assert first != later
    assert token_of_words(["the"], tokenizer).tolist() == [later]


def test_no_words_have_no_tokens() -> None:
    """A filter that leaves nothing would end in an index error."""
    assert token_of_words([], TOKENIZERS["word_piece"]).shape == (0,)


# --- a real tokenizer ---------------------------------------------------------------------------

PARAGRAPH = (
    "Naïve cafés in Zürich sell unbelievably good croissants while photosynthesis feeds "
    "Anarchism and abolitionists debated Aristotle for many long years before the Algorithm came"
)


def test_minilm_reads_a_paragraph_as_its_vocabulary_says() -> None:
    """The default study would measure other words than it says."""
    try:
        folder = assets.files("minilm")[1].parent
    except PackageMissing as error:
        pytest.skip(str(error))
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    words = [word.lower() for word in PARAGRAPH.split()]
    dictionary = sorted(set(words))
    (reading,) = read([PARAGRAPH], tokenizer, dictionary, max_length=128)
    vocabulary = tokenizer.get_vocab()
    bare = {
        word: "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
        for word in words
    }
    whole = [word for word in words if bare[word] in vocabulary]
    assert 15 < len(whole) < len(words)
    assert [word for word in words_of(reading, dictionary) if word] == whole
    assert reading.split == len(words) - len(whole)
    assert len(reading.tokens) < 60  # without the padding that its file asks for
    assert not reading.cut
    expected = [vocabulary[bare[w]] if bare[w] in vocabulary else -1 for w in dictionary]
    assert token_of_words(dictionary, tokenizer).tolist() == expected
    (cut,) = read([" ".join([PARAGRAPH] * 20)], tokenizer, dictionary, max_length=128)
    assert (len(cut.tokens), cut.tokens[-1], cut.cut) == (128, tokenizer.sep_token_id, True)
