"""Tables over layers and seeds as the few numbers that claims are about."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

# What alignment is compared in: see `alignment.summary`
CONTROLLED = ("mean", "matched", "contrast", "same_depth", "same_depth_contrast", "right_share")


def by_layer(
    table: pd.DataFrame, keys: Sequence[str], *, above: str, below: str
) -> dict[str, dict]:
    """What two columns are on average over layers, and in how many of them the first is larger.

    Nested by the values of `keys`; each number a list over the seeds. `layers_clear` counts layers
    where the difference is more than two standard errors, if the table has `difference_error`.
    """
    summary: dict[str, dict] = {}
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
        nested = summary
        for value in values[:-1]:
            nested = nested.setdefault(value, {})
        nested[values[-1]] = record
    return summary


def robustness(table: pd.DataFrame) -> dict[str, dict]:
    """By kind of vectors and k: the score of E^T and of E+, and the first less the second.

    Each a list over the seeds, over pairs of different vectors and, as published, with each
    vector's product with itself too (`with_diagonal`). Also `crossing`: the largest k at which
    E^T is ahead, 0 if it never is.
    """
    scores: dict[str, dict] = {}
    for vectors, rows in table.groupby("vectors"):
        scores[vectors] = {f"k{k}": _scores(of_k) for k, of_k in rows.groupby("k")}
        wide = rows.pivot(index=["seed", "k"], columns="inverse", values="cosine").reset_index()
        ahead = wide["k"].where(wide["E^T"] > wide["E+"], 0)
        scores[vectors]["crossing"] = ahead.groupby(wide["seed"]).max().tolist()
    return scores


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


Summaries = Mapping[str, Mapping[str, float]]  # a record a group of parameters, and "all"


def aligned(
    summaries: Mapping[str, Summaries], shuffled: Sequence[Summaries]
) -> dict[str, dict[str, dict[str, float | list[float]]]]:
    """Alignment by measure, group and number; of shuffled vocabularies a list over the seeds.

    `above_shuffled`, and of equally wide models `above_features`, are the `CONTROLLED` numbers less
    the control's.
    """
    own = summaries["embedding"]
    result = {**summaries, "shuffled": listed(shuffled)}
    result["above_shuffled"] = {
        group: {key: [record[key] - one[group][key] for one in shuffled] for key in CONTROLLED}
        for group, record in own.items()
    }
    if "features" in summaries:
        result["above_features"] = {
            group: {key: record[key] - summaries["features"][group][key] for key in CONTROLLED}
            for group, record in own.items()
        }
    return result


def listed(summaries: Sequence[Summaries]) -> dict[str, dict[str, list[float]]]:
    """Summaries as one, each number a list."""
    return {
        group: {key: [one[group][key] for one in summaries] for key in record}
        for group, record in summaries[0].items()
    }


def over_training(table: pd.DataFrame) -> dict[str, dict]:
    """Alignment before and after training, by measure, group and number; lists over pairs of seeds.

    `gain` is the difference, and `above_features` and others how far the measure is above each of
    the controls after training.
    """
    ends = {"first": table["step"].min(), "last": table["step"].max()}
    records = {
        end: {
            measure: {
                group: {key: rows[key].tolist() for key in CONTROLLED}
                for group, rows in of_measure.groupby("group", sort=False)
            }
            for measure, of_measure in table[table["step"] == step].groupby("measure", sort=False)
        }
        for end, step in ends.items()
    }
    last = records["last"]
    return {
        "steps": {end: int(step) for end, step in ends.items()},
        **records,
        "gain": {
            measure: {group: _less(last[measure][group], first) for group, first in groups.items()}
            for measure, groups in records["first"].items()
        },
        **{
            f"above_{control}": {
                group: _less(record, last[control][group])
                for group, record in last["embedding"].items()
            }
            for control in last
            if control != "embedding"
        },
    }


def _less(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    return {key: [a - b for a, b in zip(one[key], other[key], strict=True)] for key in one}


# What differences and translations are set against; see `difference.py` and `translate.py`
RANDOM_WORDS = ("signs", "random", "before")
NOTHING_TRANSLATED = ("permuted", "random_kernel", "random_blocks", "before")
PUBLISHED_SUCCESS = 0.7  # accuracy from which on the paper counts a translation as one that works


def lexicon(table: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    """Shares of sentiment words by group, means over layers, each number a list over the seeds.

    `above_controls` is how far D is above the highest of its controls. Also the means over the
    groups that read the stream (K, W_Q, W_K, W_V), `reading`, and that write to it (V, W_O),
    `writing`, and the difference of the two, `reading_over_writing`.
    """
    columns = ["D", *RANDOM_WORDS, "both_ends", "base"]
    means = table.groupby(["group", "seed"], sort=False)[columns].mean()
    shares = {group: _shares(rows) for group, rows in means.groupby(level="group", sort=False)}
    of_layers = means.drop("classifier", level="group", errors="ignore").reset_index("group")
    writes = of_layers["group"].isin(["V", "W_O"])
    for name, rows in (("reading", of_layers[~writes]), ("writing", of_layers[writes])):
        if len(rows):
            shares[name] = _shares(rows.drop(columns="group").groupby(level="seed").mean())
    if {"reading", "writing"} <= shares.keys():
        shares["reading_over_writing"] = _less(shares["reading"], shares["writing"])
    return shares


def _shares(rows: pd.DataFrame) -> dict[str, list[float]]:
    above = rows["D"] - rows[[*RANDOM_WORDS]].max(axis=1)
    return {name: rows[name].tolist() for name in rows} | {"above_controls": above.tolist()}


def translation(table: pd.DataFrame, upper: Sequence[float]) -> dict[str, dict]:
    """Accuracies on the test texts by way of translating, a list over the runs each.

    `above` has what `plain` is above each control, `above_controls` above the best of those that
    translate nothing, `share_of_runs` in how many runs it is so by more than both 95 % intervals,
    and reaches what the paper counts as working. `upper` is the fine-tuned model's own accuracy.
    """
    table = table.assign(seed=table["seed"].fillna(-1))  # the probe has no run
    tested = table[table["part"] == "test"]
    validated = table[table["part"] == "validation"].set_index(["way", "seed", "cut"])["accuracy"]
    variants: dict[str, dict] = {}
    for way, rows in tested.groupby("way", sort=False):
        places = zip(rows["seed"], rows["cut"], strict=True)
        variants[way] = {
            "accuracy": rows["accuracy"].tolist(),
            "cut": rows["cut"].tolist(),
            "validation": [float(validated[way].loc[place]) for place in places],
        }
    runs = tested[tested["seed"] >= 0]
    wide = runs.pivot_table(index="seed", columns="way", values=["accuracy", "low", "high"])
    plain = wide["accuracy"]["plain"]
    nothing = [way for way in NOTHING_TRANSLATED if way in wide["accuracy"]]
    best = wide["accuracy"][nothing].max(axis=1)
    clear = wide["low"]["plain"] > wide["high"][nothing].max(axis=1)
    return {
        "ways": variants,
        "upper": {"accuracy": [*upper], "lost": (np.array(upper) - plain.to_numpy()).tolist()},
        "above": {
            way: (plain - wide["accuracy"][way]).tolist()
            for way in wide["accuracy"]
            if way != "plain"
        },
        "above_controls": (plain - best).tolist() if nothing else [],
        "above_chance": (plain - 0.5).tolist(),
        "share_of_runs": {
            "above_controls": float(clear.mean()) if nothing else None,
            "working": float((plain > PUBLISHED_SUCCESS).mean()),
        },
    }
