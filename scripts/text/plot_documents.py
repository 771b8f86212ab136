"""Draw the number of topics of a document, which the paper assumes to be small."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.text import membership


def main(snakemake: Any) -> None:
    """Draw the effective number of topics of the sampled documents, one curve a corpus."""
    figures.style()
    rows, most = [], 1
    for name, path in zip(snakemake.params.corpora, snakemake.input.mixtures, strict=True):
        mixtures = artifacts.read_tensors(path)["mixtures"]
        numbers = membership.effective_topics(mixtures)
        label = f"{name}: median {np.median(numbers):.1f} of {mixtures.shape[1]}"
        most = max(most, mixtures.shape[1])
        rows += [{"corpus": label, "topics": number} for number in numbers]
    figure, ax = plt.subplots(figsize=(8, 4.5))
    sns.histplot(
        pd.DataFrame(rows), x="topics", hue="corpus", stat="percent", common_norm=False,
        element="step", binwidth=0.5, binrange=(1, most), ax=ax,
    )  # fmt: skip
    ax.get_legend().set_title("")
    ax.set(xlabel="effective number of topics of a document, exp(entropy)", ylabel="documents (%)")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
