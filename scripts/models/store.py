"""Store a configured model in results/models/, from which jobs load it offline."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.models import store
from scripts.anatomy.models.settings import ModelSettings


def main(snakemake: Any) -> None:
    """Write the model's folder and the description of its source."""
    model = TypeAdapter(ModelSettings).validate_python(snakemake.params.model)
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        artifacts.writing_folder(snakemake.output.folder) as folder,
    ):
        match model.kind:
            case "topic":
                _store_topic_model(snakemake.input, folder)
                source = dict(snakemake.params.model)
            case "pretraining":
                _store_pretrained_bert(snakemake.input, folder)
                source = dict(snakemake.params.model)
            case _:
                source = store.store(model, folder)
        source["digest"] = artifacts.digest(sorted(folder.iterdir()))
    artifacts.write_json(snakemake.output.source, source)


def _store_topic_model(inputs: Any, folder: Path) -> None:
    """Write a BERT of the topic study in the format of transformers, with a tokenizer."""
    from scripts.anatomy.topic import bert
    from scripts.anatomy.topic.settings import TopicVariantSettings

    variant = TopicVariantSettings.model_validate(artifacts.read_json(inputs.run)["params"])
    weights = artifacts.read_tensors(inputs.weights, framework="torch")
    bert.save_for_transformers(weights, variant.model, folder)


def _store_pretrained_bert(inputs: Any, folder: Path) -> None:
    """Write the last checkpoint of the pretraining study, with the study's tokenizer."""
    from scripts.anatomy.models import checkpoints

    kept = Path(inputs.checkpoints)
    last = len(checkpoints.steps(kept)) - 1
    checkpoints.model_at(Path(inputs.config), kept, last).save_pretrained(folder)
    for file in (inputs.tokenizer, inputs.names):
        artifacts.link_or_copy(file, folder / Path(file).name)


job.run(main, globals())
