"""Whether parameters that belong together have similar top tokens (Appendix B.1 of the paper).

Sim_k(x, y) is the Jaccard index of the top k tokens of x E and of y E. It is measured on pairs of a
layer: a key and its value, a column of W_V and the row of W_O that it is multiplied with in
W_V W_O, and likewise the columns of W_Q and W_K. The baseline shuffles the partners.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal

import numpy as np
from jaxtyping import Float, Integer

from scripts.anatomy.embedding.index import TopLists, check_k, largest, rows_by_query_head
from scripts.anatomy.statistics import standard_error

PAIRS = (
    ("K", "V"),
    ("K_gate", "V"),
    ("K_up", "V"),
    ("K_gate", "K_up"),
    ("W_V", "W_O"),
    ("W_Q", "W_K"),
)

Shuffle = Literal["layer", "published"]


def jaccard(
    one: Integer[np.ndarray, "pairs k"], other: Integer[np.ndarray, "pairs k"]
) -> Float[np.ndarray, "pairs"]:
    """Jaccard index of each pair of rows, as sets of k different ids."""
    both = np.sort(np.concatenate([one, other], axis=1), axis=1)
    shared = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return shared / (both.shape[1] - shared)


def pair_similarities(
    lists: Mapping[str, TopLists],
    generator: np.random.Generator,
    *,
    k: int | None = None,
    signed: bool = False,
    shuffle: Shuffle = "layer",
) -> list[dict[str, float | str]]:
    """Return the mean Sim_k of the pairs of a layer, and with their partners shuffled.

    One record for each of `PAIRS` that the layer has. Errors are standard errors over pairs. Top
    tokens are those of largest |w E| as in the paper's code, or of largest w E if `signed`. `layer`
    shuffles all partners in the layer. `published` does so too but for W_Q and W_K, where the
    paper's code shuffles inside head 0, and compares with W_Q of head 0 only.
    """
    ids = {
        name: top.ids_high[:, : check_k(top, k)] if signed else largest(top, k)
        for name, top in lists.items()
    }
    records = []
    for one, other in (pair for pair in PAIRS if set(pair) <= set(lists)):
        rows = _paired_rows(lists[one], lists[other])
        aligned = jaccard(*(ids[name][at] for name, at in zip((one, other), rows, strict=True)))
        at = rows
        if shuffle == "published" and one == "W_Q":
            head_0 = lists[one].head == 0
            at = [of_pairs[head_0] for of_pairs in rows]
        shuffled = jaccard(ids[one][at[0]], ids[other][generator.permutation(at[1])])
        records.append(
            {"pair": f"{one}-{other}", "pairs": len(aligned)}
            | {"similarity": aligned.mean(), "error": standard_error(aligned)}
            | {"shuffled": shuffled.mean(), "shuffled_error": standard_error(shuffled)}
        )
    return records


def _paired_rows(one: TopLists, other: TopLists) -> list[Integer[np.ndarray, "pairs"]]:
    """Return the rows of two groups that belong together, one pair per vector of the larger."""
    n = max(len(one.head), len(other.head))
    return [rows_by_query_head(vectors, n) for vectors in (one, other)]


def paired(one: TopLists, other: TopLists) -> list[TopLists]:
    """Return the lists of two groups side by side, vectors that belong together in the same row."""
    return [
        TopLists(**{field.name: getattr(group, field.name)[rows] for field in fields(TopLists)})
        for group, rows in zip((one, other), _paired_rows(one, other), strict=True)
    ]
