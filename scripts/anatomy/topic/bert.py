"""Masked language modelling with the transformers library's BERT, and its attention maps.

The architecture is the full one: positions, token types, residual connections, LayerNorm,
feed-forward layer and prediction head. Only attention or word embeddings can be frozen, for the
compensation experiment.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from scripts.anatomy.topic.corpora import PAD
from scripts.anatomy.topic.masking import MaskedBatch
from scripts.anatomy.topic.settings import BertModelSettings


class TopicBert(nn.Module):
    """BERT for masked language modelling, read out at the selected positions only."""

    def __init__(
        self, d_vocab: int, max_length: int, settings: BertModelSettings, seed: int
    ) -> None:
        super().__init__()
        d_model = settings.d_model or d_vocab
        config = BertConfig(
            vocab_size=d_vocab,
            hidden_size=d_model,
            num_hidden_layers=settings.n_layers,
            num_attention_heads=settings.n_heads,
            intermediate_size=settings.d_ff,
            max_position_embeddings=max_length,
            pad_token_id=PAD,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            tie_word_embeddings=settings.embedding == "trained",
        )
        with torch.random.fork_rng(devices=[]):  # the library draws from the global generator
            torch.manual_seed(seed)
            self.lm = BertForMaskedLM(config)
        if settings.embedding == "one_hot":
            self._freeze_embeddings()
        if settings.attention == "uniform":
            self._freeze_attention()

    def _freeze_embeddings(self) -> None:
        embeddings = self.lm.bert.embeddings.word_embeddings.weight
        with torch.no_grad():
            embeddings.copy_(torch.eye(*embeddings.shape))
        embeddings.requires_grad_(False)

    def _freeze_attention(self) -> None:
        for layer in self.lm.bert.encoder.layer:
            for projection in (layer.attention.self.query, layer.attention.self.key):
                for parameter in projection.parameters():
                    nn.init.zeros_(parameter).requires_grad_(False)

    def forward(self, batch: MaskedBatch) -> Float[Tensor, "selected d_vocab"]:
        """Return the logits at the selected positions."""
        hidden = self.lm.bert(batch.observed, attention_mask=batch.attended.long())
        return self.lm.cls(hidden.last_hidden_state[batch.selected])

    def distinct(
        self, batch: MaskedBatch
    ) -> tuple[Float[Tensor, "selected d_vocab"], Int64[Tensor, "selected"]]:
        """Return the predictions and each selected position's row in them, one of its own."""
        output = self(batch)
        return output, torch.arange(len(output), device=output.device)

    @torch.inference_mode()
    def attention(
        self, tokens: Integer[np.ndarray, "docs max_length"], *, chunk: int = 50
    ) -> Float[np.ndarray, "layers docs heads queries keys"]:
        """Return the attention weights on whole documents without masking."""
        self.lm.set_attn_implementation("eager")  # the fused one does not return its weights
        maps = []
        for part in torch.from_numpy(tokens.astype(np.int64)).split(chunk):
            mask = (part != PAD).long()
            output = self.lm.bert(part, attention_mask=mask, output_attentions=True)
            maps.append(torch.stack(output.attentions).numpy())
        return np.concatenate(maps, axis=1)

    def word_embeddings(self) -> Float[np.ndarray, "d_model d_vocab"]:
        """Return W_E as the theorems write it, with a column for each token."""
        return self.lm.bert.embeddings.word_embeddings.weight.detach().numpy().T


def save_for_transformers(
    weights: Mapping[str, Tensor], settings: BertModelSettings, folder: Path
) -> None:
    """Write a trained TopicBert as a folder of the transformers library.

    The tokenizer splits at spaces and knows the special tokens and the words word0, word1, ...
    """
    d_vocab = len(weights["lm.bert.embeddings.word_embeddings.weight"])
    max_length = len(weights["lm.bert.embeddings.position_embeddings.weight"])
    model = TopicBert(d_vocab, max_length, settings, seed=0)
    model.load_state_dict(weights)
    model.lm.save_pretrained(folder)
    names = ["[PAD]", "[MASK]", "[START]", "[END]"]
    names += [f"word{number}" for number in range(d_vocab - len(names))]
    tokenizer = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        mask_token="[MASK]",
        bos_token="[START]",
        eos_token="[END]",
    ).save_pretrained(folder)
