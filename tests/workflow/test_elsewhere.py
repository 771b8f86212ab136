"""Results in another folder, a read-only checkout, use as a module, a cache for projects."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from checkouts import NOTHING, ROOT, Checkout, called, copied, merged, tiny

SOME = ["results/topic/lda/value_squared/seed0/run.json", "results/models/encoder/source.json"]


def test_results_go_to_the_folder_of_directory(inputs: Path, tmp_path: Path) -> None:
    """`--directory` writes nothing beside the Snakefile; folders may have spaces and umlauts."""
    source = copied(ROOT, tmp_path / "göteborg 1/source")
    before = {path.name for path in source.iterdir()}
    elsewhere = Checkout(source, tmp_path / "else where/größe ü", inputs=inputs)
    elsewhere.snakemake("--", *SOME, "results/text/figures/documents.png")
    assert elsewhere.path("text/figures/documents.png").is_file()
    assert (elsewhere.directory / "logs/models/encoder.log").is_file()
    assert {path.name for path in source.iterdir()} == before
    assert elsewhere.plan("--", *SOME) == NOTHING


def test_a_checkout_may_be_read_only(inputs: Path, tmp_path: Path) -> None:
    """A read-only checkout runs with `--directory`."""
    source = copied(ROOT, tmp_path / "source")
    for path in [source, *source.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)  # no effect for root, hence the mount
    mounted = ["unshare", "--mount", "sh", "-c"]
    mounted += [
        'mount --bind -o ro "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
        source,
    ]
    can_mount = subprocess.run([*mounted, "true"], capture_output=True).returncode == 0
    elsewhere = Checkout(source, tmp_path / "elsewhere", inputs=inputs)
    elsewhere.prefix = mounted if can_mount else []
    if can_mount:
        assert "Read-only" in called([*mounted, "touch", source / "x"], tmp_path, status=1)
    elsewhere.snakemake("--", *SOME)
    assert elsewhere.plan("--", *SOME) == NOTHING


MODULE = """
configfile: "outer.yaml"


rule mine:
    input:
        "anatomy/results/claims.csv",
    output:
        "copy.csv",
    shell:
        "cp {{input}} {{output}}"


module anatomy:
    snakefile:
        "{snakefile}"
    config:
        config["anatomy"]
    prefix:
        "anatomy"


use rule * from anatomy exclude all as anatomy_*
"""


@pytest.fixture
def outer(checkout: Checkout, tmp_path: Path) -> Checkout:
    """Return a workflow that has this one as a module, with finished results of it."""
    folder = tmp_path / "outer"
    (folder / "anatomy").mkdir(parents=True)
    snakefile = MODULE.format(snakefile=checkout.source / "Snakefile")
    (folder / "Snakefile").write_text(snakefile, encoding="utf-8")
    config = merged(yaml.safe_load((ROOT / "config.yaml").read_text("utf-8")), tiny())
    (folder / "outer.yaml").write_text(yaml.safe_dump({"anatomy": config}), encoding="utf-8")
    shutil.move(checkout.path(""), folder / "anatomy/results")
    shutil.copytree(checkout.directory / "inputs", folder / "inputs")
    return Checkout(folder)


def test_the_workflow_is_a_module_of_another(outer: Checkout) -> None:
    """A rule of another workflow can use a result of this one, which runs what is missing."""
    ledger = outer.directory / "anatomy/results/claims.csv"
    before = ledger.read_bytes()
    ledger.unlink()
    printed = outer.snakemake("--configfile", "outer.yaml")
    assert "2 of 2 steps" in printed
    assert (outer.directory / "copy.csv").read_bytes() == before


def test_a_rule_is_imported_into_another_workflow(outer: Checkout, fresh: Checkout) -> None:
    """A study is a target in another workflow; a single rule can be imported under another name."""
    target = ["--configfile", "outer.yaml", "--", "anatomy_topic"]
    assert outer.plan(*target) == NOTHING
    shutil.rmtree(outer.directory / "anatomy/results")
    rules = {rule.removeprefix("anatomy_"): n for rule, n in outer.plan(*target).rules.items()}
    assert rules == fresh.plan("--", "topic").rules
    text = (outer.directory / "Snakefile").read_text("utf-8")
    alone = text.replace(
        "use rule * from anatomy exclude all as anatomy_*",
        "use rule topic_theory from anatomy as closed_forms",
    )
    (outer.directory / "Snakefile").write_text(alone, "utf-8")
    outer.snakemake("--configfile", "outer.yaml", "--", "anatomy/results/topic/theory.json")
    assert (outer.directory / "anatomy/results/topic/theory.json").is_file()


def test_projects_share_what_takes_long_to_read(
    fresh: Checkout, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Snakemake's output cache a second project links corpora and LDA fits of the first."""
    monkeypatch.setenv("SNAKEMAKE_OUTPUT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    other = Checkout(ROOT, tmp_path / "other", inputs=inputs)
    tables = [f"text/stories/seed{seed}/topics.csv" for seed in (0, 1)]
    arguments = ["--cache", "text_corpus", "text_topics", "--"]
    arguments += [f"results/{table}" for table in tables]
    fresh.snakemake(*arguments)
    printed = other.snakemake(*arguments)
    assert (other.directory / "logs/text/stories/seed1/topics.log").read_text() == ""
    assert printed.count("Symlinking output file") == 3 + 2 * 4
    made, linked = (
        [project.path(table).read_bytes() for table in tables] for project in (fresh, other)
    )
    assert linked == made
    assert made[0] != made[1]  # seeds have their own entries in the cache
    assert other.plan(*arguments) == NOTHING
