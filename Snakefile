# Transformer Anatomy. Three commands to know:
#
#   snakemake --cores 4                                            everything in config.yaml
#   snakemake --cores 4 -- topic                                   one study
#   snakemake --cores 4 -- results/topic/figures/embeddings.png    one artifact
#
# The rules are in rules/, their scripts in scripts/, the library of the scripts in scripts/anatomy/.
from pathlib import Path

from snakemake.utils import min_version

min_version("9.0")


# Beside this file, whatever --directory is
CONFIG = Path(workflow.current_basedir, "config.yaml")


include: "rules/configuration.smk"


configfile: CONFIG


report: "report/workflow.rst"


include: "rules/common.smk"
include: "rules/inputs.smk"
include: "rules/models.smk"
include: "rules/topic.smk"
include: "rules/text.smk"
include: "rules/embedding.smk"
include: "rules/embedding_alignment.smk"
include: "rules/embedding_finetuning.smk"
include: "rules/lego.smk"
include: "rules/pretraining.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/cluster.smk"


# Rules that take seconds run on the login node of a cluster
localrules:
    all,
    topic,
    topic_theory,
    model,
    text,
    text_table,
    embedding,
    embedding_finetuned,
    lego,
    lego_counting_baseline,
    pretraining,
    report_compare,
    report_study_runs,
    report_runs,
    report_claims,
    report_ledger,
    claims,


rule all:
    default_target: True
    input:
        rules.topic.input,
        rules.text.input,
        rules.embedding.input,
        rules.lego.input,
        rules.pretraining.input,
        rules.claims.input,
        rules.report_runs.output,
