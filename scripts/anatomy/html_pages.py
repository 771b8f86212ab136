"""HTML pages of the report with tables of tokens."""

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
    """Return a page with a heading, a list of contents and sections (HTML, not escaped)."""
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
    """Return a table; all columns but the last are escaped, the last is HTML."""
    escaped = rows.copy()
    for column in rows.columns[:-1]:
        escaped[column] = rows[column].astype(str).map(html.escape)
    return escaped.to_html(index=False, escape=False, border=0)


def chips(tokens: Iterable[str], *, marked: Collection[str] = ()) -> str:
    """Return tokens side by side, each in a box that shows the spaces inside it."""
    return "".join(
        f"<i{' class=mark' if token in marked else ''}>{html.escape(token)}</i>" for token in tokens
    )
