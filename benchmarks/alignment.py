"""Compare two methods to score all pairs of layers of two models at BERT-base size.

The first takes correlations over tokens from covariances of the embeddings (kernels). The second
projects every vector onto the vocabulary, standardises the projections, and multiplies those of two
layers. Both are timed on a part of the vectors of two layers and scaled up: costs per layer by the
number of vectors, costs per pair of layers by the number of pairs of vectors. A check in double
precision shows that both agree. Weights are random. Memory is the peak of a process that makes the
weights and scores all pairs of layers of all groups; its seconds are reported too.
"""

import math
import re
import subprocess
import sys
import time

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.comparison import ROOT, Result, seconds
from scripts.anatomy import seeding
from scripts.anatomy.embedding import alignment
from scripts.anatomy.embedding.alignment import Kernels
from scripts.anatomy.embedding.views import LayerView, ModelView

D_VOCAB, D_MODEL, D_FF, HEADS, LAYERS = 30_522, 768, 3072, 12, 12
GROUP_SIZES = (D_FF, D_FF, D_MODEL, D_MODEL, D_MODEL, D_MODEL)  # K, V, W_Q, W_K, W_V, W_O
PART = 1024  # vectors of a layer that are timed
THREADS = 2

Vectors = Float[Tensor, "n d_model"]


def measure() -> Result:
    """Check that both methods agree, and time them."""
    torch.set_num_threads(THREADS)
    peak, whole = whole_run()
    W_A, W_B, X, Y = (normal(rows, D_MODEL, seed=seed) for seed, rows in enumerate(
        (D_VOCAB, D_VOCAB, PART, PART)
    ))  # fmt: skip
    check(*(part.double() for part in (W_A, W_B, X[:100], Y[:100])))
    kernel = alignment.kernel(W_A, W_B)
    kept = alignment.sides(X, Y, kernel), (projected(X, W_A), projected(Y, W_B))
    once, by_layer, by_pair, projecting, multiplying = seconds(
        lambda: alignment.kernel(W_A, W_B),
        lambda: alignment.sides(X, Y, kernel),
        lambda: alignment.mean_size(*kept[0]),
        lambda: (projected(X, W_A), projected(Y, W_B)),
        lambda: alignment.mean_size(*kept[1]),
        repeats=3,
    )
    layers = LAYERS * sum(n / PART for n in GROUP_SIZES)
    pairs = LAYERS**2 * sum((n / PART) ** 2 for n in GROUP_SIZES)
    ours = once + layers * by_layer + pairs * by_pair
    theirs = layers * projecting + pairs * multiplying
    return Result(
        what=f"scores of {LAYERS} x {LAYERS} layers, {D_MODEL} and {D_FF} wide, over {D_VOCAB:,} "
        "tokens: kernels against projections",
        ratio=theirs / ours,
        unit="times",
        aim=10,
        details={
            "kernels, scaled": ours,
            "kernels, all of it, once": whole,
            "projections, scaled": theirs,
            "peak MB (below 2,000)": peak,
        },
        note=f"{THREADS} threads; {PART:,} vectors of a layer timed and scaled to all groups; "
        "equal to 1e-8 in double precision",
    )


def projected(X: Vectors, W_E: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "n tokens"]:
    """Return standardised projections, the factors of correlations."""
    rows = X @ W_E.T
    rows -= rows.mean(dim=1, keepdim=True)
    return rows.div_(rows.norm(dim=1, keepdim=True))


def check(
    W_A: Float[Tensor, "tokens d_model"],
    W_B: Float[Tensor, "tokens d_model"],
    X: Vectors,
    Y: Vectors,
) -> None:
    """Raise AssertionError unless both methods agree."""
    correlations = alignment.correlations(X, Y, alignment.kernel(W_A, W_B))
    torch.testing.assert_close(
        correlations, projected(X, W_A) @ projected(Y, W_B).T, rtol=0, atol=1e-8
    )


def normal(*shape: int, seed: int) -> Tensor:
    """Return random weights with a common direction, as real embeddings have."""
    return torch.randn(shape, generator=seeding.torch_generator(seed, "alignment")).add_(0.1)


def model(seed: int) -> ModelView:
    """Return a model at BERT-base size with random weights and without biases."""
    d_head = D_MODEL // HEADS
    shapes = {
        "K": (D_FF, D_MODEL), "V": (D_FF, D_MODEL),
        **dict.fromkeys(("W_Q", "W_K", "W_V"), (HEADS, D_MODEL, d_head)),
        "W_O": (HEADS, d_head, D_MODEL),
    }  # fmt: skip
    none = torch.zeros(0)
    layers = []
    for number in range(LAYERS):
        weights = {
            name: normal(*shape, seed=seed * 100 + number * 6 + index)
            for index, (name, shape) in enumerate(shapes.items())
        }
        keys = {"key": weights.pop("K")}
        biases = dict.fromkeys(("b_out", "b_Q", "b_K", "b_V", "b_O"), none)
        layers.append(
            LayerView(
                K=keys, b_in={"key": none}, scale=1, attention_norm=None, ff_norm=None,
                **weights, **biases,
            )
        )  # fmt: skip
    W_E = normal(D_VOCAB, D_MODEL, seed=seed + 1000)
    return ModelView("bert", W_E, W_E, layers, False, None, "gelu")


def run_whole() -> None:
    """Score all pairs of layers of two models; print the seconds and the memory of the process."""
    torch.set_num_threads(THREADS)
    A, B = model(0), model(1)
    began = time.perf_counter()
    kernel = alignment.kernel(A.W_E, B.W_E)
    alignment.model_scores(A, B, Kernels(kernel, kernel))
    print(f"seconds {time.perf_counter() - began}")
    if sys.platform.startswith("linux"):
        print(open("/proc/self/status", encoding="utf-8").read())


def whole_run() -> tuple[float, float]:
    """Return the peak memory in MB (NaN except on Linux) and the seconds of `run_whole`."""
    code = "from benchmarks import alignment; alignment.run_whole()"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    peak_line = re.search(r"VmHWM:\s*(\d+) kB", printed)
    peak = int(peak_line[1]) * 1024 / 1e6 if peak_line else math.nan
    return peak, float(re.search(r"seconds (\S+)", printed)[1])
