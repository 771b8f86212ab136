"""Find the parameter vectors that are nearest to a concept, given as words.

    python scripts/embedding/search.py results/embedding/minilm/plain/index.parquet "hand finger"

Lists FF keys and values, sub-heads and singular directions, with their top tokens. Reads the
index and the vocabulary beside it, not the model.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run by its path, not as a module

from scripts.anatomy import artifacts  # noqa: E402
from scripts.anatomy.embedding import search, tokens  # noqa: E402
from scripts.anatomy.embedding.index import Index  # noqa: E402


def main() -> None:
    """Print the matches, best first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path, help="an index.parquet of the embedding study")
    parser.add_argument("words", help="one or more words, separated by spaces")
    parser.add_argument("--top", type=int, default=20, help="how many vectors (20)")
    parser.add_argument("--groups", nargs="+", help="only these, such as K V W_V W_O VO_out")
    parser.add_argument("--tokens", type=int, default=10, help="how many top tokens to show (10)")
    arguments = parser.parse_args()
    try:
        index = Index(arguments.index)
        # without pandas, whose import takes as long as the search
        tokens_of = arguments.index.with_name("vocabulary.parquet")
        vocabulary = artifacts.read_parquet(tokens_of)
        texts, readable = vocabulary["text"].to_pylist(), vocabulary["readable"].to_numpy()
        words = search.token_ids(texts, arguments.words.split(), readable)
        matches = search.search(index, words, top=arguments.top, groups=arguments.groups)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    labels = vocabulary["label"].to_pylist()
    for match in matches:
        name = match.group + (f" head {match.head}" if match.head >= 0 else "")
        shown = " ".join(tokens.masked(labels[i]) for i in match.ids[: arguments.tokens])
        sign = "-" if match.sign < 0 else " "
        print(f"{match.score:6.3f}  {sign}layer {match.layer:2} {name:18} {match.index:5}  {shown}")
    if not matches:
        print("no vector has any of the words among its top tokens")


if __name__ == "__main__":
    main()
