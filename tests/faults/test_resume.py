"""A training that is killed and started again has the same bits as an uninterrupted one.

Each training is killed at a random step.
"""

import os
import signal

from trainings import (
    OUTPUTS,
    PATIENCE,
    RUN,
    Training,
    alive,
    suspended_at_a_random_step,
    until,
)


def test_snakemake_and_job_killed(training: Training, uninterrupted: Training) -> None:
    snakemake, job = suspended_at_a_random_step(training)
    for process in (snakemake, job):
        process.kill()
    snakemake.wait(PATIENCE)
    until(lambda: not alive(job), "the job is dead")
    stopped_at = training.step
    assert training.start().wait(PATIENCE) == 1
    assert "--unlock" in training.printed
    training.unlock()
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_snakemake_killed_while_its_job_runs_on(
    training: Training, uninterrupted: Training
) -> None:
    snakemake, orphan = suspended_at_a_random_step(training)
    snakemake.kill()
    snakemake.wait(PATIENCE)
    training.unlock()
    snakemake = training.start()
    until(lambda: "another process makes" in training.log, "the second job waits")
    assert not (training.folder / RUN / OUTPUTS[0]).exists()
    orphan.resume()
    assert snakemake.wait(PATIENCE) == 0, training.printed
    assert not alive(orphan)
    assert (
        "going on" not in training.log and "steps/s" not in training.log
    )  # nothing is trained twice
    assert training.outputs() == uninterrupted.outputs()


def test_job_terminated(training: Training, uninterrupted: Training) -> None:
    """SLURM sends SIGTERM at the time limit."""
    snakemake, job = suspended_at_a_random_step(training)
    job.terminate()
    job.resume()
    assert snakemake.wait(PATIENCE) == 1
    stopped_at = training.step
    assert f"stopped by signal 15 after step {stopped_at}" in training.log
    assert not any((training.folder / RUN / name).exists() for name in OUTPUTS)
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_interrupted_from_the_keyboard(training: Training, uninterrupted: Training) -> None:
    snakemake, job = suspended_at_a_random_step(training)
    os.killpg(snakemake.pid, signal.SIGINT)  # a terminal sends it to all processes
    job.resume()
    assert snakemake.wait(PATIENCE) != 0
    until(lambda: not alive(job), "the job has ended")
    stopped_at = training.step
    assert f"stopped by signal 2 after step {stopped_at}" in training.log
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_a_job_that_ran_out_of_memory_gets_more(
    training: Training, uninterrupted: Training
) -> None:
    """With --retries, a killed job starts again with twice the memory and continues."""
    snakemake, job = suspended_at_a_random_step(training, "--retries", "2")
    job.kill()  # the job alone, as the out-of-memory killer does
    assert snakemake.wait(PATIENCE) == 0, training.printed
    assert "Trying to restart job" in training.printed
    assert "going on from step " in training.log
    assert training.outputs() == uninterrupted.outputs()
    assert training.memory() == 2 * uninterrupted.memory()


def test_a_second_snakemake_is_refused(training: Training, uninterrupted: Training) -> None:
    first, job = suspended_at_a_random_step(training)
    second = Training(training.folder, "second.txt")
    assert second.start().wait(PATIENCE) == 1
    assert "Directory cannot be locked" in second.printed and "--unlock" in second.printed
    assert "Traceback" not in second.printed
    job.resume()
    assert first.wait(PATIENCE) == 0, training.printed
    assert "going on" not in training.log
    assert training.outputs() == uninterrupted.outputs()
