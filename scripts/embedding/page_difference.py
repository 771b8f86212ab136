"""A page of difference words: of every layer and group the vectors that changed most, as tokens."""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, html_pages
from scripts.anatomy.embedding import tokens

INTRODUCTION = (
    "What fine-tuning changed, after less before, as tokens: of each layer and group of parameters "
    "the vectors with the largest change, their top tokens (+) and those of their negative (-). "
    "The sign of a vector means nothing by itself. Words of the sentiment lexicon are marked, and "
    "counted in the third column. {seed}Offensive words are masked."
)


def main(snakemake: Any) -> None:
    """Lay out the linear layer and every layer."""
    table = artifacts.read_table(snakemake.input.words)
    sections = {
        "Linear layer" if layer < 0 else f"Layer {layer}": html_pages.table(
            pd.DataFrame([_row(row) for row in rows.to_dict("records")])
        )
        for layer, rows in table.groupby("layer")
    }
    seed = snakemake.params.seed
    page = html_pages.page(
        f"What fine-tuning changed: {snakemake.wildcards.run}",
        INTRODUCTION.format(seed=f"Seed {seed} is shown. " if snakemake.params.trained else ""),
        sections,
    )
    with artifacts.writing(snakemake.output[0]) as path:
        path.write_text(page, encoding="utf-8")


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table, with words that pages should not show masked."""
    of_head = f" of head {row['head']}" if row["head"] >= 0 else ""
    shown = [tokens.masked(token) for token in row["tokens"]]
    marked = {token for token, inside in zip(shown, row["sentiment"], strict=True) if inside}
    return {
        "vector": f"{row['group']} {row['index']}{of_head}",
        "sign": row["sign"],
        "of sentiment": f"{sum(row['sentiment'])} of {len(row['sentiment'])}",
        "top tokens": html_pages.chips(shown, marked=marked),
    }


job.run(main, globals())
