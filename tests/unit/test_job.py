"""The context of trainings: what decides whether one has to run again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from snakemake.iocontainers import InputFiles, OutputFiles, Params, Wildcards

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.artifacts import UnreadableArtifact

DATA = {"one": np.arange(3), "other": np.arange(4)}


def snakemake(
    folder: Path, *, params: Any = None, seeds: list[int] | None = None, **wildcards: str
) -> SimpleNamespace:
    """A job with an input and outputs for each seed, or with one seed as its wildcard."""
    files = {name: [] for name in ("corpus", "weights", "run")}
    for seed in seeds or [int(wildcards["seed"])]:
        (folder / f"seed{seed}").mkdir(parents=True, exist_ok=True)
        corpus = folder / f"seed{seed}/corpus.safetensors"
        if not corpus.exists():
            artifacts.write_tensors(corpus, {"tokens": DATA["one"]})
        files["corpus"].append(str(corpus))
        files["weights"].append(str(folder / f"seed{seed}/weights.json"))
        files["run"].append(str(folder / f"seed{seed}/run.json"))
    if seeds is None:
        files = {name: paths[0] for name, paths in files.items()}
    params = {"variant": {"steps": 3}, "code": "abc"} | (params or {})
    return SimpleNamespace(
        params=Params(fromdict=params | ({"seeds": seeds} if seeds else {})),
        input=InputFiles(fromdict={"corpus": files["corpus"]}),
        output=OutputFiles(fromdict={name: files[name] for name in ("weights", "run")}),
        wildcards=Wildcards(fromdict={"variant": "v"} | wildcards),
        threads=1,
        resources=SimpleNamespace(gpu=0),
        config={},
    )


def trained(given: SimpleNamespace) -> list[int]:
    """Run a job that writes its outputs; return the seeds that it had to train."""
    seeds = []
    for training in job.trainings(given):
        artifacts.write_json(training.output["weights"], [training.seed])
        training.write_record({}, {})
        seeds.append(training.seed)
    return seeds


def test_a_finished_training_is_restored(tmp_path: Path) -> None:
    given = snakemake(tmp_path, seed="0")
    assert trained(given) == [0]
    Path(given.output.weights).unlink()  # as Snakemake does before it runs a job again
    assert trained(given) == []
    assert artifacts.read_json(given.output.weights) == [0]


def test_a_further_seed_trains_alone(tmp_path: Path) -> None:
    assert trained(snakemake(tmp_path, seeds=[0, 1])) == [0, 1]
    assert trained(snakemake(tmp_path, seeds=[0, 2, 1])) == [2]


def test_a_seed_is_the_same_training_in_a_job_of_its_own(tmp_path: Path) -> None:
    assert trained(snakemake(tmp_path, seeds=[0, 1])) == [0, 1]
    assert trained(snakemake(tmp_path, seeds=[1], seed="1")) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"params": {"variant": {"steps": 4}}},
        {"params": {"code": "abd"}},
        {"params": {"another": None}},
        {"variant": "w"},
    ],
)
def test_every_param_and_wildcard_decides(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert trained(snakemake(tmp_path, seed="0")) == [0]
    assert trained(snakemake(tmp_path, seed="0", **changes)) == [0]


def test_the_content_of_an_input_decides_and_its_date_does_not(tmp_path: Path) -> None:
    given = snakemake(tmp_path, seed="0")
    assert trained(given) == [0]
    Path(given.input.corpus).touch()
    assert trained(given) == []
    artifacts.write_tensors(given.input.corpus, {"tokens": DATA["other"]})
    assert trained(given) == [0]


def test_a_damaged_input_does_not_cost_a_finished_training(tmp_path: Path) -> None:
    given = snakemake(tmp_path, seed="0")
    assert trained(given) == [0]
    corpus = Path(given.input.corpus)
    whole = corpus.read_bytes()
    corpus.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UnreadableArtifact, match=r"corpus\.safetensors"):
        trained(given)
    corpus.write_bytes(whole)
    assert trained(given) == []


def test_states_of_a_table_are_dropped_when_it_is_written(tmp_path: Path) -> None:
    given = snakemake(tmp_path, seed="0")
    with pytest.raises(KeyboardInterrupt), job.parts(given) as part, part("a") as state:
        folder = state.folder
        raise KeyboardInterrupt
    assert folder.is_dir()
    with job.parts(given) as part, part("a"):
        pass
    assert not folder.parent.exists()
