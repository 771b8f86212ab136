"""Run a SLURM of one node on the loopback interface, with device files in place of GPUs.

The daemons are those of Debian's packages slurm-wlm and munge. State, keys, sockets and logs are
in one folder; only two links, in /etc/slurm, are outside of it. The daemons and the device files
need root.
"""

import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel")
ETC = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf")
NULL = os.makedev(1, 3)  # the device file of a GPU is a copy of /dev/null
PATIENCE = 60  # seconds

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
# listen on the loopback interface only
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# a container has no tree of cgroups to write to
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
# ended jobs stay visible to squeue
MinJobAge=600
GresTypes=gpu
DefMemPerCPU=500
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why no SLURM can start here, or an empty string."""
    absent = [name for name in (*DAEMONS, *CLIENTS) if not shutil.which(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if os.geteuid() != 0:
        return "only root can start the daemons"
    existing = [str(ETC / name) for name in FILES if (ETC / name).exists()]
    return f"this machine has a SLURM of its own: {', '.join(existing)}" if existing else ""


@contextmanager
def running(folder: Path, *, cpus: int, memory: int, gpus: int) -> Iterator[None]:
    """Run a node with `memory` MB, which SLURM's commands reach within the block."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    host = socket.gethostname().split(".")[0]
    ports = {"port": _free_port(), "node_port": _free_port()}
    values = {"folder": folder, "host": host, "cpus": cpus, "memory": memory, "gpus": gpus} | ports
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
    cards = [folder / f"card{i}" for i in range(gpus)]
    for card in cards:
        os.mknod(card, stat.S_IFCHR | 0o666, NULL)
    lines = [f"NodeName={host} Name=gpu File={card}\n" for card in cards]
    (folder / "gres.conf").write_text("".join(lines))
    with ExitStack() as undo:
        ETC.mkdir(exist_ok=True)
        for name in FILES:
            (ETC / name).symlink_to(folder / name)
            undo.callback((ETC / name).unlink)
        _start("munged", folder, undo, *_of_munge(folder))
        _start("slurmctld", folder, undo, "-D")
        _start("slurmd", folder, undo, "-D")
        _wait_for_node(folder)
        undo.callback(_end_jobs)
        yield


def _of_munge(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
    # --force: munge refuses a folder that other users cannot read
    return [
        "--foreground",
        "--force",
        *(f"--{name}={folder}/munge.{end}" for name, end in files.items()),
    ]


def _end_jobs() -> None:
    """Cancel running jobs, which outlive the daemons."""
    limit = time.monotonic() + PATIENCE
    while _printed("squeue", "--noheader") and time.monotonic() < limit:
        _printed("scancel", "--user", str(os.geteuid()))
        time.sleep(1)


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def _start(name: str, folder: Path, undo: ExitStack, *options: str) -> None:
    """Start a daemon in the foreground; `undo` stops it."""
    with (folder / f"{name}.out").open("w") as out:
        daemon = subprocess.Popen([name, *options], stdout=out, stderr=out, start_new_session=True)
    undo.callback(_stop, daemon)


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _wait_for_node(folder: Path) -> None:
    """Wait until the node runs a job."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        command = ["srun", "--ntasks=1", "--immediate=5", "true"]
        try:
            tried = subprocess.run(command, capture_output=True, timeout=10)
            if tried.returncode == 0:
                return
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.5)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("slurm*.log")))
    raise TimeoutError(f"the node did not come up within {PATIENCE} s:\n{logs}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
