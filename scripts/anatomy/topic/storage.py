"""The topic study's corpora as files."""

from pathlib import Path

import numpy as np

from scripts.anatomy import artifacts
from scripts.anatomy.topic.corpora import Corpus


def write_corpus(path: str | Path, corpus: Corpus) -> None:
    """Write a corpus as safetensors."""
    tensors = {"train": corpus.train, "dev": corpus.dev, "membership": corpus.membership}
    artifacts.write_tensors(path, tensors)


def read_corpus(path: str | Path) -> Corpus:
    """Read a corpus; `UnreadableArtifact` if the file is not one."""
    tensors: dict[str, np.ndarray] = artifacts.read_tensors(path)
    try:
        return Corpus(**tensors)
    except TypeError:
        raise artifacts.UnreadableArtifact(path, f"holds {[*tensors]}, not a corpus") from None
