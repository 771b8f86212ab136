"""A page of vectors to read: of every layer the pairs whose top tokens are most alike."""

from typing import Any

import numpy as np
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, html_pages
from scripts.anatomy.embedding import parameter_similarity, tokens
from scripts.anatomy.embedding.index import Index, TopLists

SHOWN, TOKENS = 4, 14
INTRODUCTION = (
    "Parameter vectors as their top tokens, without any forward pass. Of each layer and each kind "
    "of pair the {shown} pairs with the most similar lists are shown: the most readable ones, not "
    "typical ones. In common is the Jaccard index of their top {top} tokens, with its mean over "
    "the layer. A dot before a token: it goes on with a word. Offensive words are masked."
)


def main(snakemake: Any) -> None:
    """Lay out every layer."""
    index = Index(snakemake.input.index)
    vocabulary = artifacts.read_table(snakemake.input.vocabulary)
    labels = [tokens.masked(label) for label in vocabulary["label"]]
    sections = {f"Layer {layer}": _layer(index.layer(layer), labels) for layer in index.layers}
    page = html_pages.page(
        f"Vectors of {snakemake.wildcards.model}",
        INTRODUCTION.format(shown=SHOWN, top=index.top),
        sections,
    )
    with artifacts.writing(snakemake.output[0]) as path:
        path.write_text(page, encoding="utf-8")


def _layer(lists: dict[str, TopLists], labels: list[str]) -> str:
    rows = []
    for one, other in (pair for pair in parameter_similarity.PAIRS if set(pair) <= set(lists)):
        first, second = parameter_similarity.paired(lists[one], lists[other])
        alike = parameter_similarity.jaccard(first.ids_high, second.ids_high)
        for place in np.argsort(-alike, kind="stable")[:SHOWN]:
            for name, side in ((one, first), (other, second)):
                rows.append(
                    {
                        "vector": _name(name, side, place),
                        "in common": f"{alike[place]:.2f} (mean {alike.mean():.3f})",
                        "top tokens": html_pages.chips(
                            labels[i] for i in side.ids_high[place, :TOKENS]
                        ),
                    }
                )
    return html_pages.table(pd.DataFrame(rows))


def _name(group: str, lists: TopLists, place: int) -> str:
    head = lists.head[place]
    return f"{group} {lists.index[place]}" + (f" of head {head}" if head >= 0 else "")


job.run(main, globals())
