"""Classify with one model's lower layers and another's upper ones (section 5.2 and Figure 4).

Every fine-tuned seed of the upper model is a run. All cuts are tried on the validation texts, and
the best one of each run and way of translating is tested; controls have the same choice.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedModel

from scripts import job
from scripts.anatomy import artifacts, provenance, seeding, statistics
from scripts.anatomy.embedding import (
    aggregation,
    alignment,
    classification_data,
    finetuning,
    tokens,
    translation,
)
from scripts.anatomy.embedding.adapters import final_norm
from scripts.anatomy.embedding.finetuning import Classifier, TextBatch
from scripts.anatomy.embedding.settings import (
    FinetuningRunSettings,
    TranslationPairSettings,
    TranslationSettings,
)
from scripts.anatomy.embedding.translation import Kernel, Way
from scripts.anatomy.embedding.views import view
from scripts.anatomy.models import loading

PROBE = "probe"


class Side(NamedTuple):
    """A model, its embeddings as rows, its tokens by id, and texts cut by its tokenizer."""

    model: PreTrainedModel
    W_E: Tensor
    words: list[str]
    texts: dict[str, list[Tensor]]


def main(snakemake: Any) -> None:
    """Translate at every cut, choose, test, and summarise."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    pair = TranslationPairSettings.model_validate(params.pair)
    run = FinetuningRunSettings.model_validate(params.run)
    settings = TranslationSettings.model_validate(params.translation)
    texts = artifacts.read_table(inp.texts)
    train = texts[texts["part"] == "train"]
    tables = {
        "train": train.head(settings.train),
        "validation": classification_data.balanced(texts, "validation", settings.validation),
        "test": classification_data.balanced(texts, "test", settings.test),
    }
    labels = {part: table["label"].to_numpy(copy=True) for part, table in tables.items()}
    key = f"embedding.translation.pairs.{snakemake.wildcards.pair}"
    with job.compute(snakemake) as compute, torch.no_grad(), job.config_errors(key):
        models = [loading.model(Path(path)).to(compute.device) for path in (inp.lower, inp.upper)]
        max_length = min([run.max_length, *map(loading.positions, models)])
        A, B = (
            _side(model, Path(path), tables, max_length)
            for model, path in zip(models, (inp.lower, inp.upper), strict=True)
        )
        cuts = translation.check_cuts(pair.cuts, A.model)
        before = finetuning.build(B.model, run, seed=0).eval()
        trained = {
            seed: _trained(Path(inp.upper), run, Path(path), compute.device)
            for seed, path in zip(params.seeds, inp.weights, strict=True)
        }
        ways = _ways(A, B, before, trained, pair, settings, cuts, Path(inp.upper))
        names = [*ways] + ([(None, PROBE)] if PROBE in settings.controls else [])
        every = dict.fromkeys(names, cuts)
        outputs, means = translation.evaluate(ways, A.model, A.texts["validation"], every)
        probes = {}
        if PROBE in settings.controls:
            _, fitted = translation.evaluate({}, A.model, A.texts["train"], {PROBE: cuts})
            probes = {cut: translation.probe(fitted[cut], labels["train"]) for cut in cuts}
        rows = [*_rows("validation", outputs, means, probes, labels["validation"])]
        best = {name: [_best(rows, *name)] for name in names}
        outputs, means = translation.evaluate(ways, A.model, A.texts["test"], best)
        probes = {cut: fit for cut, fit in probes.items() if [cut] == best[None, PROBE]}
        rows += _rows("test", outputs, means, probes, labels["test"])
        device = str(compute.device)
    table = pd.DataFrame(rows)
    upper = [artifacts.read_json(path)["metrics"]["accuracy"] for path in inp.runs]
    metrics = aggregation.translation(table, upper)
    metrics["texts"] = {part: len(table) for part, table in tables.items()}
    artifacts.write_table(out.table, table.astype({"seed": "Int64"}))
    artifacts.write_json(out.summary, metrics)
    record = provenance.record(seed=None, device=device, started=started)
    parts = {"pair": params.pair, "translation": params.translation, "seeds": params.seeds}
    artifacts.write_json(out.run, {"params": parts, "metrics": metrics, "provenance": record})


def _side(
    model: PreTrainedModel, folder: Path, tables: dict[str, pd.DataFrame], max_length: int
) -> Side:
    W_E = view(model).W_E
    tokenizer = loading.tokenizer(folder, len(W_E))
    cut = {
        part: tokens.cut(table["text"].tolist(), tokenizer, max_length)
        for part, table in tables.items()
    }
    return Side(model, W_E, tokenizer.convert_ids_to_tokens([*range(len(tokenizer))]), cut)


def _trained(folder: Path, run: FinetuningRunSettings, weights: Path, device: str) -> Classifier:
    """Return a fine-tuned classifier."""
    made = finetuning.build(loading.model(folder), run, seed=0)
    finetuning.load_changed(made, artifacts.read_tensors(weights, framework="torch"))
    return made.to(device).eval()


def _ways(
    A: Side,
    B: Side,
    before: Classifier,
    trained: dict[int, Classifier],
    pair: TranslationPairSettings,
    settings: TranslationSettings,
    cuts: list[int],
    folder: Path,
) -> dict[tuple[int, str], Way]:
    """Return what is wanted of the variants and controls, by seed and name."""
    ids_B, ids_A = alignment.shared_ids(B.words, A.words, pair.offset)
    wanted = {*settings.variants, *settings.controls} - {PROBE}
    if isinstance(final_norm(A.model), torch.nn.Identity):
        wanted -= {"final_norm", "published"}  # there is none: they are plain, and positions
    if A.W_E.shape[1] != B.W_E.shape[1]:
        wanted -= {"identity"}
    fitted = [{}] * len(trained)
    if "least_squares" in wanted:
        pairs = _paired(A, B, [*trained.values()], pair.blocks, cuts)
        fitted = translation.least_squares(pairs)
    runs = {}
    for (seed, after), kernels in zip(trained.items(), fitted, strict=True):
        W_B = view(after.model).W_E[ids_B]
        made = _of_run(seed, after, before, (A.W_E[ids_A], W_B), kernels, pair.blocks, folder, cuts)
        runs |= {(seed, name): make() for name, make in made.items() if name in wanted}
    return runs


def _of_run(
    seed: int,
    after: Classifier,
    before: Classifier,
    embeddings: tuple[Tensor, Tensor],
    fitted: dict[int, Kernel],
    blocks: int,
    folder: Path,
    cuts: list[int],
) -> dict[str, Callable[[], Way]]:
    """Return how each variant and control of a run is made."""
    W_A, W_B = embeddings
    upper, K = translation.top(after, blocks), translation.kernel(W_A, W_B)
    start = dict(before.named_parameters())

    def draw(purpose: str) -> torch.Generator:
        return seeding.torch_generator(seed, "translation", purpose)

    def way(kernel: Kernel = K, upper: Classifier = upper, **choices: bool) -> Way:
        return Way(upper, dict.fromkeys(cuts, kernel), **choices)

    return {
        "plain": way,
        "positions": lambda: way(positions=True),
        "final_norm": lambda: way(final_norm=True),
        "published": lambda: way(positions=True, final_norm=True),
        "differences": lambda: way(upper=translation.only_differences(after, start, blocks)),
        "permuted": lambda: way(translation.permuted_kernel(W_A, W_B, draw("permuted"))),
        "random_kernel": lambda: way(translation.random_kernel(K, draw("random kernel"))),
        "random_blocks": lambda: way(upper=_random(folder, seed, after, blocks)),
        "before": lambda: way(upper=translation.headed(translation.top(before, blocks), after)),
        "identity": lambda: way(torch.eye(len(K), device=K.device)),
        "least_squares": lambda: Way(upper, fitted),
    }


def _random(folder: Path, seed: int, after: Classifier, blocks: int) -> Classifier:
    """Return the last layers at random weights, under the trained linear layer."""
    fresh = Classifier(loading.control(folder, seed)).to(after.classifier.weight.device).eval()
    return translation.headed(translation.top(fresh, blocks), after)


def _paired(
    A: Side, B: Side, trained: list[Classifier], blocks: int, cuts: list[int]
) -> Iterator[tuple[dict[int, Tensor], list[Tensor]]]:
    """States of the same tokens in both models, batch by batch, padding left out."""
    for one, other in zip(A.texts["train"], B.texts["train"], strict=True):
        if len(one) != len(other):
            raise ValueError("least_squares: the two models cut texts into other tokens")
    readers = [translation.read_by_top(classifier, blocks) for classifier in trained]
    device = A.model.device
    for chosen, batch in finetuning.batched(A.texts["train"]):
        placed = batch.to(device)
        kept = placed.mask.bool()
        states = translation.states(A.model, placed)
        in_B = finetuning.padded([B.texts["train"][index] for index in chosen]).to(device)
        yield (
            {cut: states[cut][kept] for cut in cuts},
            [reader(TextBatch(in_B.ids, placed.mask))[kept] for reader in readers],
        )


def _rows(
    part: str, outputs: dict, means: dict, probes: dict, labels: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield a row for each run, way and cut."""
    for (seed, name), of_cuts in outputs.items():
        for cut, logits in of_cuts.items():
            yield _row(part, seed, name, cut, finetuning.right(logits, labels))
    for cut, fit in probes.items():
        yield _row(part, None, PROBE, cut, fit.predict(means[cut]) == labels)


def _row(part: str, seed: int | None, name: str, cut: int, right: np.ndarray) -> dict[str, Any]:
    share, low, high = statistics.proportion_interval(right)
    return {"part": part, "seed": seed, "way": name, "cut": cut, "texts": len(right),
            "accuracy": share, "low": low, "high": high}  # fmt: skip


def _best(rows: list[dict[str, Any]], seed: int | None, name: str) -> int:
    """Return the cut that is best on the validation texts; of equals the first."""
    mine = [row for row in rows if row["seed"] == seed and row["way"] == name]
    return max(mine, key=lambda row: row["accuracy"])["cut"]


job.run(main, globals())
