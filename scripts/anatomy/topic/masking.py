"""Masking for the masked-language-model objective (Li, Li & Risteski 2023, section 3).

Each word is selected with probability p_m. A selected word stays as it is with probability p_c,
becomes a random token with p_r, and MASK otherwise (keys mask_prob, keep_prob and random_prob). The
loss is on selected words only.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from scripts.anatomy.topic.corpora import FIRST_WORD, MASK, PAD
from scripts.anatomy.topic.settings import TopicMaskingSettings


@dataclass(frozen=True)
class MaskedBatch:
    """Documents as the model sees them, and what it has to predict.

    Attributes:
        tokens: The true token ids.
        observed: The ids after masking.
        selected: Which positions are to be predicted.
        hidden: Whether selected positions are kept out of the attention, as in the released code.
    """

    tokens: Int64[Tensor, "docs max_length"]
    observed: Int64[Tensor, "docs max_length"]
    selected: Bool[Tensor, "docs max_length"]
    hidden: bool

    @property
    def attended(self) -> Bool[Tensor, "docs max_length"]:
        """Return which positions can be attended to."""
        present = self.tokens != PAD
        return present & ~self.selected if self.hidden else present

    @cached_property
    def _positions(self) -> tuple[Int64[Tensor, "selected"], Int64[Tensor, "selected"]]:
        """Return the document and the position of every selected word."""
        return self.selected.nonzero(as_tuple=True)

    @cached_property
    def target(self) -> Int64[Tensor, "selected"]:
        """Return the true tokens of the selected positions, document by document."""
        return self.tokens[self._positions]

    @cached_property
    def query(self) -> Int64[Tensor, "selected"]:
        """Return the observed tokens of the selected positions."""
        return self.observed[self._positions]

    @property
    def document(self) -> Int64[Tensor, "selected"]:
        """Return the row of each selected position."""
        return self._positions[0]

    def counts(self, d_vocab: int) -> Float[Tensor, "docs d_vocab"]:
        """Return how often each observed token can be attended to in each document."""
        counts = torch.zeros(len(self.tokens), d_vocab, device=self.tokens.device)
        return counts.scatter_add_(1, self.observed, self.attended.float())

    def rows(self, index: Int64[Tensor, "rows"]) -> "MaskedBatch":
        """Return the batch of some of the documents."""
        return MaskedBatch(
            self.tokens[index], self.observed[index], self.selected[index], self.hidden
        )


def mask(
    tokens: Int64[Tensor, "docs max_length"],
    masking: TopicMaskingSettings,
    d_vocab: int,
    generator: torch.Generator,
) -> MaskedBatch:
    """Return documents with words selected and replaced at random, at least one per document."""

    def uniform() -> Float[Tensor, "docs max_length"]:
        return torch.rand(tokens.shape, generator=generator, device=tokens.device)

    draw = uniform().masked_fill_(tokens < FIRST_WORD, 2.0)  # special tokens are never selected
    smallest = draw.amin(dim=1, keepdim=True)
    selected = draw < smallest.clamp(min=masking.mask_prob)
    selected |= draw == smallest
    fate = uniform()
    lowest = FIRST_WORD if masking.random_tokens == "words" else 0
    random_token = torch.randint(
        lowest, d_vocab, tokens.shape, generator=generator, device=tokens.device
    )
    replaced = torch.where(fate < masking.keep_prob + masking.random_prob, random_token, MASK)
    replaced = torch.where(fate < masking.keep_prob, tokens, replaced)
    observed = torch.where(selected, replaced, tokens)
    return MaskedBatch(tokens, observed, selected, hidden=masking.context == "hidden")
