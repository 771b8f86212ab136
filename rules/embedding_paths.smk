# What the embedding study's rules are made of: names from the configuration, and paths.
EMBEDDING = SETTINGS.embedding
EMBEDDING_READINGS = EMBEDDING.present_readings
EMBEDDING_FOLDER = f"results/embedding/{{model}}/{EMBEDDING.reading}"


def embedding_of_models(artifact):
    """An artifact of every model under the reading of experiments and figures."""
    return expand(f"{EMBEDDING_FOLDER}/{artifact}", model=EMBEDDING.models)


EMBEDDING_FIGURES = ["atlas", "robustness", "hidden", "hidden_last", "related"]
EMBEDDING_PAGES = [
    *embedding_of_models("vectors.html"),
    *embedding_of_models("heads.html"),
]
# What claims can be measured on
EMBEDDING_ARTIFACTS = [
    path
    for artifact in ("robustness", "hidden", "related", "heads")
    for path in embedding_of_models(f"{artifact}.json")
]
