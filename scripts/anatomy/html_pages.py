"""Pages of the report that are read rather than looked at: tables of tokens, as HTML."""

import html
from collections.abc import Collection, Iterable, Mapping
from string import Template

import pandas as pd

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 84rem;
  padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; font-size: .85rem; }
td:not(:last-child) { white-space: nowrap; font-variant-numeric: tabular-nums; color: #444; }
nav a { margin-right: .6rem; }
i { font-style: normal; background: #eef3f7; border-radius: .3rem; padding: 0 .3rem;
  margin-right: .25rem; white-space: nowrap; display: inline-block; }
i.mark { background: #ffdf9e; }
"""
PAGE = Template("""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>$title</title><style>$style</style></head>
<body>
<h1>$title</h1>
<p>$introduction</p>
<nav>$contents</nav>
$body
</body>
</html>
""")


def page(title: str, introduction: str, sections: Mapping[str, str]) -> str:
    """A page with a heading, a list of contents and sections, which are HTML already."""
    numbered = list(enumerate(sections.items()))
    return PAGE.substitute(
        title=html.escape(title),
        introduction=html.escape(introduction),
        style=STYLE,
        contents="".join(f'<a href="#s{n}">{html.escape(name)}</a>' for n, (name, _) in numbered),
        body="\n".join(
            f'<h2 id="s{n}">{html.escape(name)}</h2>\n{section}' for n, (name, section) in numbered
        ),
    )


def table(rows: pd.DataFrame) -> str:
    """A table; the last column is HTML already, the others are text."""
    plain = rows.copy()
    for column in rows.columns[:-1]:
        plain[column] = rows[column].astype(str).map(html.escape)
    return plain.to_html(index=False, escape=False, border=0)


def chips(tokens: Iterable[str], *, marked: Collection[str] = ()) -> str:
    """Tokens side by side, each in a box of its own, so that spaces inside them can be seen."""
    return "".join(
        f"<i{' class=mark' if token in marked else ''}>{html.escape(token)}</i>" for token in tokens
    )
