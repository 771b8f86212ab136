"""The one-layer transformer of the theorems, and what it computes from a bag of tokens.

Li, Li & Risteski (ICML 2023) drop positions, residual connections, feed-forward layers and
norms from BERT and keep

    f(Z) = W_U [ W_V Z A(Z) ] (+ b_U),   A(Z) = softmax over keys of (W_K Z)^T (W_Q Z) / sqrt(d),

with Z = W_E X the embeddings of the document's tokens. Without positions, two positions with
the same token are equal as queries and as keys. This module therefore never builds the attention
matrix over positions: the weight of key token j, summed over its positions, is

    count_j exp(s_ij) / sum_k count_k exp(s_ik)  =  softmax_j(s_ij + log count_j),

which is exact and about a hundred times cheaper. Uniform attention is s = 0.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from scripts.anatomy.topic.masking import MaskedBatch
from scripts.anatomy.topic.settings import CompactModelSettings, InitSettings


class TopicTransformer(nn.Module):
    """One-layer transformer over bags of tokens; `settings` determines which parts are trained.

    Columns of W_E are the tokens' embeddings. Frozen parts are buffers, so that
    `parameters()` is exactly what is trained.
    """

    def __init__(
        self,
        d_vocab: int,
        settings: CompactModelSettings,
        init: InitSettings,
        generator: torch.Generator,
        block_value: Float[Tensor, "d_vocab d_vocab"] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        d_model = settings.d_model or d_vocab
        # the product with one-hot embeddings is skipped: it would be half of the arithmetic
        self._Z_is_identity = (
            settings.embedding == "one_hot" and d_model == d_vocab and not settings.input_norm
        )

        def drawn(rows: int, columns: int, *, embedding: bool = False) -> nn.Parameter:
            return nn.Parameter(_draw((rows, columns), init, generator, embedding=embedding))

        if settings.embedding == "trained":
            self.W_E = drawn(d_model, d_vocab, embedding=True)
        else:
            self.register_buffer("W_E", torch.eye(d_model, d_vocab))
        if settings.input_norm:
            self.token_type = nn.Parameter(_draw((d_model,), init, generator, embedding=True))
            self.norm = nn.LayerNorm(d_model, eps=1e-12)
        if settings.attention == "trained":
            self.W_K, self.W_Q = drawn(d_model, d_model), drawn(d_model, d_model)
        if settings.value == "trained":
            self.W_V = drawn(d_model, d_model)
        else:
            block = settings.value == "block"
            self.register_buffer(
                "W_V", settings.value_gain * block_value if block else torch.eye(d_model)
            )
        if settings.head == "trained":
            self.W_U = drawn(d_vocab, d_model)
        if settings.biases:
            self.b_V, self.b_U = (
                nn.Parameter(torch.zeros(d_model)),
                nn.Parameter(torch.zeros(d_vocab)),
            )

    def embed(self) -> Float[Tensor, "d_model d_vocab"]:
        """Return Z, the embedding of every token as attention sees it."""
        if not self.settings.input_norm:
            return self.W_E
        return self.norm(self.W_E.T + self.token_type).T

    def scores(self) -> Float[Tensor, "keys queries"]:
        """Return the attention scores s between any two tokens, before the softmax."""
        Z = self.embed()
        if self.settings.attention == "uniform":
            return Z.new_zeros(Z.shape[1], Z.shape[1])
        W_K, W_Q = self.W_K, self.W_Q
        if not self._Z_is_identity:
            W_K, W_Q = W_K @ Z, W_Q @ Z
        return W_K.T @ W_Q / math.sqrt(len(W_K))

    def unembed(self, hidden: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_vocab"]:
        """Return the logits, or plain outputs under the squared loss."""
        head = self.settings.head
        logits = hidden
        if head != "identity":
            logits = hidden @ (self.W_E if head == "tied" else self.W_U.T)
        return logits + self.b_U if self.settings.biases else logits

    def forward(self, batch: MaskedBatch) -> Float[Tensor, "selected d_vocab"]:
        """Return the predictions for the selected positions."""
        output, index = self.distinct(batch)
        return output[index]

    def distinct(
        self, batch: MaskedBatch
    ) -> tuple[Float[Tensor, "rows d_vocab"], Int64[Tensor, "selected"]]:
        """Return the distinct predictions and each selected position's row in them.

        Two positions of a document with the same token share a prediction (most show MASK); under
        uniform attention all positions of a document do.
        """
        Z = self.embed()
        counts = batch.counts(Z.shape[1])
        if self.settings.attention == "uniform":
            return self._read(counts / counts.sum(dim=1, keepdim=True), Z), batch.document
        pair = batch.document * Z.shape[1] + batch.query
        pairs, index = pair.unique(return_inverse=True)
        # `embedding` looks up rows as indexing does, with a much faster gradient
        of_query = embedding(pairs % Z.shape[1], self.scores().T.contiguous())
        in_document = embedding(pairs // Z.shape[1], counts.log())
        return self._read((of_query + in_document).softmax(dim=1), Z), index

    def _read(
        self, weight: Float[Tensor, "rows d_vocab"], Z: Float[Tensor, "d_model d_vocab"]
    ) -> Float[Tensor, "rows d_vocab"]:
        """Return the predictions from attention weights on tokens."""
        hidden = weight if self._Z_is_identity else weight @ Z.T
        if self.settings.value != "identity":
            hidden = hidden @ self.W_V.T
        return self.unembed(hidden + self.b_V if self.settings.biases else hidden)

    def penalised(self) -> Float[Tensor, "rows columns"]:
        """Return the matrix that the L2 penalty is on: W_V (Theorem 2), or W_E if W_V is frozen."""
        return self.W_V if isinstance(self.W_V, nn.Parameter) else self.W_E


def _draw(
    shape: tuple[int, ...], init: InitSettings, generator: torch.Generator, *, embedding: bool
) -> Float[Tensor, "..."]:
    """Return initial weights; library: N(0, 1) embeddings, U(+-1/sqrt(fan in)) matrices."""
    if init.distribution == "normal":
        return torch.randn(shape, generator=generator) * init.scale
    uniform = torch.rand(shape, generator=generator)
    if init.distribution == "uniform":
        return uniform * init.scale
    if embedding:
        return torch.randn(shape, generator=generator)
    return (2 * uniform - 1) / math.sqrt(shape[-1])


def objective(
    output: Float[Tensor, "rows d_vocab"],
    index: Int64[Tensor, "selected"],
    target: Int64[Tensor, "selected"],
    document: Int64[Tensor, "selected"],
    *,
    loss: str,
    average: str,
) -> Float[Tensor, ""]:
    """Return the mean loss over the selected positions, predicted by rows `index` of `output`.

    `squared` is the squared norm of (output - one-hot target), as in the theorems. `average` is
    "document" (within each document first, the paper's objective), "token" (over all selected
    positions) or "entry" (over positions and outputs, as the released squared loss).
    """
    d_vocab = output.shape[1]
    own = output.flatten().index_select(0, index * d_vocab + target)
    if loss == "squared":
        each = output.square().sum(dim=1).index_select(0, index) - 2 * own + 1
    else:
        each = output.logsumexp(dim=1).index_select(0, index) - own
    if average == "entry":
        each = each / d_vocab
    if average != "document":
        return each.mean()
    selected = torch.bincount(document)[document]
    return (each / selected).sum() / (document[-1] + 1)
