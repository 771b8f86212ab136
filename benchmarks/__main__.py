"""Run benchmarks: `python -m benchmarks [NAME ...]`, all of them without a name.

Each number is a ratio of two things measured in turn in the same run, so that it does not depend on
the speed of the machine. The table is printed and written to benchmarks/results/latest.json.
"""

import argparse
import importlib
from dataclasses import asdict

from benchmarks.comparison import ROOT, Result
from scripts.anatomy import artifacts

NAMES = (
    *("sampler", "attention", "structure", "training", "pairs", "alignment", "lego", "probing"),
    *("modules", "start", "overhead"),
)
LATEST = ROOT / "benchmarks/results/latest.json"


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=", ".join(NAMES))
    parser.add_argument(
        "--full", action="store_true", help="overhead: run config.yaml itself (minutes)"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(NAMES):
        parser.error(f"no comparison named {unknown.pop()}; there are {', '.join(NAMES)}")
    results = {}
    for name in arguments.name or NAMES:
        options = {"full": True} if name == "overhead" and arguments.full else {}
        # imported by name, since each needs large modules that the others do not
        results[name] = importlib.import_module(f"benchmarks.{name}").measure(**options)
        print(line(name, results[name]), flush=True)
    artifacts.write_json(LATEST, {n: asdict(r) | {"met": r.met} for n, r in results.items()})


def line(name: str, result: Result) -> str:
    """Return a line of the table, with its details on the lines below."""
    sign = "at most" if result.unit == "%" else "at least"
    aim = "no aim" if result.aim is None else f"aim {sign} {result.aim:,.0f} {result.unit}"
    verdict = {True: "met", False: "NOT MET", None: ""}[result.met]
    details = ", ".join(f"{key} {_short(value)}" for key, value in result.details.items())
    head = f"{name:<10} {result.ratio:>8,.1f} {result.unit:<6} {aim:<24} {verdict}"
    return "\n    ".join([head.rstrip(), result.what, details, result.note]) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
