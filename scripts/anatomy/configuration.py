"""The whole configuration and the checks that need more than one of its sections.

`config.yaml` and the overlays in `config/` are validated against `Config` before any job starts.
`schemas/config.schema.json` and `docs/configuration.md` are generated from the same models:

    python -m scripts.anatomy.configuration

Given files, the command validates them as overlays on `config.yaml`:

    python -m scripts.anatomy.configuration mine.yaml
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, ValidationError, model_validator

from scripts.anatomy import config_reference
from scripts.anatomy.config_loading import ConfigError, check_values, format_errors, read
from scripts.anatomy.devices import ComputeSettings
from scripts.anatomy.embedding.settings import EmbeddingSettings
from scripts.anatomy.lego.settings import LegoSettings
from scripts.anatomy.models.settings import (
    ModelSettings,
    PretrainingStudyModelSettings,
    TopicStudyModelSettings,
)
from scripts.anatomy.pretraining.settings import PretrainingSettings
from scripts.anatomy.settings import Name, Settings, check_known, inconsistent, overlaid
from scripts.anatomy.text.settings import TextSettings
from scripts.anatomy.topic.settings import TextFileCorpusSettings, TopicSettings

if TYPE_CHECKING:
    from scripts.anatomy.topic.corpora import Corpus

DEFAULTS = Path(__file__).parents[2] / "config.yaml"
SCHEMA = Path("schemas/config.schema.json")
REFERENCE = Path("docs/configuration.md")


class Config(Settings):
    """The configuration of the workflow."""

    scale: Literal["smoke", "laptop", "paper"] = Field(
        "laptop",
        description="What the sizes below are fit for. Claims that need more than this are "
        "reported as not testable at this scale.",
    )
    compute: ComputeSettings = Field(ComputeSettings(), description="Devices and precision.")
    models: dict[Name, ModelSettings] = Field(
        {}, description="Pretrained models by the names that studies call them."
    )
    topic: TopicSettings = Field(description="How one-layer transformers learn topics.")
    text: TextSettings = Field(description="Topics in real text and pretrained models.")

    embedding: EmbeddingSettings = Field(description="Every parameter read in vocabulary space.")
    lego: LegoSettings = Field(description="Chains of reasoning over a group.")
    pretraining: PretrainingSettings = Field(
        description="Language models pretrained with heads of other kinds."
    )

    @model_validator(mode="after")
    def _names_known(self) -> Self:
        wanted = {
            "text.models": self.text.models,
            "embedding.models": self.embedding.models,
            "lego.pretrained": self.lego.pretrained,
        }
        wanted |= {
            f"lego.variants.{name}.pretrained.model": [variant.pretrained.model]
            for name, variant in self.lego.variants.items()
            if variant.pretrained is not None
        }
        wanted |= {
            f"embedding.alignment.pairs.{name}": [pair.a, pair.b]
            for name, pair in self.embedding.alignment.pairs.items()
        }
        tuned = self.embedding.finetuning
        wanted |= {
            f"embedding.finetuning.{section}.{name}.model": [entry.model]
            for section, entries in (
                ("runs", tuned.runs),
                ("adapters", tuned.adapters),
            )
            for name, entry in entries.items()
        }
        wanted |= {
            f"embedding.translation.pairs.{name}.lower": [pair.lower]
            for name, pair in self.embedding.translation.pairs.items()
        }
        if self.pretraining.tokenizer.model is not None:
            wanted["pretraining.tokenizer.model"] = [self.pretraining.tokenizer.model]
        for key, names in wanted.items():
            for name in names:
                check_known(key, name, self.models, "model")
        for name, model in self.models.items():
            if re.fullmatch(r"seed\d+|figures", name):
                raise inconsistent(f"models.{name}", "results have folders so named")
            if isinstance(model, TopicStudyModelSettings):
                self._check_trained(f"models.{name}", model)
            if isinstance(model, PretrainingStudyModelSettings):
                self._check_pretrained(name, model)
        corpora = {
            "embedding.hidden.corpus": self.embedding.hidden.corpus,
            "pretraining.corpus": self.pretraining.corpus,
        }
        for key, corpus in corpora.items():
            check_known(key, corpus, self.text.corpora, "corpus")
        self._check_over_training("embedding.alignment.training")
        return self

    def _check_over_training(self, key: str) -> None:
        """Raise if the pretraining study does not train two seeds of a model that can be read."""
        wanted, study = self.embedding.alignment.training, self.pretraining
        if wanted is None:
            return
        self._check_readable(f"{key}.variant", wanted.variant)
        seeds = study.seeds if wanted.seeds is None else wanted.seeds
        if missing := {*seeds} - {*study.seeds}:
            raise inconsistent(f"{key}.seeds", f"{min(missing)} is not among pretraining.seeds")
        if len(seeds) < 2:
            raise inconsistent(key, "a pair needs two seeds, and pretraining.seeds has one")

    def _check_readable(self, key: str, variant: str) -> None:
        """Raise if the pretraining study has no such variant, or one that is no ordinary BERT."""
        variants = self.pretraining.variants
        check_known(key, variant, variants, "variant")
        heads = variants[variant].heads
        if heads.learned < heads.total:
            raise inconsistent(
                key,
                f"{variant} has heads without queries and keys ({heads.split}); only a variant "
                "whose heads are all learned can be read",
            )

    def _check_pretrained(self, name: str, model: PretrainingStudyModelSettings) -> None:
        """Raise if the pretraining study trains no such BERT, or needs it for its own tokenizer."""
        self._check_readable(f"models.{name}.variant", model.variant)
        if model.seed not in self.pretraining.seeds:
            raise inconsistent(
                f"models.{name}.seed", f"{model.seed} is not among pretraining.seeds"
            )
        if self.pretraining.tokenizer.model == name:
            raise inconsistent("pretraining.tokenizer.model", f"{name} is trained with it")

    def _check_trained(self, key: str, model: TopicStudyModelSettings) -> None:
        """Raise if the topic study trains no such BERT."""
        check_known(f"{key}.variant", model.variant, self.topic.variants, "variant")
        variant = self.topic.variants[model.variant]
        check_known(f"{key}.corpus", model.corpus, variant.corpora, "corpus")
        if variant.model.kind != "bert":
            raise inconsistent(f"{key}.variant", f"{model.variant} is no BERT")
        if model.seed not in self.topic.seeds:
            raise inconsistent(f"{key}.seed", f"{model.seed} is not among topic.seeds")


def validate(config: dict) -> Config:
    """Check a configuration.

    Raises:
        ConfigError: One line a mistake: the key, what is wrong, the value.
    """
    check_values(config)
    try:
        settings = Config.model_validate(config)
    except ValidationError as error:
        raise ConfigError(format_errors(error, config)) from None
    _check_files(settings)
    _check_tasks(settings)
    return settings


def _check_files(settings: Config) -> None:
    """Read the corpora that are given as files, so that a mistake in them stops no job midway."""
    from scripts.anatomy.topic import corpora

    for name, corpus in settings.topic.corpora.items():
        if isinstance(corpus, TextFileCorpusSettings):
            try:
                found = corpora.read(corpus)
            except (ValueError, OSError) as error:
                raise ConfigError([f"topic.corpora.{name}: {error}"]) from None
            _check_models(settings.topic, name, found)


def _check_models(study: TopicSettings, corpus: str, found: "Corpus") -> None:
    """Check what only the words of a corpus can tell: the models' widths, and block matrices."""
    from scripts.anatomy.topic.corpora import check_blocks

    for name, variant in study.variants.items():
        if corpus in variant.corpora:
            try:
                variant.model.check_width(found.d_vocab)
                if getattr(variant.model, "value", None) == "block":
                    check_blocks(found.membership)
            except ValueError as error:
                raise ConfigError([f"topic.variants.{name}.model: {error}"]) from None


def _check_tasks(settings: Config) -> None:
    """Build the LEGO tasks, since a table may be no group and a graph may not fit its clauses."""
    from scripts.anatomy.lego.tasks import Task

    for name, task in settings.lego.tasks.items():
        try:
            Task.from_settings(task)
        except ValueError as error:
            raise ConfigError([f"lego.tasks.{name}: {error}"]) from None


def schema() -> str:
    """Return the JSON schema of the configuration, as text."""
    return json.dumps(config_reference.schema(Config), indent=1) + "\n"


def reference() -> str:
    """Return the page that describes every key, as Markdown."""
    return config_reference.reference(Config)


def main(files: Sequence[str]) -> None:
    """Validate files laid over config.yaml; given no files, write the schema and the reference."""
    if not files:
        SCHEMA.write_text(schema(), encoding="utf-8")
        REFERENCE.write_text(reference(), encoding="utf-8")
        return
    try:
        config = read(DEFAULTS)
        for file in files:
            config = overlaid(config, read(Path(file)))
        validate(config)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
