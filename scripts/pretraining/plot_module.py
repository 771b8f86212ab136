"""Draw the LEGO attention module, with the maps of its three kinds of heads on an example.

The maps are the module's own, of random weights: a learned head's attention depends on queries and
keys, an association head's on the tokens alone, and a convolution head's on the distance alone.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch

from scripts import job
from scripts.anatomy import figures

WORDS = "[CLS] the cat saw the dog and the dog saw a cat [SEP]".split()
WINDOW = 5
BOX = {"boxstyle": "round,pad=0.5", "edgecolor": "black", "linewidth": 1.0}
BLUE, ORANGE, GREEN = figures.PALETTE[0], figures.PALETTE[1], figures.PALETTE[2]
# kind, colour, its own parts, its operations over T positions of width d
KINDS = (
    ("learned", BLUE, "queries, keys, values", r"$6\,T\,d\,d_l + 4\,T^2 d_l$"),
    ("association", ORANGE, "values; the map is the ids'", r"$2\,T\,d\,d_a$ + sums"),
    ("convolution", GREEN, "values; a kernel of w taps", r"$2\,T\,d\,d_c + 2\,T\,w\,d_c$"),
)
TITLES = ("a learned head", "an association head", "a convolution head")


def main(snakemake: Any) -> None:
    """Draw the pathways above an example of each kind's map."""
    figures.style()
    figure = plt.figure(figsize=(13, 9.5))
    upper, lower = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    _pathways(upper.subplots())
    for ax, title, weights in zip(lower.subplots(1, 3), TITLES, _maps(), strict=True):
        _map(ax, title, weights)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _pathways(ax: plt.Axes) -> None:
    """Draw the input, one box per kind, and the output, from left to right."""
    ax.axis("off")
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.05, 1.05))
    ax.text(0.04, 0.5, "hidden states\nT × d", ha="center", va="center", bbox=_box("white"))
    ax.text(0.04, 0.12, "token ids", ha="center", va="center", bbox=_box("white"))
    ax.text(0.72, 0.5, "side by side", ha="center", va="center", bbox=_box("white"), rotation=90)
    ax.text(0.84, 0.5, "$W_O$\n$2\\,T\\,d^2$", ha="center", va="center", bbox=_box("white"))
    ax.text(0.97, 0.5, "output\nT × d", ha="center", va="center", bbox=_box("white"))
    for height, (kind, colour, own, cost) in zip((0.85, 0.5, 0.15), KINDS, strict=True):
        text = f"{kind} heads\n{own}\noperations: {cost}"
        light = (*colour, 0.25)
        ax.text(0.41, height, text, ha="center", va="center", bbox=_box(light), linespacing=1.5)
        _arrow(ax, (0.105, 0.5), (0.31, height), colour)
        _arrow(ax, (0.51, height), (0.7, 0.5), colour)
    _arrow(ax, (0.085, 0.14), (0.31, 0.45), ORANGE, dashed=True)
    _arrow(ax, (0.735, 0.5), (0.8, 0.5), "black")
    _arrow(ax, (0.88, 0.5), (0.925, 0.5), "black")
    ax.set_title(
        "The module: a layer's width $d = d_l + d_a + d_c$ is shared out to heads of three kinds"
    )


def _box(colour: object) -> dict[str, object]:
    return BOX | {"facecolor": colour}


def _arrow(
    ax: plt.Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: object,
    *,
    dashed: bool = False,
) -> None:
    style = "dashed" if dashed else "solid"
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=14, color=colour, linewidth=1.5,
            linestyle=style, shrinkA=2, shrinkB=2,
        )
    )  # fmt: skip


def _maps() -> list[np.ndarray]:
    """Return a map of each kind for the example, from the module's own functions."""
    import torch  # here, since drawings do not wait for it

    from scripts.anatomy import lego_attention, seeding

    generator = seeding.torch_generator(0, "drawing")
    tokens = torch.tensor([[sorted(set(WORDS)).index(word) for word in WORDS]])
    special = torch.tensor([sorted(set(WORDS)).index(word) for word in ("[CLS]", "[SEP]")])
    Q, K = torch.randn(2, 1, len(WORDS), 8, generator=generator)
    learned = lego_attention.attend(Q, K, K, heads=1, maps=True)[1][0, 0]
    kernel = torch.randn(1, WINDOW, generator=generator)
    return [
        part.numpy()
        for part in (
            learned,
            lego_attention.association(tokens, special)[0],
            lego_attention.convolution(kernel, len(WORDS))[0],
        )
    ]


def _map(ax: plt.Axes, title: str, weights: np.ndarray) -> None:
    """Draw a map, queries by keys, with the words."""
    limit = np.abs(weights).max()
    image = ax.imshow(weights, cmap="RdBu_r", vmin=-limit, vmax=limit)
    indices = range(len(WORDS))
    ax.set_xticks(indices, labels=WORDS, rotation=90, fontsize=9)
    ax.set_yticks(indices, labels=WORDS, fontsize=9)
    ax.set(title=title, xlabel="reads from (key)", ylabel="position (query)")
    ax.figure.colorbar(image, ax=ax, shrink=0.7, label="weight")


job.run(main, globals())
