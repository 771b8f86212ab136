"""A classifier in another model, by way of the vocabulary (section 5.2 of the paper).

States of a model A are mapped by K = E_A E_B^+ (d_A x d_B, E with tokens as columns), go through
the last layers of a fine-tuned model B, and are classified there; nothing is trained. K is E_A
E_B^T (E_B E_B^T)^-1: nothing of the vocabulary's size in both directions is ever made.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from transformers import PreTrainedModel

from scripts.anatomy.embedding.adapters import final_norm
from scripts.anatomy.embedding.adapters import layers as layers_of
from scripts.anatomy.embedding.finetuning import Classifier, TextBatch, batched, pooled
from scripts.anatomy.embedding.projection import COLUMNS_PER_CHUNK, dual

RIDGE = 1e-6  # of the mean diagonal, in least squares

Kernel = Float[Tensor, "d_A d_B"]


# --- kernels ------------------------------------------------------------------------------------


def kernel(W_A: Float[Tensor, "tokens d_A"], W_B: Float[Tensor, "tokens d_B"]) -> Kernel:
    """E_A E_B^+ of embeddings whose rows are the same tokens, in float64.

    Raises ValueError if that of B has not full rank.
    """
    product = sum(
        a.double().T @ b.double()
        for a, b in zip(W_A.split(COLUMNS_PER_CHUNK), W_B.split(COLUMNS_PER_CHUNK), strict=True)
    )
    return dual(product, W_B)


def permuted_kernel(
    W_A: Float[Tensor, "tokens d_A"],
    W_B: Float[Tensor, "tokens d_B"],
    generator: torch.Generator,
) -> Kernel:
    """Return the same with the tokens of B in another order."""
    return kernel(W_A, W_B[torch.randperm(len(W_B), generator=generator)])


def random_kernel(like: Kernel, generator: torch.Generator) -> Kernel:
    """Return a random kernel of the same singular values."""
    values = torch.linalg.svdvals(like)
    left, right = (
        torch.linalg.qr(torch.randn(n, len(values), generator=generator, dtype=like.dtype))[0]
        for n in like.shape
    )
    return (left * values.cpu() @ right.T).to(like)


def least_squares(
    paired: Iterable[tuple[Mapping[int, Float[Tensor, "tokens d_A"]], Sequence[Tensor]]],
) -> list[dict[int, Kernel]]:
    """Return the kernels that map states of A to those of B with the least squared error.

    Each batch has the states of A by cut, and of the same tokens those of every B, of which there
    may be several. A ridge only keeps the kernel defined. One list entry a B, by cut.
    """
    of_A: dict[int, Tensor] = defaultdict(float)
    of_both: dict[tuple[int, int], Tensor] = defaultdict(float)
    for states_A, states_B in paired:
        for cut, a in ((cut, a.double()) for cut, a in states_A.items()):
            of_A[cut] = of_A[cut] + a.T @ a
            for number, b in enumerate(states_B):
                of_both[number, cut] = of_both[number, cut] + a.T @ b.double()
    kernels: dict[int, dict[int, Kernel]] = defaultdict(dict)
    for (number, cut), product in of_both.items():
        gram = of_A[cut]
        ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
        kernels[number][cut] = torch.linalg.solve(gram + ridge, product)
    return [kernels[number] for number in sorted(kernels)]


# --- the lower model ----------------------------------------------------------------------------


@torch.inference_mode()
def states(
    model: PreTrainedModel, batch: TextBatch
) -> list[Float[Tensor, "texts positions d_model"]]:
    """Return the states of a model after 0, 1, ... layers, before any last norm."""
    recorded: list[Tensor] = []

    def keep_input(module: nn.Module, inputs: tuple, named: dict) -> None:
        if not recorded:
            recorded.append(inputs[0] if inputs else named["hidden_states"])

    def keep_output(module: nn.Module, inputs: tuple, output: Tensor | tuple) -> None:
        recorded.append(output[0] if isinstance(output, tuple) else output)

    layers = layers_of(model)
    with ExitStack() as hooks:
        enter = hooks.enter_context
        enter(layers[0].register_forward_pre_hook(keep_input, with_kwargs=True))
        for layer in dict.fromkeys(layers):
            enter(layer.register_forward_hook(keep_output))
        model.base_model(input_ids=batch.ids, attention_mask=batch.mask)
    # OPT's layers have the positions of all texts in one axis
    return [state.reshape(*batch.ids.shape, -1) for state in recorded]


def check_cuts(cuts: Sequence[int] | None, model: PreTrainedModel) -> list[int]:
    """Return the cuts, by default every one. Raises ValueError for one beyond the model's depth."""
    depth = len(layers_of(model))
    if cuts is None:
        return [*range(depth + 1)]
    if max(cuts) > depth:
        raise ValueError(f"cuts: {max(cuts)} is beyond the {depth} layers of the lower model")
    return [*cuts]


# --- the upper model ----------------------------------------------------------------------------


def top(classifier: Classifier, blocks: int) -> Classifier:
    """Return a classifier with the last layers of another; it shares their parameters.

    Raises ValueError if there are not as many layers, or if they cannot be taken apart.
    """
    return _with_layers(classifier, blocks, lambda layers: layers[len(layers) - blocks :])


def read_by_top(classifier: Classifier, blocks: int) -> Callable[[TextBatch], Tensor]:
    """Return what gives the states that the last layers read, without running these."""
    first = len(layers_of(classifier.model)) - blocks
    short = _with_layers(classifier, blocks, lambda layers: layers[: max(first, 1)])
    return lambda batch: states(short.model, batch)[first]


def _with_layers(
    classifier: Classifier, blocks: int, keep: Callable[[nn.ModuleList], nn.ModuleList]
) -> Classifier:
    layers = layers_of(classifier.model)
    if not 1 <= blocks <= len(layers):
        raise ValueError(f"blocks: {blocks} of {len(layers)} layers of the upper model")
    # parameters stay the ones of the original
    shared = {id(tensor): tensor for tensor in [*classifier.parameters(), *classifier.buffers()]}
    short = copy.deepcopy(classifier, shared)
    base = short.model.base_model
    for owner in base.modules():
        for name, child in owner.named_children():
            if isinstance(child, nn.ModuleList) and [*child] == layers_of(short.model):
                setattr(owner, name, keep(child))
                return short
    kind = classifier.model.config.model_type
    raise ValueError(f"the layers of a {kind} are shared, and cannot be taken apart")


def only_differences(after: Classifier, before: Mapping[str, Tensor], blocks: int) -> Classifier:
    """Return the last layers with only what fine-tuning added to matrices and biases; whole norms.

    `before` has the parameters of the model before, by the classifier's names for them.
    """
    last = {id(p) for layer in layers_of(after.model)[-blocks:] for p in layer.parameters()}
    norms = {
        name for name, module in after.named_modules() if "norm" in type(module).__name__.lower()
    }
    whole = {
        name: parameter
        for name, parameter in after.named_parameters()
        if id(parameter) not in last or name.rpartition(".")[0] in norms
    }
    made = copy.deepcopy(after, {id(parameter): parameter for parameter in whole.values()})
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name not in whole:
                parameter.sub_(before[name].to(parameter))
    return top(made, blocks)


def headed(upper: Classifier, by: Classifier) -> Classifier:
    """Return the same layers under the linear layer of another classifier."""
    made = copy.copy(upper)
    made._modules = {**upper._modules, "classifier": by.classifier}
    return made


@torch.inference_mode()
def classify(
    upper: Classifier,
    translated: Float[Tensor, "texts positions d_B"],
    batch: TextBatch,
    *,
    positions: bool = False,
) -> Float[Tensor, "texts 2"]:
    """Return the logits of translated states.

    With `positions` they enter as token embeddings do, so that the model's positions are added and
    its embedding norm applied; else they are what the first of the last layers reads.
    """
    base = upper.model.base_model
    width = upper.model.get_input_embeddings().weight.shape[1]
    inputs = translated
    if positions and translated.shape[-1] != width:
        raise ValueError("positions: the upper model's embeddings are not as wide as its states")
    with ExitStack() as hooks:
        if not positions:
            # replaced before it is read; only its shape and device matter
            inputs = translated.new_zeros(*translated.shape[:2], width)
            hooks.enter_context(_reading(layers_of(upper.model)[0], translated))
        output = base(inputs_embeds=inputs, attention_mask=batch.mask)
    return upper.read(output.last_hidden_state, batch.mask)


@contextmanager
def _reading(layer: nn.Module, states: Tensor) -> Iterator[None]:
    """Within the block a layer reads these states whatever it is given."""

    def replace(module: nn.Module, inputs: tuple, named: dict) -> tuple[tuple, dict]:
        given = inputs[0] if inputs else named["hidden_states"]
        wanted = states.reshape(given.shape)
        if inputs:
            return (wanted, *inputs[1:]), named
        return inputs, named | {"hidden_states": wanted}

    with layer.register_forward_pre_hook(replace, with_kwargs=True):
        yield


# --- ways of translating ------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way of translating, real or a control.

    Attributes:
        upper: The last layers and the linear layer.
        kernels: The kernel of every cut.
        positions: Add the upper model's positions.
        final_norm: Apply the lower model's last norm first.
    """

    upper: Classifier
    kernels: Mapping[int, Kernel]
    positions: bool = False
    final_norm: bool = False


def logits(
    way: Way, lower: PreTrainedModel, of_cuts: Mapping[int, Tensor], batch: TextBatch
) -> dict[int, Float[Tensor, "texts 2"]]:
    """Return the logits at every cut whose states are given, in one pass of the upper layers."""
    norm = final_norm(lower) if way.final_norm else nn.Identity()
    with torch.inference_mode():
        translated = [norm(state) @ way.kernels[cut].to(state) for cut, state in of_cuts.items()]
    n = len(of_cuts)
    wide = TextBatch(batch.ids.repeat(n, 1), batch.mask.repeat(n, 1))
    outputs = classify(way.upper, torch.cat(translated), wide, positions=way.positions)
    return dict(zip(of_cuts, outputs.float().cpu().chunk(n), strict=True))


def evaluate(
    ways: Mapping[Hashable, Way],
    lower: PreTrainedModel,
    tokens: Sequence[Int[Tensor, "positions"]],
    cuts: Mapping[Hashable, Sequence[int]],
) -> tuple[dict[Hashable, dict[int, Float[Tensor, "texts 2"]]], dict[int, np.ndarray]]:
    """Return the logits of texts by variant and cut, and the mean states of the lower model.

    One pass over the lower model, whatever the number of ways. Mean states are of all cuts that a
    way or the key "probe" has.
    """
    device = lower.device
    outputs = {name: {cut: torch.empty(len(tokens), 2) for cut in cuts[name]} for name in ways}
    wanted = sorted({cut for of_way in cuts.values() for cut in of_way})
    means = {cut: np.empty((len(tokens), lower.config.hidden_size), np.float32) for cut in wanted}
    for chosen, batch in batched(tokens):
        placed = batch.to(device)
        of_cuts = dict(enumerate(states(lower, placed)))
        for cut in wanted:
            means[cut][chosen] = pooled(of_cuts[cut], placed.mask).cpu().numpy()
        for name, way in ways.items():
            kept = {cut: of_cuts[cut] for cut in cuts[name]}
            for cut, part in logits(way, lower, kept, placed).items():
                outputs[name][cut][torch.from_numpy(chosen)] = part
    return outputs, means


# --- a probe ------------------------------------------------------------------------------------


def probe(states: Float[np.ndarray, "texts d_A"], labels: Int[np.ndarray, "texts"]) -> Pipeline:
    """Return a logistic regression on the mean states of texts."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.01)).fit(
        states, labels
    )
