"""One training run of the topic study, from a corpus and a variant to a trained model."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from scripts.anatomy import seeding
from scripts.anatomy.devices import Compute
from scripts.anatomy.topic import settings, theory
from scripts.anatomy.topic.corpora import FIRST_WORD, MASK, Corpus, check_blocks
from scripts.anatomy.topic.masking import MaskedBatch, mask
from scripts.anatomy.topic.model import TopicTransformer, objective
from scripts.anatomy.training import Recipe, Run, RunState, checkpoint_steps, fit

VALIDATION_CHUNK = 500
ON_CPU = Compute()


@dataclass(frozen=True)
class TrainedTopicModel:
    """A trained model, on the CPU.

    Attributes:
        model: The model.
        run: Its losses and checkpoints; held-out losses are on the first 500 documents.
        validation_loss: Its loss on all held-out documents.
    """

    model: nn.Module
    run: Run
    validation_loss: float


def train(
    variant: settings.TopicVariantSettings,
    corpus: Corpus,
    *,
    seed: int,
    state: RunState,
    compute: Compute = ON_CPU,
    label: str = "training",
) -> TrainedTopicModel:
    """Train a variant on a corpus and return the model."""
    model = build(variant, corpus, seed).to(compute.device)
    if compute.compile and compute.device.startswith("cuda"):
        model.compile()
    loss = _loss(model, variant)
    batches = _Batches(corpus, variant, seed, compute.device)
    validation = _validation_batches(corpus, variant, seed, compute.device)

    def loss_at(step: int) -> Float[Tensor, ""]:
        penalty = variant.l2 * model.penalised().square().sum() if variant.l2 else 0.0
        return loss(batches.at(step)) + penalty

    def validation_loss(batches: list[MaskedBatch]) -> float:
        # the last batch may be smaller: weigh batches by their documents
        losses = [loss(batch).item() for batch in batches]
        return float(np.average(losses, weights=[len(batch.tokens) for batch in batches]))

    run = fit(
        model,
        loss_at,
        recipe(variant),
        state=state,
        seed=seed,
        checkpoint_steps=checkpoint_steps(variant.steps, variant.checkpoints),
        # a curve needs no more documents than the first batch
        evaluate=lambda: {"validation_loss": validation_loss(validation[:1])},
        device=compute.device,
        autocast=compute.autocast and variant.model.kind == "bert",
        save_every=compute.save_every,
        label=label,
    )
    with torch.inference_mode():
        final_loss = validation_loss(validation)
    return TrainedTopicModel(model.cpu(), run, final_loss)


def recipe(variant: settings.TopicVariantSettings) -> Recipe:
    """Return the optimisation of a variant."""
    return Recipe(
        steps=variant.steps,
        learning_rate=variant.learning_rate,
        optimiser=variant.optimiser,
        schedule=variant.schedule,
        warmup=variant.warmup,
        clip=variant.clip,
    )


def build(variant: settings.TopicVariantSettings, corpus: Corpus, seed: int) -> nn.Module:
    """Return the untrained model of a variant."""
    if variant.model.kind == "bert":
        from scripts.anatomy.topic.bert import TopicBert  # transformers takes a second to import

        max_length = max(corpus.train.shape[1], corpus.validation.shape[1])
        init_seed = seeding.derive(seed, "init")
        return TopicBert(corpus.d_vocab, max_length, variant.model, init_seed)
    block = block_value(corpus, variant.masking) if variant.model.value == "block" else None
    generator = seeding.torch_generator(seed, "init")
    return TopicTransformer(corpus.d_vocab, variant.model, variant.init, generator, block)


def block_value(
    corpus: Corpus, masking: settings.TopicMaskingSettings
) -> Float[Tensor, "d_vocab d_vocab"]:
    """Return Theorem 2's optimal W_V (vanishing L2) over this corpus's tokens.

    The theorem covers MASK and the words; rows and columns of other special tokens are 0.

    Raises:
        ValueError: If the topics are not disjoint blocks of equal size.
    """
    check_blocks(corpus.membership)
    words, topics = corpus.membership.shape
    blocks = theory.optimal_value(theory_setting(words, topics, masking))
    tokens = [MASK, *range(FIRST_WORD, corpus.d_vocab)]
    value = np.zeros((corpus.d_vocab, corpus.d_vocab))
    same_topic = corpus.membership @ corpus.membership.T
    value[np.ix_(tokens, tokens)] = theory.value_matrix(blocks, same_topic)
    return torch.from_numpy(value).float()


def theory_setting(
    words: int, topics: int, masking: settings.TopicMaskingSettings, tau: int = 1
) -> theory.TheorySetting:
    """Return the theorems' setting for disjoint topics under this masking."""
    return theory.TheorySetting(
        topics=topics,
        words_per_topic=words // topics,
        tau=tau,
        p_m=masking.mask_prob,
        p_c=masking.keep_prob,
        p_r=masking.random_prob,
        visible=masking.context == "visible",
    )


def _loss(
    model: nn.Module, variant: settings.TopicVariantSettings
) -> Callable[[MaskedBatch], Float[Tensor, ""]]:
    def loss(batch: MaskedBatch) -> Float[Tensor, ""]:
        output, index = model.distinct(batch)
        labels = (batch.target, batch.document)
        return objective(output, index, *labels, loss=variant.loss, average=variant.average)

    return loss


class _Batches:
    """Batches as a function of (seed, step): epochs of shuffled documents."""

    def __init__(
        self, corpus: Corpus, variant: settings.TopicVariantSettings, seed: int, device: str
    ) -> None:
        self._tokens = torch.from_numpy(corpus.train.astype(np.int64)).to(device)
        self._masking, self._seed, self._device = variant.masking, seed, device
        self._d_vocab = corpus.d_vocab
        self._size = min(variant.batch, len(self._tokens))
        self._per_epoch = len(self._tokens) // self._size
        self._epoch = -1
        self._static = None if variant.masking.fresh else self._mask(self._tokens, "static")

    def at(self, step: int) -> MaskedBatch:
        """Return the batch of a step."""
        epoch, index = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        rows = self._order[index * self._size : (index + 1) * self._size]
        if self._static is not None:
            return self._static.rows(rows)
        return self._mask(self._tokens[rows], step)

    def _shuffled(self, epoch: int) -> Int64[Tensor, "docs"]:
        generator = seeding.torch_generator(self._seed, "order", epoch)
        return torch.randperm(len(self._tokens), generator=generator).to(self._device)

    def _mask(self, tokens: Int64[Tensor, "docs max_length"], when: int | str) -> MaskedBatch:
        generator = seeding.torch_generator(self._seed, "mask", when, device=self._device)
        return mask(tokens, self._masking, self._d_vocab, generator)


def _validation_batches(
    corpus: Corpus, variant: settings.TopicVariantSettings, seed: int, device: str
) -> list[MaskedBatch]:
    """Return the held-out documents, masked once for all evaluations."""
    tokens = torch.from_numpy(corpus.validation.astype(np.int64)).to(device)
    generator = seeding.torch_generator(seed, "dev mask", device=device)
    whole = mask(tokens, variant.masking, corpus.d_vocab, generator)
    rows = torch.arange(len(tokens), device=device)
    return [whole.rows(part) for part in rows.split(VALIDATION_CHUNK)]
