"""Write the tokenizer of the pretraining study: trained on its corpus, or a pretrained model's."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers
from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy.pretraining import tokenizer
from scripts.anatomy.pretraining.settings import TokenizerSettings
from scripts.anatomy.text import corpora
from scripts.anatomy.text.settings import TextCorpusSettings


def main(snakemake: Any) -> None:
    """Train the tokenizer, or copy that of the model."""
    params, out = snakemake.params, snakemake.output
    settings = TokenizerSettings.model_validate(params.tokenizer)
    names = tokenizer.SPECIAL
    with job.config_errors("pretraining.tokenizer"):
        if settings.model is None:
            made = _trained(
                settings, TypeAdapter(TextCorpusSettings).validate_python(params.corpus)
            )
        else:
            made, names = tokenizer.of_model(Path(snakemake.input.model), settings.d_vocab)
    tokenizer.save(made, names, (Path(out.tokenizer), Path(out.names)))


def _trained(settings: TokenizerSettings, corpus: TextCorpusSettings) -> tokenizers.Tokenizer:
    def texts() -> Iterator[str]:
        return islice(corpora.documents(corpus), settings.documents)

    return tokenizer.train(
        texts, size=settings.d_vocab, alphabet=settings.alphabet, lowercase=settings.lowercase
    )


job.run(main, globals())
