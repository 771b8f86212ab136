"""One LEGO run: build and train the model of a variant, with its learning curves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from scripts.anatomy import artifacts, seeding
from scripts.anatomy.devices import Compute
from scripts.anatomy.lego import metrics, mimic, settings, tasks
from scripts.anatomy.lego.models import LegoModel, LegoTransformer, LibraryTransformer
from scripts.anatomy.lego.tasks import Batch, Task
from scripts.anatomy.training import Recipe, Run, RunState, even_steps, fit

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STEPS_PER_CHUNK = 20  # the sentences of so many steps are drawn together
ON_CPU = Compute()


def task_of(
    variant: settings.LegoVariantSettings,
    task: settings.TaskSettings,
    folder: Path | None = None,
) -> Task:
    """Return the task of a variant; a pretrained model's sentences are in its own tokens.

    `folder` holds the pretrained model. Raises ValueError as `Task.from_settings` does.
    """
    if variant.pretrained is None:
        return Task.from_settings(task)
    from scripts.anatomy.models import loading  # here: transformers takes seconds

    tokenizer = loading.tokenizer(folder, loading.config(folder).vocab_size)
    return Task.from_settings(task, tokenizer, variant.pretrained.words)


def build(
    variant: settings.LegoVariantSettings, task: Task, seed: int, folder: Path | None = None
) -> LegoModel:
    """Return the untrained model for the task's sentences.

    Raises:
        ValueError: The pretrained model is not an encoder, or cannot read sentences of that length.
    """
    generator = seeding.torch_generator(seed, "init")
    classes = 1 if variant.one_logit and task.group.order == 2 else task.group.order
    length = task.layout.length(task.n)
    if variant.pretrained is not None:
        encoder = _pretrained(variant.pretrained, folder, length, seed)
        return LibraryTransformer(encoder, classes=classes, generator=generator)
    if variant.model.library:
        encoder = library_encoder(variant.model, task.layout.d_vocab, length, seed)
        return LibraryTransformer(encoder, classes=classes, generator=generator)
    return LegoTransformer(
        variant.model,
        d_vocab=task.layout.d_vocab,
        length=length,
        classes=classes,
        special=task.layout.ids([tasks.START, tasks.END]).tolist(),
        generator=generator,
    )


def _pretrained(
    pretrained: settings.PretrainedSettings, folder: Path, length: int, seed: int
) -> "PreTrainedModel":
    """Return the encoder that a training starts from."""
    from scripts.anatomy.models import loading

    encoder = loading.control(folder, seed) if pretrained.random else loading.model(folder)
    if not hasattr(encoder, "encoder") or encoder.config.is_encoder_decoder:
        raise loading.UnfitModel(f"expected an encoder, got a {encoder.config.model_type}")
    positions = loading.positions(encoder)
    if positions < length:
        raise loading.UnfitModel(
            f"expected an encoder of at least {length} positions, the length of a sentence, "
            f"got {positions}"
        )
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # unused, and random if the checkpoint has none
    if pretrained.dropout is not None:
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = pretrained.dropout
    return encoder


def library_encoder(
    architecture: settings.ArchitectureSettings, d_vocab: int, length: int, seed: int
) -> "PreTrainedModel":
    """Return a BertModel of the transformers library, or an AlbertModel if layers are tied."""
    from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel

    shape = {
        "vocab_size": d_vocab,
        "hidden_size": architecture.d_model,
        "num_hidden_layers": architecture.n_layers,
        "num_attention_heads": architecture.heads[0].total,
        "intermediate_size": architecture.d_ff,
        "max_position_embeddings": length,
        "hidden_act": "gelu",
        "hidden_dropout_prob": architecture.dropout,
        "attention_probs_dropout_prob": architecture.dropout,
        "initializer_range": architecture.init,
    }
    with seeding.torch_seeded(seed, "library"):
        if architecture.tied:
            width = architecture.d_embedding or architecture.d_model
            return AlbertModel(AlbertConfig(embedding_size=width, **shape), add_pooling_layer=False)
        return BertModel(BertConfig(**shape), add_pooling_layer=False)


def load(model: LegoModel, path: Path) -> LegoModel:
    """Load trained weights into a model and return it in evaluation mode.

    Raises:
        artifacts.UnreadableArtifact: The file is damaged, or its weights belong to a model of
            another shape or to sentences of another layout.
    """
    try:
        model.load_state_dict(artifacts.read_tensors(path, framework="torch"))
    except RuntimeError as error:
        fault = str(error).splitlines()[1].strip()
        raise artifacts.UnreadableArtifact(
            path, f"belongs to another layout or model: {fault}"
        ) from None
    return model.eval()


@dataclass(frozen=True)
class Tensors:
    """A batch on a device."""

    tokens: Tensor
    values: Tensor
    indices: Tensor


def tensors(batch: Batch, device: str = "cpu") -> Tensors:
    """Return the arrays of a batch that a model needs, on a device."""
    return Tensors(
        *(torch.from_numpy(x).to(device) for x in (batch.tokens, batch.values, batch.indices))
    )


def train(
    model: LegoModel,
    variant: settings.LegoVariantSettings,
    task: Task,
    *,
    seed: int,
    state: RunState,
    test: Batch,
    compute: Compute = ON_CPU,
    label: str = "training",
) -> Run:
    """Train a variant's model on its task; the trained model is on the CPU.

    The learning curves are accuracies by position on the test sentences.
    """
    model.to(compute.device)
    if compute.compile and compute.device.startswith("cuda"):
        model.compile()
    mimicked = variant.mimicking.steps if variant.mimicking else 0
    sentences = _sentences(variant, task, seed, compute.device)
    inputs = tensors(test, compute.device)

    def loss_at(step: int) -> Float[Tensor, ""]:
        batch = sentences(step)
        if step < mimicked:
            return _mimicking(model, batch, variant.mimicking, seed, step)
        loss = _task_loss(model, batch, variant, task.n, step - mimicked)
        if variant.mimicking and variant.mimicking.keep:
            loss = loss + variant.mimicking.keep * _mimicking(
                model, batch, variant.mimicking, seed, step
            )
        return loss

    def accuracies() -> dict[str, float]:
        predicted = metrics.predictions(model, inputs.tokens, inputs.indices)
        by_position = metrics.accuracy(predicted, test.values)
        return {f"position{k}": float(a) for k, a in enumerate(by_position)}

    total = mimicked + variant.steps
    points = even_steps(mimicked, total, variant.eval_points)
    run = fit(
        model,
        loss_at,
        Recipe(
            steps=total,
            learning_rate=variant.learning_rate,
            early_steps=mimicked,
            early_rate=variant.mimicking.learning_rate if variant.mimicking else None,
            schedule=variant.schedule,
            warmup=variant.warmup,
            clip=variant.clip,
        ),
        state=state,
        seed=seed,
        checkpoint_steps=points,
        keep_parameters=False,
        evaluate=accuracies,
        device=compute.device,
        autocast=compute.autocast,
        save_every=compute.save_every,
        label=label,
    )
    model.cpu()
    return run


def _sentences(
    variant: settings.LegoVariantSettings, task: Task, seed: int, device: str
) -> Callable[[int], Tensors]:
    """Return the sentences of every step as a function of (seed, step)."""
    size = variant.batch
    if variant.sentences is not None:
        training_set = _fixed(variant, task, seed)
        per_epoch = max(len(training_set) // size, 1)

        def fixed(step: int) -> Tensors:
            epoch, index = divmod(step, per_epoch)
            order = seeding.numpy_generator(seed, "order", epoch).permutation(len(training_set))
            return tensors(training_set[order[index * size : (index + 1) * size]], device)

        return fixed
    drawn: dict[int, Batch] = {}

    def fresh(step: int) -> Tensors:
        chunk, index = divmod(step, STEPS_PER_CHUNK)
        if chunk not in drawn:
            drawn.clear()
            rng = seeding.numpy_generator(seed, "sentences", chunk)
            drawn[chunk] = tasks.sample(task, size * STEPS_PER_CHUNK, rng)
        return tensors(drawn[chunk][index * size : (index + 1) * size], device)

    return fresh


def _fixed(variant: settings.LegoVariantSettings, task: Task, seed: int) -> Batch:
    """Return the training set of a variant that has a fixed one."""
    rng = seeding.numpy_generator(seed, "training sentences")
    return tasks.sample(task, variant.sentences, rng)


def test_sentences(
    variant: settings.LegoVariantSettings, task: Task, count: int, seed: int
) -> Batch:
    """Return test sentences, without those of a fixed training set.

    Raises:
        ValueError: The training set contains all of them, since chains are short.
    """
    test = tasks.seeded_sample(task, count, seed)
    if variant.sentences is None:
        return test
    return tasks.deduplicated(_fixed(variant, task, seed), test)


def supervised(variant: settings.LegoVariantSettings, n: int, step: int = 2**31) -> list[int]:
    """Return the positions that have a loss at a step; by default at the end."""
    if variant.leaf_only:
        return [n - 1]
    count = variant.n_tr or n
    if variant.curriculum is not None:
        count = min(count, 1 + step // variant.curriculum)
    return list(range(count))


def _task_loss(
    model: LegoModel, batch: Tensors, variant: settings.LegoVariantSettings, n: int, step: int
) -> Float[Tensor, ""]:
    """Return the loss at the supervised positions, after the last layer or after every layer."""
    positions = supervised(variant, n, step)
    indices, values = batch.indices[:, positions], batch.values[:, positions]
    if not variant.deep:
        return metrics.loss(model(batch.tokens, indices), values)
    hidden = model.read(batch.tokens, indices).hidden[:, 1:]
    logits = model.classify(hidden)
    spread = values[:, None].expand(*hidden.shape[:3])
    return metrics.loss(logits.flatten(0, 1), spread.flatten(0, 1))


def _mimicking(
    model: LegoModel,
    batch: Tensors,
    mimicking: settings.MimickingSettings,
    seed: int,
    step: int,
) -> Float[Tensor, ""]:
    """Return the mimicking loss, a mean over layers, so that it does not grow with the depth."""
    tokens = batch.tokens[: mimicking.batch]
    maps = model.read(tokens, maps=True).maps
    target = tokens
    if mimicking.shuffled:
        generator = seeding.torch_generator(seed, "wrong targets", step)
        target = mimic.shuffled(tokens, generator)
    return mimic.loss(maps, target, patterns=mimicking.patterns) / maps.shape[1]
