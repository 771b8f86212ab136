"""The style of all figures, safe for the colour-blind, and what their scripts share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.anatomy import artifacts
from scripts.anatomy.statistics import mean_interval

PALETTE = sns.color_palette("colorblind")
CLASS_COLOURS = {
    "same word": PALETTE[0],
    "same topic": PALETTE[2],
    "different topic": PALETTE[3],
}


def style() -> None:
    """Set the style of all figures; call this before drawing."""
    matplotlib.use("Agg")
    sns.set_theme(
        context="notebook",
        style="ticks",
        palette="colorblind",
        rc={
            "figure.constrained_layout.use": True,
            "figure.dpi": 150,
            "savefig.bbox": "tight",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "legend.frameon": False,
            "svg.hashsalt": "transformer-anatomy",  # equal figures are equal files
            "svg.fonttype": "none",
        },
    )


def save(figure: Figure, png: str | Path, svg: str | Path) -> None:
    """Write a figure as PNG and as SVG, and close it."""
    for path, metadata in ((png, {"Software": None}), (svg, {"Date": None})):
        with artifacts.writing(path) as temporary:
            figure.savefig(temporary, metadata=metadata)
    plt.close(figure)


def by_variant(names: Sequence[str], paths: Sequence[str]) -> dict[str, list[str]]:
    """Return artifacts by variant, from a list that has all seeds of a variant in a row."""
    seeds = len(paths) // len(names)
    return {
        name: list(paths[number * seeds : (number + 1) * seeds])
        for number, name in enumerate(names)
    }


def offsets(count: int, step: float) -> list[float]:
    """Return the positions of things drawn side by side, `step` apart and centred on 0."""
    return [(number - (count - 1) / 2) * step for number in range(count)]


def guide(ax: Axes, *, x: float | None = None, y: float | None = None) -> None:
    """Draw a dotted grey line at a value to compare with."""
    draw, value = (ax.axvline, x) if y is None else (ax.axhline, y)
    draw(value, color="grey", linewidth=0.8, linestyle=":")


def legend_above(ax: Axes, *, ncols: int, **options: Any) -> None:
    """Draw the legend of a panel above the whole figure."""
    ax.figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper center", ncols=ncols, **options
    )


def matrix(
    ax: Axes,
    values: Float[np.ndarray, "rows columns"],
    *,
    boundaries: Sequence[int],
    title: str,
    label: str,
    rows: str = "word",
    columns: str = "word",
    limit: float | None = None,
) -> None:
    """Draw a heat map around 0, with lines between topics.

    The scale ends at `limit`; by default at the 99th percentile of the absolute values.
    """
    limit = limit or float(np.quantile(np.abs(values), 0.99)) or 1.0
    image = ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    for boundary in boundaries:
        for line in (ax.axhline, ax.axvline):
            line(boundary - 0.5, color="black", linewidth=0.4, alpha=0.5)
    ends = [0, *boundaries, len(values)]
    middles = [(a + b - 1) / 2 for a, b in zip(ends, ends[1:], strict=False)]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(middles, labels=range(len(middles)))
        axis.set_tick_params(length=0)
    ax.set(title=title, xlabel=f"topic of the {columns}", ylabel=f"topic of the {rows}")
    sns.despine(ax=ax, left=True, bottom=True)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=label)


def band(
    ax: Axes,
    table: pd.DataFrame,
    column: str,
    *,
    x: str = "step",
    label: str | None = None,
    colour: object = None,
    **options: object,
) -> None:
    """Draw a curve over `x`: the mean over seeds with the range from lowest to highest."""
    grouped = table.groupby(x)[column]
    mean = grouped.mean()
    (line,) = ax.plot(mean.index, mean, label=label, color=colour, **options)
    ax.fill_between(
        mean.index, grouped.min(), grouped.max(), color=line.get_color(), alpha=0.2, linewidth=0
    )


def dots(
    ax: Axes,
    values: Mapping[str, Sequence[float]],
    *,
    offset: float = 0.0,
    colour: object = None,
    label: str | None = None,
) -> None:
    """Draw the mean of each name with its 95 % interval over seeds, from top to bottom."""
    for row, seeds in enumerate(values.values()):
        mean, low, high = mean_interval(np.array(seeds, dtype=float))
        ax.errorbar(
            mean,
            row + offset,
            xerr=[[mean - low], [high - mean]],
            fmt="o",
            color=colour,
            label=label if row == 0 else None,
            capsize=2,
        )
    ax.set_yticks(range(len(values)), labels=list(values))
    ax.set_ylim(len(values) - 0.5, -0.5)


def layer_bars(ax: Axes, table: pd.DataFrame, columns: Mapping[str, str]) -> None:
    """Draw bars side by side for each layer, one per column; `columns` maps names to labels.

    Heights are means over the rows of a layer; whiskers reach from the lowest to the highest.
    """
    layers = table.groupby("layer")
    positions = np.arange(len(layers))
    width = 0.8 / len(columns)
    shifts = offsets(len(columns), width)
    for shift, (column, label) in zip(shifts, columns.items(), strict=True):
        mean = layers[column].mean().to_numpy()
        reach = np.stack([mean - layers[column].min(), layers[column].max() - mean])
        reach = reach.clip(min=0)  # the mean of equal numbers may differ by rounding
        ax.bar(positions + shift, mean, width, yerr=reach, label=label, error_kw={"linewidth": 0.8})
    ax.set_xticks(positions, labels=list(layers.groups), fontsize="small")
    ax.set_xlabel("layer")


def layer_panels(
    tables: Mapping[str, pd.DataFrame],
    kind: str,
    columns: Mapping[str, str],
    *,
    title: Callable[[str], str],
    ylabel: str,
) -> Figure:
    """A figure of `layer_bars`: a row a model, a panel for each value of the column `kind`."""
    wide = max(table[kind].nunique() for table in tables.values())
    figure, axes = plt.subplots(
        len(tables), wide, figsize=(1 + 3.1 * wide, 0.8 + 2.7 * len(tables)), squeeze=False
    )
    for row, (name, table) in zip(axes, tables.items(), strict=True):
        for ax in row:
            ax.set_visible(False)
        for ax, (value, rows) in zip(row, table.groupby(kind, sort=False), strict=False):
            ax.set_visible(True)
            layer_bars(ax, rows, columns)
            ax.set_title(f"{name}: {title(value)}")
        row[0].set_ylabel(ylabel)
    legend_above(axes[0, 0], ncols=2)
    return figure


def plain(text: str) -> str:
    """Return a text from outside for a figure, with $ escaped so that no part is a formula."""
    return text.replace("$", r"\$")


SPELLINGS = {"cross entropy": "cross-entropy", "sgd": "SGD", "adam": "Adam", "l2": "L2"} | {
    "bert": "BERT", "one hot": "one-hot"
}  # fmt: skip


def words(name: str) -> str:
    """Return a name of the configuration as words."""
    text = name.replace("_", " ")
    for plain, spelling in SPELLINGS.items():
        text = text.replace(plain, spelling)
    return text


def parameter(group: str) -> str:
    """Return a group of parameters (`K_gate`, `W_O`) as a formula."""
    letter, _, index = group.partition("_")
    if not index:
        return f"${letter}$"
    return f"${letter}_{{{index}}}$" if len(index) == 1 else f"${letter}$ ({index})"
