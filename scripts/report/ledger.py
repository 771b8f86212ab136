"""Write the ledger as a page: claims, measured and expected values, verdicts."""

import html
from string import Template
from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Fill the template of the page, claims that are not reproduced first."""
    table = artifacts.read_table(snakemake.input.claims)
    order = ["not reproduced", "reproduced", "not testable at this scale"]
    table = table.sort_values("verdict", key=lambda v: v.map(order.index), kind="stable")
    page = Template((job.ROOT / "report/ledger.html").read_text("utf-8"))
    verdicts = table["verdict"].value_counts()
    text = page.substitute(
        total=len(table),
        counts=", ".join(f"<b>{count}</b> {verdict}" for verdict, count in verdicts.items()),
        scale=html.escape(snakemake.params.scale),
        rows="\n".join(_row(row) for row in table.to_dict("records")),
    )
    with artifacts.writing(snakemake.output[0]) as path:
        path.write_text(text, encoding="utf-8")


def _row(row: dict[str, Any]) -> str:
    cells = [
        row["id"],
        row["statement"],
        row["source"],
        _number(row["value"]),
        f"{_number(row['low'])} to {_number(row['high'])}" if row["seeds"] > 1 else "",
        row["expected"],
    ]
    kind = row["verdict"].split(" at ")[0].replace(" ", "-")
    chip = f'<span class="{kind}">{html.escape(row["verdict"])}</span>'
    inner = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
    return f"<tr>{inner}<td>{chip}</td></tr>"


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.5g}"


job.run(main, globals())
