"""Settings of where and how to compute. No result depends on them."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scripts.anatomy.gpu_lease import DeviceSetting
from scripts.anatomy.settings import Settings


class ComputeSettings(Settings):
    """Where and how to compute. No change here reruns a job."""

    device: DeviceSetting = Field(
        "auto",
        description="auto takes a GPU if one is allocated to the job and present, else the CPU.",
    )
    gpu_jobs_per_device: PositiveInt = Field(
        1, le=100, description="Maximum number of jobs on one GPU."
    )
    environment: Literal["cpu", "cuda"] = Field(
        "cpu", description="Conda environment of envs/ for --sdm conda."
    )
    autocast: bool = Field(True, description="Use bfloat16 where that is safe; on CUDA only.")
    compile: bool = Field(False, description="Use torch.compile for large models; on CUDA only.")
    save_every: PositiveFloat = Field(
        60.0, description="Seconds between two stores of a training's resumable state."
    )


@dataclass(frozen=True)
class Compute:
    """The device of one job, as torch names it, and the settings that apply there."""

    device: str = "cpu"
    autocast: bool = False
    compile: bool = False
    save_every: float = 60.0
