"""Pretrained models as tiny as can be, with tokenizers trained on the spot, and text for them."""

import csv
import json
import random
import string
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

TOPICS = (
    "horse sheep goat cattle barn farmer meadow hay stable tractor harvest field",
    "violin piano melody chorus tenor opera rhythm concert flute cello encore score",
    "planet comet orbit galaxy telescope nebula lunar eclipse meteor rocket crater star",
    "flour butter oven sugar dough recipe kitchen cinnamon pastry bake yeast cream",
)
FILLERS = "the of and in with over many some other every where then".split()
BERT_POSITIONS = 32
LABELS = {0: "animals", 1: "music"}


def documents(count: int = 240) -> list[str]:
    """Texts of 30 to 60 words, each about one of four topics: two words in three are its."""
    rng = random.Random(0)
    topics = [words.split() for words in TOPICS]
    return [
        " ".join(
            rng.choice(topics[number % 4] if rng.random() < 2 / 3 else FILLERS)
            for _ in range(rng.randint(30, 60))
        )
        for number in range(count)
    ]


def fill(model: PreTrainedModel) -> PreTrainedModel:
    """Weights large enough for attention that is far from uniform."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 2)
    return model.eval()


def word_pieces(texts: Iterable[str], tokens: int = 200) -> PreTrainedTokenizerFast:
    """BERT's kind of tokenizer: lower case, what goes on with a word is marked by ##."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(vocab_size=tokens, special_tokens=special, show_progress=False),
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    )  # fmt: skip


def byte_pairs(texts: Iterable[str], tokens: int = 600) -> PreTrainedTokenizerFast:
    """A decoder's kind of tokenizer: byte-level BPE, a space belongs to the word after it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=tokens, special_tokens=["<s>"], initial_alphabet=alphabet,
            show_progress=False,
        ),
    )  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", pad_token="<s>")


def save_inputs(folder: Path) -> None:
    """What the workflow's tests run on: an encoder, a decoder, and stories about four topics."""
    save_bert(folder / "encoder")
    save_llama(folder / "decoder")
    save_reader(folder / "reader")
    (folder / "stories.txt").write_text("\n".join(documents()) + "\n", encoding="utf-8")
    save_opinions(folder)
    save_adapter(folder / "adapter")


def save_opinions(folder: Path) -> None:
    """Stories about animals and music with a label each, some from one book, and words of one."""
    rows = [
        [text, LABELS[number % 4], f"book {number // 8}"]
        for number, text in enumerate(documents())
        if number % 4 in LABELS
    ]
    with (folder / "opinions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text", "label", "story"], *rows])
    (folder / "words.txt").write_text(TOPICS[0], encoding="utf-8")


def save_adapter(folder: Path, layer: int = 1) -> None:
    """A LoRA adapter for the decoder, of the files that peft writes."""
    folder.mkdir(parents=True)
    module = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
    generator = torch.Generator().manual_seed(0)
    factors = {
        f"{module}.lora_{side}.weight": torch.randn(shape, generator=generator)
        for side, shape in (("A", (2, 16)), ("B", (16, 2)))
    }
    save_file(factors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "decoder"}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_bert(folder: Path) -> None:
    """An encoder that is shorter than the texts."""
    tokenizer = word_pieces(documents())
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=BERT_POSITIONS,
    )  # fmt: skip
    _save(config, tokenizer, folder)


def save_reader(folder: Path, positions: int = 64) -> None:
    """An encoder that knows the words of LEGO sentences, each as one token."""
    words = "val not 0 1 = ,".split()
    tokenizer = word_pieces([" ".join([*string.ascii_lowercase, *words])] * 2)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=positions,
    )  # fmt: skip
    _save(config, tokenizer, folder)


def save_llama(folder: Path) -> None:
    """A decoder with gated feed-forward layers, whose heads share keys."""
    tokenizer = byte_pairs(documents())
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=24, max_position_embeddings=128,
        tie_word_embeddings=False,
    )  # fmt: skip
    _save(config, tokenizer, folder, kind=AutoModelForCausalLM)


def save_mamba(folder: Path) -> None:
    """A model without attention."""
    tokenizer = byte_pairs(documents())
    config = MambaConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=2, state_size=2
    )
    _save(config, tokenizer, folder)


def _save(
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    kind: type = AutoModel,
) -> None:
    torch.manual_seed(0)
    fill(kind.from_config(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
