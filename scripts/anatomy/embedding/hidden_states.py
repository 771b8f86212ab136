"""Do the parameters that are active at a token show in its hidden state (section 4.2, Figure 2)?

    R_k = | top_k(h E)  intersected with  the union over i of top_k(x_i E) | / k

with h a hidden state, through the final norm where the model has one, and x_1 .. x_m the layer's
most active vectors at that token. A forward pass leaves behind, for each token and layer, only the
numbers of the active vectors and the top tokens of the state; the lists of the vectors come from
the index.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from scripts.anatomy.embedding.adapters import adapter, coefficient_modules, final_norm
from scripts.anatomy.embedding.adapters import layers as layers_of
from scripts.anatomy.embedding.index import TopLists, check_k, rows_by_query_head
from scripts.anatomy.embedding.projection import top_k

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PUBLISHED_TOKENS = 1000
TOKENS_PER_CHUNK = 256

Site = Literal["feed_forward", "attention"]
# The coefficients that say how active a group's vectors are, and whether a negative one turns the
# vector around. Not a key: what makes a gated coefficient negative is the other factor.
GROUPS: dict[str, tuple[Site, bool]] = {
    "K": ("feed_forward", False),
    "K_gate": ("feed_forward", False),
    "K_up": ("feed_forward", True),
    "V": ("feed_forward", True),
    "W_V": ("attention", True),
    "W_O": ("attention", True),
}


# --- forward passes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Activations:
    """What a forward pass over one document leaves at each layer.

    Attributes:
        states: The layers' outputs.
        attention: What W_O is multiplied with: the heads' outputs side by side.
        feed_forward: What V is multiplied with: f(X K^T), or f(X K_gate^T) * (X K_up^T).
    """

    states: list[Float[Tensor, "positions d_model"]] = field(default_factory=list)
    attention: list[Float[Tensor, "positions heads*d_head"]] = field(default_factory=list)
    feed_forward: list[Float[Tensor, "positions d_ff"]] = field(default_factory=list)


@torch.inference_mode()
def activations(model: "PreTrainedModel", tokens: Int[Tensor, "positions"]) -> Activations:
    """Run the model on one document."""
    with _recording(model) as recorded:
        model.base_model(input_ids=tokens[None].to(model.device))
    return recorded


@contextmanager
def _recording(model: "PreTrainedModel") -> Iterator[Activations]:
    """Collects activations in the order in which layers run; some models run one several times."""
    recorded = Activations()
    outputs, values = zip(*coefficient_modules(model), strict=True)
    with ExitStack() as hooks:
        for module in dict.fromkeys(layers_of(model)):
            hooks.enter_context(module.register_forward_hook(_keep_output(recorded.states)))
        for modules, kept in ((outputs, recorded.attention), (values, recorded.feed_forward)):
            for module in dict.fromkeys(modules):
                hooks.enter_context(module.register_forward_pre_hook(_keep_input(kept)))
        yield recorded


def _keep_output(kept: list[Tensor]):
    def hook(module: nn.Module, inputs: tuple, output: Tensor | tuple) -> None:
        kept.append(_rows(output[0] if isinstance(output, tuple) else output))

    return hook


def _keep_input(kept: list[Tensor]):
    def hook(module: nn.Module, inputs: tuple) -> None:
        kept.append(_rows(inputs[0]))

    return hook


def _rows(of_document: Float[Tensor, "*batch positions width"]) -> Float[Tensor, "positions width"]:
    return of_document.reshape(-1, of_document.shape[-1])


# --- what is kept of them -----------------------------------------------------------------------


class Active(NamedTuple):
    """The most active vectors at each token and layer, most active first.

    `negative` says whether the coefficient, and so what is written, has the opposite sign.
    """

    ids: Integer[np.ndarray, "tokens layers m"]
    negative: Bool[np.ndarray, "tokens layers m"]


@dataclass(frozen=True)
class Readings:
    """What R_k needs of the forward passes.

    Attributes:
        layers: The layers that are read.
        document: The number of each token's document.
        targets: The top tokens of the hidden state after each of these layers, highest first.
        last: The top tokens of the state after the model's last layer.
        active: The most active vectors of these layers, by site.
        widths: The number of coefficients of a layer, by site.
    """

    layers: tuple[int, ...]
    document: Integer[np.ndarray, "tokens"]
    targets: Integer[np.ndarray, "tokens layers k"]
    last: Integer[np.ndarray, "tokens k"]
    active: dict[Site, Active]
    widths: dict[Site, int]


@torch.inference_mode()
def read_documents(
    model: "PreTrainedModel",
    documents: Iterable[Int[Tensor, "positions"]],
    W_U: Float[Tensor, "d_vocab d_model"],
    *,
    k: int,
    m: int = 5,
    layers: Sequence[int] | None = None,
    allowed: Bool[Tensor, "d_vocab"] | None = None,
    published: bool = False,
    skip: int = 1,
) -> Readings:
    """Run a model on documents, and keep each token's active vectors and top k `allowed` tokens.

    Hidden states are decoded with W_U, which in the paper's models is W_E. All `layers` by default.
    A vector is active by the absolute value of its coefficient in the attention, and in a gated
    feed-forward block. An ungated one has an activation that hardly goes below zero, and there the
    largest coefficients count, as they do everywhere if `published`. The first `skip` positions of
    a document are not read: the state of a decoder's first is out of all proportion.

    Raises ValueError if nothing is left to read, or for m or k beyond what there is.
    """
    gated = "gate" in adapter(model).keys
    by_size = {"attention": not published, "feed_forward": gated and not published}
    ids = torch.arange(len(W_U)) if allowed is None else allowed.cpu().nonzero().squeeze(1)
    E = W_U[ids.to(W_U.device)].float().T
    numbers, targets = [], []
    active: dict[Site, list[Active]] = {"attention": [], "feed_forward": []}
    for number, tokens in enumerate(documents):
        recorded = activations(model, tokens)
        wanted = range(len(recorded.states)) if layers is None else layers
        numbers.append(np.full(max(len(tokens) - skip, 0), number))
        decoded = (
            final_norm(model)(recorded.states[layer])[skip:].float() @ E for layer in (*wanted, -1)
        )
        targets.append(_stacked(ids[top_k(scores, k)[1].cpu()] for scores in decoded))
        for site, kept in active.items():
            of_layers = [getattr(recorded, site)[layer][skip:] for layer in wanted]
            kept.append(_most_active(of_layers, m, by_size[site]))
    if not sum(map(len, numbers)):
        raise ValueError(f"no document has a token after its first {skip}")
    all_targets = np.concatenate(targets)
    return Readings(
        layers=tuple(wanted),
        document=np.concatenate(numbers),
        targets=all_targets[:, :-1],
        last=all_targets[:, -1],
        active={s: Active(*map(np.concatenate, zip(*a, strict=True))) for s, a in active.items()},
        widths={site: getattr(recorded, site)[0].shape[1] for site in active},
    )


def _most_active(
    coefficients: Sequence[Float[Tensor, "tokens vectors"]], m: int, by_size: bool
) -> Active:
    """Return the m largest of each layer, by value or absolute value, and whether each is negative.

    By value they count as positive: the vector itself is meant.
    """
    if m > coefficients[0].shape[1]:
        raise ValueError(f"m = {m}: there are {coefficients[0].shape[1]} vectors in a layer")
    ids = [(c.abs() if by_size else c).topk(m).indices for c in coefficients]
    values = [c.gather(1, of) for c, of in zip(coefficients, ids, strict=True)]
    return Active(_stacked(ids), _stacked((value < 0) & by_size for value in values))


def _stacked(of_layers: Iterable[Tensor]) -> np.ndarray:
    """Return layers of one document as one array, in a type that is kept for many documents."""
    stacked = torch.stack(list(of_layers), dim=1).cpu()
    return stacked.numpy() if stacked.dtype == torch.bool else stacked.int().numpy()


def sample_states(
    model: "PreTrainedModel",
    documents: Iterable[Int[Tensor, "positions"]],
    generator: torch.Generator,
    *,
    per_document: int,
    skip: int = 1,
) -> Float[Tensor, "n d_model"]:
    """Raw outputs of random layers at random positions, `per_document` of them in each document."""
    samples = []
    for tokens in documents:
        states = torch.cat([state[skip:] for state in activations(model, tokens).states])
        samples.append(states[torch.randperm(len(states), generator=generator)[:per_document]])
    return torch.cat(samples)


# --- overlap ------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Tokens whose active vectors are compared with the hidden states of other tokens."""

    active: Integer[np.ndarray, "n"]
    target: Integer[np.ndarray, "n"]


def other_document(
    document: Integer[np.ndarray, "tokens"], generator: np.random.Generator
) -> dict[Site, Pairs]:
    """Return each token with a random token of the other documents, the same for all groups.

    Raises ValueError if there is only one document.
    """
    start = np.searchsorted(document, document, side="left")
    end = np.searchsorted(document, document, side="right")
    n = len(document)
    if n == 0 or (end - start == n).any():
        raise ValueError("a baseline from other documents needs at least two that are not empty")
    partner = (end + generator.integers(0, n - (end - start))) % n
    pairs = Pairs(np.arange(n), partner)
    return {"feed_forward": pairs, "attention": pairs}


def published_baseline(
    document: Integer[np.ndarray, "tokens"], generator: np.random.Generator
) -> dict[Site, Pairs]:
    """Return the baselines of the paper's code, which differ between the two sites.

    Hidden states are those of the first 1,000 tokens, from a few documents. Feed-forward vectors
    are those of random tokens of the whole run; in the attention, the same 1,000 are permuted.
    """
    scored = np.arange(min(PUBLISHED_TOKENS, len(document)))
    return {
        "feed_forward": Pairs(generator.choice(len(document), len(scored)), scored),
        "attention": Pairs(generator.permutation(scored), scored),
    }


def overlaps(
    readings: Readings,
    layer: int,
    lists: Mapping[str, TopLists],
    baseline: Mapping[Site, Pairs],
    *,
    k: int | None = None,
) -> list[dict[str, float | str]]:
    """R_k of each group of a layer, with the state after that layer and after the last one.

    `k` is how many tokens of a vector's list count, all by default. Errors are standard errors of
    the means, with documents as the independent units; `difference_error` is that of the difference
    between `aligned` and `random`.
    """
    records, at = [], readings.layers.index(layer)
    for group in (name for name in GROUPS if name in lists):
        site, turns = GROUPS[group]
        union = _active_tokens(readings, at, lists[group], site, check_k(lists[group], k), turns)
        pairs, scored = baseline[site], np.arange(len(baseline[site].active))
        for name, targets in (("same", readings.targets[:, at]), ("last", readings.last)):
            aligned = overlap(union[scored], targets[scored])
            random = overlap(union[pairs.active], targets[pairs.target])
            records.append(
                {"layer": layer, "group": group, "target": name, "tokens": len(scored)}
                | _summary(aligned, random, readings.document[scored])
            )
    return records


def _active_tokens(
    readings: Readings, at: int, lists: TopLists, site: Site, k: int, turns: bool
) -> Integer[np.ndarray, "tokens m*k"]:
    """Return the top k tokens of each token's active vectors; of -w where w counts with a minus."""
    active = readings.active[site]
    rows = rows_by_query_head(lists, readings.widths[site])[active.ids[:, at]]
    low = active.negative[:, at, :, None] & turns
    ids = np.where(low, lists.ids_low[rows, :k], lists.ids_high[rows, :k])
    return ids.reshape(len(ids), -1)


def overlap(
    union: Integer[np.ndarray, "tokens ids"], targets: Integer[np.ndarray, "tokens k"]
) -> Float[np.ndarray, "tokens"]:
    """Return the share of each token's targets that are in its union, where ids may repeat."""
    d_vocab = int(max(union.max(), targets.max())) + 1
    seen = np.zeros((TOKENS_PER_CHUNK, d_vocab), dtype=bool)
    shares = np.empty(len(union))
    for start in range(0, len(union), TOKENS_PER_CHUNK):
        part = slice(start, start + TOKENS_PER_CHUNK)
        ids, of_state = union[part].astype(np.intp), targets[part].astype(np.intp)
        of_block = seen[: len(ids)]
        np.put_along_axis(of_block, ids, True, axis=1)
        shares[part] = np.take_along_axis(of_block, of_state, axis=1).mean(axis=1)
        np.put_along_axis(of_block, ids, False, axis=1)  # cheaper than clearing all of it
    return shares


def _summary(
    aligned: Float[np.ndarray, "tokens"],
    random: Float[np.ndarray, "tokens"],
    document: Integer[np.ndarray, "tokens"],
) -> dict[str, float]:
    return {
        "aligned": float(aligned.mean()),
        "aligned_error": mean_error(aligned, document),
        "random": float(random.mean()),
        "random_error": mean_error(random, document),
        "difference_error": mean_error(aligned - random, document),
    }


def mean_error(
    values: Float[np.ndarray, "tokens"], document: Integer[np.ndarray, "tokens"]
) -> float:
    """Standard error of the mean of tokens that come in documents; NaN for a single document.

    Deviations are summed within documents, so that tokens of one need not be independent.
    """
    sums = np.bincount(document - document.min(), weights=values - values.mean())
    n = len(np.unique(document))
    return float(np.sqrt(np.sum(sums**2) * n / (n - 1)) / len(values)) if n > 1 else float("nan")
