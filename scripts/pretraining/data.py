"""Pack the corpus into rows of tokens: some documents for training, others for validation."""

import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.pretraining import data, tokenizer
from scripts.anatomy.text import corpora
from scripts.anatomy.text.settings import TextCorpusSettings


def main(snakemake: Any) -> None:
    """Write the documents to both files as they are read."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    corpus = TypeAdapter(TextCorpusSettings).validate_python(params.corpus)
    cutter, special = tokenizer.load((Path(inp.tokenizer), Path(inp.names)))
    tokens = unknown = 0
    with artifacts.writing(out.train) as train, artifacts.writing(out.validation) as validation:
        with train.open("wb") as train_file, validation.open("wb") as validation_file:
            packers = [
                data.Packer(file, length=params.length, d_vocab=params.d_vocab, special=special)
                for file in (train_file, validation_file)
            ]
            documents = data.encoded(corpora.documents(corpus), cutter)
            with job.config_errors(f"text.corpora.{snakemake.wildcards.corpus}"):
                for ids, is_validation in zip(
                    documents, data.split(params.validation), strict=False
                ):
                    packers[is_validation].add(ids)
                    tokens += len(ids)
                    unknown += ids.count(special.unk)
            for packer in packers:
                packer.close()
        if not all(packer.rows for packer in packers):
            kinds = [f"{packer.rows} of {packer.documents} documents" for packer in packers]
            sys.exit(
                f"pretraining.corpus: {snakemake.wildcards.corpus} is too short for rows of "
                f"{params.length} tokens: to train on {kinds[0]}, for validation {kinds[1]}"
            )
    artifacts.write_json(
        out.info,
        {
            "d_vocab": params.d_vocab,
            "d_tokens": cutter.get_vocab_size(),
            "special": special._asdict(),
            "documents": [packer.documents for packer in packers],
            "rows": [packer.rows for packer in packers],
            "tokens": tokens,
            "unknown": unknown / tokens,
            "digests": {
                "train": artifacts.digest(out.train),
                "validation": artifacts.digest(out.validation),
            },
        },
    )


job.run(main, globals())
