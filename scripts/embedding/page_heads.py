"""A page of heads to read: the top pairs of tokens of what each writes and where it attends."""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, html_pages
from scripts.anatomy.embedding import tokens

PAIRS = 12
TITLES = {"VO": "writes (attended to → promoted)", "QK": "attends (query → key)"}
INTRODUCTION = (
    "The largest entries of each head's matrices over the vocabulary: which token's presence "
    "promotes which, and which token attends to which. The copying score is that of the atlas. "
    "Offensive words are masked."
)


def main(snakemake: Any) -> None:
    """Lay out every layer."""
    heads = artifacts.read_table(snakemake.input.heads)
    pairs = artifacts.read_table(snakemake.input.pairs)
    vocabulary = artifacts.read_table(snakemake.input.vocabulary)
    labels = [tokens.masked(label) for label in vocabulary["label"]]
    pairs = pairs[(pairs["order"] == "largest") & (pairs["rank"] < PAIRS)]
    shown = {
        key: html_pages.chips(f"{labels[p.row]} → {labels[p.column]}" for p in rows.itertuples())
        for key, rows in pairs.groupby(["layer", "head", "matrix"])
    }
    sections = {}
    for layer, rows in heads.groupby("layer"):
        table = pd.DataFrame(
            {
                "head": [f"{row.head} {TITLES[row.matrix]}" for row in rows.itertuples()],
                "copying score": rows["copying_score"].map("{:.2f}".format),
                "effective rank": rows["effective_rank"].map("{:.1f}".format),
                "top pairs": [
                    shown.get((layer, row.head, row.matrix), "") for row in rows.itertuples()
                ],
            }
        )
        sections[f"Layer {layer}"] = html_pages.table(table)
    page = html_pages.page(f"Heads of {snakemake.wildcards.model}", INTRODUCTION, sections)
    with artifacts.writing(snakemake.output[0]) as path:
        path.write_text(page, encoding="utf-8")


job.run(main, globals())
