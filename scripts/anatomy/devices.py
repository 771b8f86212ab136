"""Where and how to compute: nothing here is part of what a result is."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scripts.anatomy.settings import Settings


class ComputeSettings(Settings):
    """How to compute. Nothing here changes what a result is, so nothing here reruns a job."""

    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="auto takes a GPU where the job was granted one and there is one."
    )
    gpu_jobs_per_device: PositiveInt = Field(1, le=100, description="Jobs that may share one GPU.")
    environment: Literal["cpu", "cuda"] = Field(
        "cpu", description="Which file of envs/ the rules name, for --sdm conda."
    )
    autocast: bool = Field(True, description="bfloat16 where that is safe; on CUDA only.")
    compile: bool = Field(False, description="torch.compile of BERT-sized models; on CUDA only.")
    save_every: PositiveFloat = Field(
        60.0, description="Seconds between two stores of a training's resumable state."
    )


@dataclass(frozen=True)
class Compute:
    """The settings of one job, on the device that it was given.

    Attributes:
        device: Where to train, as torch names it.
        autocast: bfloat16 where safe, on CUDA.
        compile: torch.compile, on CUDA.
        save_every: Seconds between two stores of the resumable state.
    """

    device: str = "cpu"
    autocast: bool = False
    compile: bool = False
    save_every: float = 60.0
