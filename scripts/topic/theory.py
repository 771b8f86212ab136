"""Evaluate the closed forms of the three theorems for every sampled corpus.

Per corpus: Theorem 2's block values and Theorem 3's ratio R at the standard masking, with the
selected words visible and hidden. Checks without data: how far members of Theorem 1's family are
from fitting every document, and how far R at many topics is from its limit.
"""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import theory

TAUS = (2, 3, 4, 5, 8)
# number of topics, words of a topic, topics of a document, p_m, p_c, p_r
FAMILY_SETTINGS = [
    (5, 3, 2, 0.15, 0.1, 0.1),
    (10, 10, 3, 0.15, 0.1, 0.1),
    (10, 10, 1, 0.15, 0.1, 0.1),
    (6, 4, 3, 0.3, 0.2, 0.15),
    (8, 5, 4, 0.15, 0.0, 0.1),
]


def main(snakemake: Any) -> None:
    """Evaluate the closed forms."""
    corpora = snakemake.params.corpora
    artifacts.write_json(
        snakemake.output[0],
        {
            "family_residual": max(_family_residual(*setting) for setting in FAMILY_SETTINGS),
            "limit_error": max(_limit_error(tau) for tau in TAUS),
            "R": _ratio_table(),
            "standard": _closed_forms({"topics": 10, "words": 100}),
            "corpora": {
                name: _closed_forms(corpus)
                for name, corpus in corpora.items()
                if corpus["kind"] in ("lda", "exact")
                and corpus.get("tau", 1) < corpus["topics"]  # tau = T has no structure to learn
            },
        },
    )


def _family_residual(
    topics: int, words: int, tau: int, p_m: float, p_c: float, p_r: float
) -> float:
    """Return the largest error of a random member of Theorem 1's family over all documents."""
    setting = theory.TheorySetting(topics, words, tau, p_m, p_c, p_r)
    rng = seeding.numpy_generator(0, "theorem 1", topics, words, tau)
    u = rng.normal(size=topics * words + 1)
    return theory.theorem1_residual(theory.embedding_gram_family(setting, u, rng=rng), setting)


def _limit_error(tau: int) -> float:
    """Return the relative difference of R at 100,000 topics from its limit (Theorem 3)."""
    limit = theory.attention_ratio_limit(tau, 0.15, 0.1)
    return abs(theory.optimal_attention_ratio(theory.TheorySetting(100_000, 10, tau)) / limit - 1)


def _closed_forms(corpus: dict[str, Any]) -> dict[str, Any]:
    """Return Theorem 2's blocks, and Theorem 3's R if documents have a fixed number of topics."""
    topics, words, tau = corpus["topics"], corpus["words"] // corpus["topics"], corpus.get("tau", 1)
    forms = {}
    for context in ("visible", "hidden"):
        setting = theory.TheorySetting(topics, words, tau, visible=context == "visible")
        blocks = theory.optimal_value(setting)
        forms[context] = {
            "same": blocks.same,
            "different": blocks.different,
            "mask_column": blocks.mask_column,
            "contrast": blocks.same - blocks.different,
        }
        if tau > 1:
            forms[context]["R"] = theory.optimal_attention_ratio(setting)
    return forms


def _ratio_table() -> dict[str, dict[str, float]]:
    """Return Theorem 3's R for ten words a topic, by topics T and topics of a document tau."""
    return {
        f"T{topics}": {
            f"tau{tau}": theory.optimal_attention_ratio(theory.TheorySetting(topics, 10, tau))
            for tau in TAUS
        }
        for topics in (10, 20, 100, 1000)
    } | {"limit": {f"tau{tau}": theory.attention_ratio_limit(tau, 0.15, 0.1) for tau in TAUS}}


job.run(main, globals())
