# What the real-text study's rules are made of: names from the configuration, and paths.
TEXT = SETTINGS.text
TEXT_SEEDS = TEXT.seeds
TEXT_CORPORA = TEXT.corpora


def text_of_seeds(pattern):
    """The pattern for every seed, other wildcards left alone."""
    return expand(pattern, seed=TEXT_SEEDS, allow_missing=True)


def text_of_models(artifact):
    """An artifact of every model on every corpus."""
    return expand(
        f"results/text/{{corpus}}/{{model}}/{artifact}",
        corpus=TEXT_CORPORA,
        model=TEXT.models,
    )


def text_of_first_corpus(artifact):
    """An artifact of every model on the first corpus."""
    return text_of_models(artifact)[: len(TEXT.models)]


def text_of_corpora(artifact):
    """An artifact of every corpus's first LDA fit."""
    return [
        f"results/text/{corpus}/seed{TEXT_SEEDS[0]}/{artifact}"
        for corpus in TEXT_CORPORA
    ]


def text_corpus_files(wildcards):
    """The file that a corpus is read from; none when a package or the hub has it."""
    path = getattr(TEXT_CORPORA[wildcards.corpus], "path", None)
    return [local(str(path))] if path else []


TEXT_FIGURES = ["attention", "heads", "embeddings", "filters", "topics", "documents"]
# What claims can be measured on
TEXT_ARTIFACTS = [
    *text_of_models("run.json"),
    *expand(
        "results/text/{corpus}/seed{seed}/run.json",
        corpus=TEXT_CORPORA,
        seed=TEXT_SEEDS,
    ),
]
