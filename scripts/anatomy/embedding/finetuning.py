"""A classifier on a pretrained model, and its training (section 4.4 and Appendix D of the paper).

The logits of a text are the mean over its tokens of a linear layer on the last hidden states. The
bias of that layer is 0 at the start and, as published, stays there. A decoder's final norm is left
out unless wanted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from scripts.anatomy import seeding
from scripts.anatomy.devices import Compute
from scripts.anatomy.embedding import classification_data
from scripts.anatomy.embedding.adapters import adapter
from scripts.anatomy.embedding.adapters import layers as layers_of
from scripts.anatomy.embedding.settings import FinetuningRunSettings
from scripts.anatomy.training import Recipe, Run, RunState, even_steps, fit

ON_CPU = Compute()
TOKENS_PER_CHUNK = 1024
INIT = 0.02  # standard deviation of the linear layer's first weights, as the library has it


@dataclass(frozen=True)
class TextBatch:
    """Texts side by side, the shorter ones padded at their end."""

    ids: Int[Tensor, "texts positions"]
    mask: Int[Tensor, "texts positions"]

    def to(self, device: str | torch.device) -> "TextBatch":
        """Return the same on a device."""
        return TextBatch(self.ids.to(device), self.mask.to(device))


def padded(texts: Sequence[Int[Tensor, "positions"]], pad: int = 0) -> TextBatch:
    """Put texts side by side; which id padding has does not matter, for it is masked."""
    ids = nn.utils.rnn.pad_sequence(list(texts), batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(text) for text in texts])
    return TextBatch(ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long())


def batched(
    texts: Sequence[Int[Tensor, "positions"]], size: int = TOKENS_PER_CHUNK
) -> Iterator[tuple[Int[np.ndarray, "texts"], TextBatch]]:
    """Yield all texts, those alike in length together: which they are, and the batch.

    A batch has at most so many tokens, padding included, or else is a single text.
    """
    lengths = np.array([len(text) for text in texts])
    order = np.argsort(-lengths, kind="stable")  # the longest first, which fill the most memory
    start = 0
    while start < len(order):
        chosen = order[start : start + max(1, size // int(lengths[order[start]]))]
        yield chosen, padded([texts[index] for index in chosen])
        start += len(chosen)


def pooled(
    states: Float[Tensor, "texts positions d_model"], mask: Int[Tensor, "texts positions"]
) -> Float[Tensor, "texts d_model"]:
    """Return the mean over the positions that are not padding."""
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


class Classifier(nn.Module):
    """A pretrained model with a linear layer to two labels on the mean of its last states."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        final_norm: bool = False,
        dropout: float = 0.0,
        inner_dropout: bool = False,
    ) -> None:
        """`inner_dropout`: in training the model's own dropout is at work too."""
        super().__init__()
        self.model = model
        if not final_norm:
            drop_final_norm(model)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(model.config.hidden_size, 2)
        self.inner_dropout = inner_dropout

    def train(self, mode: bool = True) -> "Classifier":
        """As any module, but for the model's own dropout."""
        super().train(mode)
        self.model.train(mode and self.inner_dropout)
        return self

    def forward(self, batch: TextBatch) -> Float[Tensor, "texts 2"]:
        """Return the logits."""
        output = self.model.base_model(input_ids=batch.ids, attention_mask=batch.mask)
        return self.read(output.last_hidden_state, batch.mask)

    def read(
        self, states: Float[Tensor, "texts positions d_model"], mask: Int[Tensor, "texts positions"]
    ) -> Float[Tensor, "texts 2"]:
        """Return the logits of last hidden states; the mean of logits is that of the states."""
        return self.classifier(self.dropout(pooled(states, mask)))


def drop_final_norm(model: PreTrainedModel) -> None:
    """Put the identity in the place of the norm after the last layer, if there is one."""
    path = adapter(model).final_norm
    if path is not None:
        parent, _, name = path.rpartition(".")
        owner = model.base_model.get_submodule(parent)
        if getattr(owner, name, None) is not None:
            setattr(owner, name, nn.Identity())


def build(model: PreTrainedModel, settings: FinetuningRunSettings, seed: int) -> Classifier:
    """Return the classifier before its training, with what is not trained frozen.

    Raises ValueError for a layer that the model has not got.
    """
    made = Classifier(
        model,
        final_norm=settings.final_norm,
        dropout=settings.dropout,
        inner_dropout=settings.inner_dropout,
    )
    draw = seeding.torch_generator(seed, "classifier")
    nn.init.normal_(made.classifier.weight, std=INIT, generator=draw)
    nn.init.zeros_(made.classifier.bias)
    freeze(made, settings)
    return made


def freeze(classifier: Classifier, settings: FinetuningRunSettings) -> None:
    """Freeze all parameters but those that the settings name."""
    classifier.requires_grad_(False)
    model = classifier.model
    trained = [layers_of(model)[index] for index in _layer_indices(settings.layers, model)]
    trained.append(classifier.classifier)
    if settings.embeddings:
        trained.append(model.get_input_embeddings())
    for module in trained:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(settings.parameters == "all" or name.endswith("weight"))


def _layer_indices(layers: list[int] | None, model: PreTrainedModel) -> list[int]:
    """Return numbers of layers from 0."""
    depth = len(layers_of(model))
    if layers is None:
        return [*range(depth)]
    for index in layers:
        if not -depth <= index < depth:
            raise ValueError(f"layers: there is no layer {index} in a model of {depth}")
    return [index % depth for index in layers]


@dataclass(frozen=True)
class Texts:
    """Cut texts and their labels."""

    tokens: Sequence[Int[Tensor, "positions"]]
    labels: Int[np.ndarray, "texts"]


def train(
    classifier: Classifier,
    texts: Texts,
    validation: Texts,
    settings: FinetuningRunSettings,
    *,
    seed: int,
    state: RunState,
    compute: Compute = ON_CPU,
    label: str = "fine-tuning",
) -> tuple[Run, Int[np.ndarray, "seen"]]:
    """Train a classifier; return what the training left, and which texts it has seen.

    Mean cross-entropy, AdamW without weight decay, a learning rate that falls linearly to 0.
    """
    lengths = [len(text) for text in texts.tokens]
    plan = classification_data.batches(
        lengths,
        batch=settings.batch,
        steps=settings.steps,
        generator=seeding.numpy_generator(seed, "order of texts"),
    )
    classifier.to(compute.device)

    def loss_at(step: int) -> Float[Tensor, ""]:
        batch = padded([texts.tokens[index] for index in plan[step]]).to(compute.device)
        targets = torch.from_numpy(texts.labels[plan[step]]).to(compute.device)
        return functional.cross_entropy(classifier(batch).float(), targets)

    points = even_steps(0, settings.steps, settings.eval_points)
    run = fit(
        classifier,
        loss_at,
        recipe(settings),
        state=state,
        seed=seed,
        checkpoint_steps=points if settings.eval_points else [],
        keep_parameters=False,
        evaluate=lambda: measure(classifier, validation),
        device=compute.device,
        autocast=compute.autocast,
        save_every=compute.save_every,
        label=label,
    )
    return run, np.unique(np.concatenate(plan))


def recipe(settings: FinetuningRunSettings) -> Recipe:
    """Return how a classifier is optimised."""
    return Recipe(
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        schedule="linear",
        warmup=round(settings.warmup * settings.steps),
        clip=settings.clip,
    )


@torch.inference_mode()
def logits(
    classifier: Classifier, tokens: Sequence[Int[Tensor, "positions"]]
) -> Float[Tensor, "texts 2"]:
    """Return the logits of texts, in their order."""
    device = classifier.classifier.weight.device
    logits = torch.empty(len(tokens), 2)
    for chosen, batch in batched(tokens):
        logits[torch.from_numpy(chosen)] = classifier(batch.to(device)).float().cpu()
    return logits


def measure(classifier: Classifier, texts: Texts) -> dict[str, float]:
    """Cross-entropy in nats and accuracy."""
    outputs, targets = logits(classifier, texts.tokens), torch.from_numpy(texts.labels)
    return {
        "loss": float(functional.cross_entropy(outputs, targets)),
        "accuracy": float(right(outputs, texts.labels).mean()),
    }


def right(
    outputs: Float[Tensor, "texts 2"], labels: Int[np.ndarray, "texts"]
) -> Bool[np.ndarray, "texts"]:
    """Return whether the label with the larger logit is the true one."""
    return outputs.argmax(dim=1).numpy() == labels


# --- the file of a training ---------------------------------------------------------------------

BEFORE = "before.classifier.weight"  # the linear layer's first weights, which were drawn


def changed(classifier: Classifier) -> dict[str, Tensor]:
    """Return the trained parameters by name; what is not among them is as it was in the model."""
    return {name: p.detach() for name, p in classifier.named_parameters() if p.requires_grad}


def load_changed(classifier: Classifier, stored: dict[str, Tensor]) -> None:
    """Put trained parameters into a classifier of the same model.

    Raises ValueError for names or shapes of another.
    """
    there = dict(classifier.named_parameters())
    with torch.no_grad():
        for name, tensor in stored.items():
            if name == BEFORE:
                continue
            if name not in there or there[name].shape != tensor.shape:
                raise ValueError(f"the trained {name} is not one of this model's parameters")
            there[name].copy_(tensor)
