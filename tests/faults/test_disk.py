"""Disks that are full or read-only: one line with file and reason, and nothing half-written.

Each kind of file is written by the function that writes it in the workflow.
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
from disks import Disk, disk, largest_file
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
# of gensim's file, which cannot be closed either; a job is silent about it
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
def test_a_full_disk_is_told_and_the_older_file_is_kept(
    small_disk: Disk, name: str, write: Callable[[Path, int], None]
) -> None:
    """Hours of work would end in a riddle, and half a file pass for the whole one."""
    assert_told(small_disk.folder, name, write, FULL[0])


@writers
def test_a_limit_on_files_is_told_and_the_older_file_is_kept(
    tmp_path: Path, name: str, write: Callable[[Path, int], None]
) -> None:
    """As for a full disk, which this stands for where no small disk can be had."""
    with largest_file(ROOM):
        assert_told(tmp_path, name, write, FULL[1])


def assert_told(folder: Path, name: str, write: Callable[[Path, int], None], reason: str) -> None:
    """What does not fit is named, and the file before it is there as if nothing had been tried."""
    write(folder, SMALL)
    before = contents(folder)
    assert before
    with pytest.raises(UnwritableArtifact) as caught:
        write(folder, LARGE)
    plt.close("all")
    assert str(caught.value) == f"{folder / name}: cannot be written: {reason}"
    del caught
    gc.collect()  # gensim's file, while its complaint is expected
    after = contents(folder)
    # of a figure's two files, the first may be the new one: each is whole
    assert before.keys() == after.keys()
    assert after | {"a.png": b""} == before | {"a.png": b""}


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("folder", "Is a directory"),
        ("file/a.json", "{folder}/file: File exists"),
        (f"{'long' * 99}.json", "File name too long"),
    ],
    ids=["a folder", "in a file", "a long name"],
)
def test_what_stands_in_the_way_of_a_file_is_told(tmp_path: Path, place: str, reason: str) -> None:
    """A result that somebody has moved or renamed would end in a traceback."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for write in (
        lambda path: artifacts.write_json(path, [1]),
        lambda path: artifacts.write_tensors(path, {"w": np.ones(1)}),
    ):
        with pytest.raises(UnwritableArtifact) as caught:
            write(tmp_path / place)
        line = f"{tmp_path / place}: cannot be written: {reason.format(folder=tmp_path)}"
        assert str(caught.value) == line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_an_error_in_reading_is_not_taken_for_one_in_writing(tmp_path: Path) -> None:
    """A result would be blamed for the text that is missing."""
    with pytest.raises(FileNotFoundError), artifacts.writing(tmp_path / "a.txt") as path:
        path.write_text((tmp_path / "none.txt").read_text())
    assert not list(tmp_path.iterdir())


def test_a_finished_training_that_cannot_be_kept_is_told(small_disk: Disk, tmp_path: Path) -> None:
    """The copy that saves the training from the workflow manager would be half a copy."""
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
    """A training on a disk of its own, which has everything that snakemake writes too."""
    with disk(tmp_path / "small", "16m") as made:
        training = Training(made.folder)
        training.take_corpus(uninterrupted)
        yield training, made


def lines_with(text: str, printed: str) -> list[str]:
    return [line for line in printed.splitlines() if text in line]


def test_a_training_whose_disk_fills_up_goes_on_when_there_is_room(
    on_small_disk: tuple[Training, Disk], uninterrupted: Training
) -> None:
    """A night's training would be lost, or the log be on the full disk too and say nothing."""
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


def test_a_read_only_folder_is_told(on_small_disk: tuple[Training, Disk]) -> None:
    """Who looks at another's results would get a traceback of Snakemake's own files."""
    training, made = on_small_disk
    made.remount("ro")
    line = f"{made.folder} is read-only: run in another folder, or name one with --directory"
    assert lines_with("read-only", training.dry_run(status=1)) == [line]
    assert training.start().wait(PATIENCE) == 1
    assert lines_with("is read-only", training.printed) == [line]
    assert "Traceback" not in training.printed


@pytest.mark.slow
def test_read_only_results_are_told_if_they_have_to_change(
    tmp_path: Path, uninterrupted: Training
) -> None:
    """Results on a disk that cannot be written would not even be looked at."""
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
    """What a job prints on the terminal that ends with status 1."""
    program = JOB.format(log=log, body=body)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The reason of the failure would be a traceback of the logging itself."""
    (tmp_path / "logs").touch()
    log = tmp_path / "logs/train.log"
    assert ended(log, "1 / 0") == f"{log}: the log cannot be written: File exists\n"


def test_what_a_full_log_has_no_room_for_is_on_the_terminal() -> None:
    """A disk with results and logs would fill up and say nothing."""
    body = "job.artifacts.write_json('/dev/full/a.json', [])"
    line = "/dev/full/a.json: cannot be written: "
    assert ended(Path("/dev/full"), body).startswith(line)


def test_files_that_cannot_be_closed_add_nothing(tmp_path: Path) -> None:
    """The line that says why would be followed by a library's traceback."""
    bags = tmp_path / "bags.mm"
    body = (
        f"import resource; from pathlib import Path; from scripts.anatomy.text import lda;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}));"
        f"lda.save_bags(Path('{bags}'), [[(i, 1) for i in range({LARGE})]])"
    )
    printed = ended(Path("/dev/stderr"), body)
    assert printed.endswith(f"\n{bags}: cannot be written: {FULL[1]}\n")
    assert "Traceback" not in printed


def test_a_training_whose_lock_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A folder of somebody else's would end in a traceback of the lock's library."""
    (tmp_path / "run").touch()
    with pytest.raises(UnwritableArtifact) as caught, RunState(tmp_path / "run/.state", "x"):
        pass
    state = f"{tmp_path}/run/.state"
    assert str(caught.value) == f"{state}/lock: cannot be written: {state}: Not a directory"


def test_a_lease_that_cannot_be_taken_is_told(tmp_path: Path) -> None:
    """On a machine with GPUs all jobs would end in a traceback of the lock's library."""
    (tmp_path / "leases").touch()
    lease = gpu_lease.lease("cuda", gpus_granted=1, folder=tmp_path / "leases/mine", device_count=2)
    with pytest.raises(gpu_lease.LocksUnusable) as caught, lease:
        pass
    assert str(caught.value) == f"no GPU can be leased: {tmp_path}/leases/mine: Not a directory"
