"""Full and read-only disks: one line with file and reason, and no half-written file.

Each kind of file is written by the workflow's own function.
"""

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gensim
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from checkouts import ROOT
from disks import Disk, disk, file_size_limit
from tokenizers import Tokenizer, models
from trainings import OUTPUTS, PATIENCE, RUN, Training, until
from transformers import BertConfig, BertModel

from scripts.anatomy import artifacts, figures, gpu_lease
from scripts.anatomy.artifacts import UnwritableArtifact
from scripts.anatomy.embedding.index import TopLists, write_index
from scripts.anatomy.pretraining import data
from scripts.anatomy.pretraining.tokenizer import SPECIAL, Special
from scripts.anatomy.pretraining.tokenizer import save as save_tokenizer
from scripts.anatomy.text import lda
from scripts.anatomy.training import RunState

SMALL, LARGE = 10, 200_000
ROOM = 2**18
FULL = ("No space left on device", "File too large")


# --- every writer -------------------------------------------------------------------------------


def table(size: int) -> pd.DataFrame:
    return pd.DataFrame({"x": np.random.default_rng(0).random(size)})


def figure(folder: Path, size: int) -> None:
    figures.style()
    drawn, ax = plt.subplots(figsize=(1, 1))
    ax.plot(*np.random.default_rng(0).random((2, size // 40)), "o")
    figures.save(drawn, folder / "a.png", folder / "a.svg")


def model(folder: Path, size: int) -> None:
    config = BertConfig(
        vocab_size=size // 2, hidden_size=4, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=4, max_position_embeddings=4,
    )  # fmt: skip
    with artifacts.writing_folder(folder / "weights") as temporary:
        BertModel(config).save_pretrained(temporary)


def state(folder: Path, size: int) -> None:
    with RunState(folder / "run", "fingerprint") as kept:
        kept.save({"model.w": torch.zeros(size)}, size)


def checkpoint(folder: Path, size: int) -> None:
    with RunState(folder / "run", "fingerprint") as kept:
        kept.add_checkpoint(7, {"model.w": torch.zeros(size)}, {"loss": 1.0})


def index(folder: Path, size: int) -> None:
    ids, scores = np.zeros((size, 2), np.int64), np.random.default_rng(0).random((size, 2))
    flat = np.zeros(size, np.int64)
    lists = TopLists(flat, flat, scores[:, 0], ids, scores, ids, scores)
    write_index(folder / "index.parquet", [(0, "K", lists), (1, "K", lists)], d_vocab=9)


def rows(folder: Path, size: int) -> None:
    with artifacts.writing(folder / "train.npy") as path, path.open("wb") as file:
        packer = data.Packer(file, length=8, d_vocab=99, special=Special(0, 1, 2, 3, 4))
        packer.add([7] * size)
        packer.close()


def words(size: int) -> gensim.corpora.Dictionary:
    return gensim.corpora.Dictionary([[f"word{number}" for number in range(size)]])


def dictionary(folder: Path, size: int) -> None:
    with artifacts.writing(folder / "dictionary.txt") as path:
        words(size).save_as_text(str(path))


def tokenizer(folder: Path, size: int) -> None:
    made = Tokenizer(models.WordPiece({f"piece{n}": n for n in range(size)}, unk_token="piece0"))
    save_tokenizer(made, SPECIAL, (folder / "tokenizer.json", folder / "tokenizer_config.json"))


def page(folder: Path, size: int) -> None:
    with artifacts.writing(folder / "page.html") as path:
        path.write_text("<p>" * size, encoding="utf-8")


# name of the file that does not fit, and how it is written in a folder
WRITERS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "json": ("a.json", lambda folder, n: artifacts.write_json(folder / "a.json", [*range(n)])),
    "numpy": (
        "a.safetensors",
        lambda folder, n: artifacts.write_tensors(folder / "a.safetensors", {"w": np.zeros(n)}),
    ),
    "torch": (
        "a.safetensors",
        lambda folder, n: artifacts.write_tensors(folder / "a.safetensors", {"w": torch.zeros(n)}),
    ),
    "csv": ("a.csv", lambda folder, n: artifacts.write_table(folder / "a.csv", table(n))),
    "parquet": (
        "a.parquet",
        lambda folder, n: artifacts.write_table(folder / "a.parquet", table(n)),
    ),
    "figure": ("a.svg", figure),
    "model": ("weights", model),
    "state": ("run/state.safetensors", state),
    "checkpoint": ("run/checkpoints/000000007.safetensors", checkpoint),
    "index": ("index.parquet", index),
    "rows": ("train.npy", rows),
    "dictionary": ("dictionary.txt", dictionary),
    "bags": (
        "bags.mm",
        lambda folder, n: lda.save_bags(folder / "bags.mm", [[(i, 1) for i in range(n)]]),
    ),
    "tokenizer": ("tokenizer.json", tokenizer),
    "page": ("page.html", page),
}

writers = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
# gensim's file cannot be closed either; a job suppresses the message
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk with room for a few small files."""
    with disk(tmp_path / "disk", str(ROOM)) as made:
        yield made


def contents(folder: Path) -> dict[str, bytes]:
    """All files in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@writers
def test_a_full_disk_is_reported_and_the_older_file_is_kept(
    small_disk: Disk, name: str, write: Callable[[Path, int], None]
) -> None:
    assert_reported(small_disk.folder, name, write, FULL[0])


@writers
def test_a_file_size_limit_is_reported_and_the_older_file_is_kept(
    tmp_path: Path, name: str, write: Callable[[Path, int], None]
) -> None:
    """Unlike a small disk, a limit needs no root."""
    with file_size_limit(ROOM):
        assert_reported(tmp_path, name, write, FULL[1])


def assert_reported(
    folder: Path, name: str, write: Callable[[Path, int], None], reason: str
) -> None:
    """The error names the file, and the older file is unchanged."""
    write(folder, SMALL)
    before = contents(folder)
    assert before
    with pytest.raises(UnwritableArtifact) as caught:
        write(folder, LARGE)
    plt.close("all")
    assert str(caught.value) == f"{folder / name}: cannot be written: {reason}"
    del caught
    gc.collect()  # gensim's file, while its warning is filtered
    after = contents(folder)
    # the first of a figure's two files may be the new one: each is complete
    assert before.keys() == after.keys()
    assert after | {"a.png": b""} == before | {"a.png": b""}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "Is a directory"),
        ("file/a.json", "{folder}/file: File exists"),
        (f"{'long' * 99}.json", "File name too long"),
    ],
    ids=["a folder", "in a file", "a long name"],
)
def test_a_path_that_cannot_be_a_file_is_reported(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for write in (
        lambda path: artifacts.write_json(path, [1]),
        lambda path: artifacts.write_tensors(path, {"w": np.ones(1)}),
    ):
        with pytest.raises(UnwritableArtifact) as caught:
            write(tmp_path / name)
        line = f"{tmp_path / name}: cannot be written: {reason.format(folder=tmp_path)}"
        assert str(caught.value) == line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_an_error_of_another_file_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), artifacts.writing(tmp_path / "a.txt") as path:
        path.write_text((tmp_path / "none.txt").read_text())
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_for_a_finished_training_keeps_its_state(
    small_disk: Disk, tmp_path: Path
) -> None:
    output = tmp_path / "weights.safetensors"
    artifacts.write_tensors(output, {"w": np.zeros(LARGE)})
    folder = small_disk.folder / "run"
    with RunState(folder, "fingerprint") as kept:
        kept.save({"w": torch.zeros(3)}, 5)
        with pytest.raises(UnwritableArtifact, match=f"{output.name}: .*: {FULL[0]}"):
            kept.keep([output])
        assert not (folder / "finished").exists()
        assert kept.load() is not None
        kept.clear()


# --- through the workflow -----------------------------------------------------------------------


@pytest.fixture
def on_small_disk(tmp_path: Path, uninterrupted: Training) -> Iterator[tuple[Training, Disk]]:
    """A training whose folder, with all that Snakemake writes, is on a small disk."""
    with disk(tmp_path / "small", "16m") as made:
        training = Training(made.folder)
        training.take_corpus(uninterrupted)
        yield training, made


def lines_with(text: str, printed: str) -> list[str]:
    return [line for line in printed.splitlines() if text in line]


def test_a_training_whose_disk_fills_up_continues_when_there_is_room(
    on_small_disk: tuple[Training, Disk], uninterrupted: Training
) -> None:
    """The log is on the full disk too."""
    training, made = on_small_disk
    snakemake = training.start()
    until(lambda: training.step > 20 or snakemake.poll() is not None, "steps are saved")
    made.fill()
    assert snakemake.wait(PATIENCE) == 1
    (line,) = lines_with("cannot be written", training.printed)
    assert line.startswith(f"{RUN}/.state/") and line.endswith(FULL[0])
    assert "Traceback" not in training.printed + training.log
    assert not any((training.folder / RUN / name).exists() for name in OUTPUTS)
    assert not list(training.folder.rglob("*.tmp.*"))
    stopped_at = training.step
    made.remount("size=64m")
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_a_read_only_folder_is_reported(on_small_disk: tuple[Training, Disk]) -> None:
    training, made = on_small_disk
    made.remount("ro")
    line = f"{made.folder} is read-only: run in another folder, or name one with --directory"
    assert lines_with("read-only", training.dry_run(status=1)) == [line]
    assert training.start().wait(PATIENCE) == 1
    assert lines_with("is read-only", training.printed) == [line]
    assert "Traceback" not in training.printed


@pytest.mark.slow
def test_read_only_results_allow_a_plan_and_refuse_a_run(
    tmp_path: Path, uninterrupted: Training
) -> None:
    training = Training(tmp_path / "training")
    with disk(training.folder / "results", "16m") as made:
        training.take_corpus(uninterrupted)
        made.remount("ro")
        assert "topic_train        1" in training.dry_run()
        assert training.start().wait(PATIENCE) == 1
        (line,) = lines_with("Read-only file system", training.printed)
        assert str(RUN.parent) in line
        assert "Traceback" not in training.printed


# --- the log, and locks -------------------------------------------------------------------------

JOB = """
from types import SimpleNamespace
from scripts import job
def main(snakemake): {body}
snakemake = SimpleNamespace(
    log=["{log}"], input=[], output=["none"], config={{}}, threads=1, resources=SimpleNamespace()
)
job.run(main, globals())
"""


def ended(log: Path, body: str) -> str:
    """What a failed job prints on the terminal."""
    program = JOB.format(log=log, body=body)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    log = tmp_path / "logs/train.log"
    assert ended(log, "1 / 0") == f"{log}: the log cannot be written: File exists\n"


def test_errors_go_to_the_terminal_if_the_log_is_full() -> None:
    body = "job.artifacts.write_json('/dev/full/a.json', [])"
    line = "/dev/full/a.json: cannot be written: "
    assert ended(Path("/dev/full"), body).startswith(line)


def test_a_file_that_cannot_be_closed_prints_no_traceback(tmp_path: Path) -> None:
    bags = tmp_path / "bags.mm"
    body = (
        f"import resource; from pathlib import Path; from scripts.anatomy.text import lda;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}));"
        f"lda.save_bags(Path('{bags}'), [[(i, 1) for i in range({LARGE})]])"
    )
    printed = ended(Path("/dev/stderr"), body)
    assert printed.endswith(f"\n{bags}: cannot be written: {FULL[1]}\n")
    assert "Traceback" not in printed


def test_a_lock_of_a_training_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(UnwritableArtifact) as caught, RunState(tmp_path / "run/.state", "x"):
        pass
    state = f"{tmp_path}/run/.state"
    assert str(caught.value) == f"{state}/lock: cannot be written: {state}: Not a directory"


def test_a_lock_of_a_lease_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "leases").touch()
    folder = tmp_path / "leases/mine"
    lease = gpu_lease.lease("cuda", gpus_allocated=1, folder=folder, device_count=2)
    with pytest.raises(gpu_lease.LocksUnusable) as caught, lease:
        pass
    assert str(caught.value) == f"no GPU can be leased: {tmp_path}/leases/mine: Not a directory"
