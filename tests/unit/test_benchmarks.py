"""Benchmarks: baselines agree with what they are compared with, and times add up."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import attention, comparison, overhead, sampler
from benchmarks.__main__ import line
from scripts.anatomy.topic import corpora, measures
from scripts.anatomy.topic.settings import LdaCorpusSettings, TopicVariantSettings

SMALL = LdaCorpusSettings(
    kind="lda",
    topics=3,
    words=12,
    alpha=0.5,
    min_length=5,
    max_length=9,
    train=40,
    validation=2,
)


def job(began, ended, start_up=0.0, threads=1, log="logs/a.log"):
    return overhead.Job(log, threads, began, ended, start_up)


def test_the_word_loop_draws_documents_of_the_same_kind():
    rng = np.random.default_rng(0)
    documents = sampler.plain_loop(SMALL, 200, rng)
    assert {len(document) - 2 for document in documents} == {5, 6, 7, 8, 9}
    assert {document[0] for document in documents} == {corpora.START}
    assert {document[-1] for document in documents} == {corpora.END}
    words = {word for document in documents for word in document[1:-1]}
    assert words == set(range(corpora.FIRST_WORD, corpora.FIRST_WORD + SMALL.words))


def test_the_loops_over_pairs_agree_with_products_of_indicators():
    rng = np.random.default_rng(1)
    tokens = corpora.sample(SMALL, rng).train[:3]
    membership = rng.random((SMALL.words, 4)) < 0.4  # words of several topics, and of none
    maps = rng.random((3, 2, tokens.shape[1], tokens.shape[1]))
    products = measures.attention_from_maps(
        maps, tokens, membership, reference_length=attention.MAX_LENGTH
    )
    expected = [[head[name] for name in measures.CLASSES] for head in products]
    topics = attention.topic_sets(membership)
    for loop in (attention.plain_loop, attention.tuned_loop):
        np.testing.assert_allclose(loop(maps, tokens, topics), expected)


def test_the_switched_off_bert_agrees_with_the_compact_model():
    from benchmarks import training
    from scripts.anatomy.topic import experiment

    corpus = corpora.sample(SMALL, np.random.default_rng(2))
    variant = TopicVariantSettings(batch=8)
    batches = training.batches_of(corpus, variant)
    compact = experiment.build(variant, corpus, 0)
    bert = training.SwitchedOffBert(corpus.d_vocab, corpus.train.shape[1])
    trained = [name for name, p in bert.named_parameters() if p.requires_grad]
    assert len(trained) == 1
    training.check_same(compact, bert, batches(0), variant)
    training.trainer(compact, variant, batches)()
    training.check_same(compact, bert, batches(1), variant)


def test_seconds_are_medians_without_the_first_round():
    calls = []
    times = comparison.seconds(lambda: calls.append("a"), lambda: calls.append("b"), repeats=3)
    assert calls == ["a", "b"] * 4
    assert len(times) == 2


@pytest.mark.parametrize(
    ("unit", "ratio", "met"),
    [("times", 11, True), ("times", 9, False), ("%", 9, True), ("%", 11, False)],
)
def test_an_aim_is_a_minimum_for_times_and_a_maximum_for_shares(unit, ratio, met):
    result = comparison.Result("what", ratio, unit, 10, {}, "")
    assert result.met is met
    assert ("NOT MET" in line("name", result)) is not met


def test_overhead_is_the_share_of_time_not_spent_on_work():
    jobs = [job(0, 10, start_up=2), job(1, 9, start_up=3, threads=2)]
    result = overhead.result("a run", jobs, cores=3, wall=12, aim=15, note="")
    assert result.details["useful core seconds"] == 8 + 2 * 5
    assert result.ratio == pytest.approx(50)
    parts = result.details["start-up %"] + result.details["scheduling and idle cores %"]
    assert parts == pytest.approx(result.ratio)


def test_pause_threads_and_span_of_a_run():
    jobs = [job(0, 10), job(2, 4), job(4, 6, threads=2), job(15, 16)]
    assert overhead.max_pause(jobs) == 5
    assert overhead.max_threads(jobs) == 3
    assert overhead.span(jobs) == 16


def test_a_finished_run_takes_start_up_from_the_same_job_or_the_same_kind(tmp_path):
    for name, seconds in (("lda/v2/seed7/train", 30), ("lda/v9/measure", 5), ("theory", 0.1)):
        file = tmp_path / f"topic/{name}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"s\th:m:s\n{seconds}\t0:00:30\n")
    known = [
        job(0, 9, 4, log="logs/topic/lda/v2/seed0/train.log"),
        job(0, 9, 1, log="logs/topic/lda/v2/measure.log"),
        job(0, 9, 3, log="logs/topic/lda/v3/measure.log"),
        job(0, 9, 1, log="logs/topic/theory.log"),
    ]
    jobs = {job.log: job for job in overhead.finished_run(tmp_path, known)}
    assert jobs["logs/topic/lda/v2/seed7/train.log"].useful == pytest.approx(26)
    assert jobs["logs/topic/lda/v9/measure.log"].start_up == 2
    assert jobs["logs/topic/theory.log"].useful == pytest.approx(0, abs=1e-5)


def test_a_watched_job_records_its_start_up(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import time\n"
        "from types import SimpleNamespace\n"
        "snakemake = SimpleNamespace(rule='r', log=['logs/x.log'], threads=2)\n"
        "time.sleep(0.3)\n"
        "import late\n"
    )
    (tmp_path / "late.py").write_text("import time\ntime.sleep(0.4)\n")
    times = tmp_path / "times.jsonl"
    watch = {"PYTHONPATH": str(comparison.ROOT / "benchmarks/watch"), "JOB_TIMES": str(times)}
    subprocess.run([sys.executable, script], env=os.environ | watch, check=True)
    subprocess.run([sys.executable, "-c", "pass"], env=os.environ | watch, check=True)
    (record,) = map(json.loads, times.read_text().splitlines())  # the second process is not a job
    watched = overhead.Job(**record)
    assert (watched.log, watched.threads) == ("logs/x.log", 2)
    assert watched.start_up > 0.4
    assert watched.useful >= 2 * 0.3
    assert watched.ended - watched.began >= 0.7
