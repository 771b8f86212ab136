"""Tables over layers and seeds as the few numbers that claims are about."""

from collections.abc import Sequence

import pandas as pd


def by_layer(
    table: pd.DataFrame, keys: Sequence[str], *, above: str, below: str
) -> dict[str, dict]:
    """What two columns are on average over layers, and in how many of them the first is larger.

    Nested by the values of `keys`; each number a list over the seeds. `layers_clear` counts layers
    where the difference is more than two standard errors, if the table has `difference_error`.
    """
    found: dict[str, dict] = {}
    for values, rows in table.groupby(list(keys), sort=False):
        of_seeds = rows.groupby("seed")
        means = of_seeds[[above, below]].mean()
        difference = rows[above] - rows[below]
        record = {
            above: means[above].tolist(),
            below: means[below].tolist(),
            "ratio": (means[above] / means[below]).tolist(),
            "layers": len(rows) // of_seeds.ngroups,
            "layers_above": (difference > 0).groupby(rows["seed"]).mean().tolist(),
        }
        if "difference_error" in rows:
            clear = difference > 2 * rows["difference_error"]
            record["layers_clear"] = clear.groupby(rows["seed"]).mean().tolist()
        place = found
        for value in values[:-1]:
            place = place.setdefault(value, {})
        place[values[-1]] = record
    return found


def robustness(table: pd.DataFrame) -> dict[str, dict]:
    """By kind of vectors and k: the score of E^T and of E+, and the first less the second.

    Each a list over the seeds, over pairs of different vectors and, as published, with each
    vector's product with itself too (`with_diagonal`). Also `crossing`: the largest k at which
    E^T is ahead, 0 if it never is.
    """
    found: dict[str, dict] = {}
    for vectors, rows in table.groupby("vectors"):
        found[vectors] = {f"k{k}": _scores(of_k) for k, of_k in rows.groupby("k")}
        wide = rows.pivot(index=["seed", "k"], columns="inverse", values="cosine").reset_index()
        ahead = wide["k"].where(wide["E^T"] > wide["E+"], 0)
        found[vectors]["crossing"] = ahead.groupby(wide["seed"]).max().tolist()
    return found


def _scores(rows: pd.DataFrame) -> dict[str, list[float] | dict[str, list[float]]]:
    """Scores of both inverses at one k, a list over the seeds each."""

    def of(column: str) -> dict[str, list[float]]:
        wide = rows.pivot(index="seed", columns="inverse", values=column)
        gain = wide["E^T"] - wide["E+"]
        return {
            "transpose": wide["E^T"].tolist(),
            "pseudo": wide["E+"].tolist(),
            "gain": gain.tolist(),
        }

    return of("cosine") | {"with_diagonal": of("cosine_with_diagonal")}
