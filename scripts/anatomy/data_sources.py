"""What the studies share about a user's sources of text: formats of tables, and early checks."""

from pathlib import Path

from scripts.anatomy.settings import inconsistent, is_file, is_folder

TABLES = {".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
"""The suffixes of tables, with the names of their formats."""


def check_file(path: Path) -> None:
    """Raise if there is no such file."""
    if not is_file(path):
        raise inconsistent("path", f"no such file: {path}")


def check_table(path: Path) -> None:
    """Raise unless the suffix of a file is that of a table."""
    if path.suffix not in TABLES:
        raise inconsistent("path", f"{path} ends in none of {', '.join(TABLES)}")


def check_pinned(name: str, revision: str | None) -> None:
    """Raise for a data set of the hub without a commit, since the data set could change."""
    if revision is None and not is_folder(Path(name)):
        raise inconsistent("revision", f"{name} is no folder, and on the hub needs a commit")
