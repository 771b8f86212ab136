"""Configuration of the pretrained models: where each comes from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, field_validator

from scripts.anatomy.settings import (
    Name,
    Settings,
    UserPath,
    is_file,
    is_folder,
    without_braces,
)


class PackagedModelSettings(Settings):
    """A model that a Python package ships: no network beyond the package index."""

    kind: Literal["packaged"]
    package: Literal["minilm", "minilm3", "smollm2", "mpnet"] = Field(
        description="minilm: an encoder of 6 layers, 384 wide; minilm3: its sibling of 3 layers; "
        "smollm2: a decoder of 30 layers, 576 wide (dequantised); mpnet: an encoder of 12 layers, "
        "768 wide, whose packages are in envs/assets-optional.txt."
    )


class HubModelSettings(Settings):
    """A model of the Hugging Face hub, fetched once; only safetensors weights are accepted."""

    kind: Literal["hub"]
    id: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$", description="Repository, such as org/name.")
    revision: str = Field(
        min_length=1, description="Commit, tag or branch; only a commit never changes."
    )


class FolderModelSettings(Settings):
    """A model in a local folder: config.json, safetensors weights, and a fast tokenizer's files."""

    kind: Literal["folder"]
    path: UserPath = Field(description="The folder, relative to the working directory.")

    @field_validator("path")
    @classmethod
    def _complete(cls, path: Path) -> Path:
        if not is_folder(path):
            raise ValueError(f"no such folder: {path}")
        if not is_file(path / "config.json"):
            raise ValueError(f"{path} has no config.json")
        weights = list(path.glob("*.safetensors"))
        if not weights:
            raise ValueError(f"{path} has no safetensors weights (other formats are not read)")
        for file in weights:
            without_braces(file)
        return path


class TopicStudyModelSettings(Settings):
    """A BERT trained by the topic study, at its last step."""

    kind: Literal["topic"]
    corpus: Name = Field(description="Corpus of the topic study that it was trained on.")
    variant: Name = Field(description="Which of its variants, of the kind bert.")
    seed: NonNegativeInt = Field(0, description="Which of its seeds.")


class PretrainingStudyModelSettings(Settings):
    """A BERT trained by the pretraining study, at its last step."""

    kind: Literal["pretraining"]
    variant: Name = Field("base", description="Which of its variants; all heads are learned ones.")
    seed: NonNegativeInt = Field(0, description="Which of its seeds.")


ModelSettings = Annotated[
    PackagedModelSettings
    | HubModelSettings
    | FolderModelSettings
    | TopicStudyModelSettings
    | PretrainingStudyModelSettings,
    Field(discriminator="kind"),
]
