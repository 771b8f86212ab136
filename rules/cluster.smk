# What is different on a cluster. Each rule states what its jobs request.
import subprocess

from snakemake.exceptions import WorkflowError

# The variables in which SLURM states what it allocated; `_nodes` would run jobs one by one.
ALLOCATED = {"_cores": "SLURM_CPUS_PER_TASK", "gpu": "SLURM_GPUS"}


def run_here(workflow):
    """Let the Snakemake inside a submission run its jobs itself, within the allocation.

    By default it would start another Snakemake for each of them, one after the other.
    """
    for each in workflow.rules:
        each.group = None
        workflow.localrules(each.name)
    workflow.register_resource("_nodes", None)
    for resource, variable in ALLOCATED.items():
        if os.environ.get(variable, "").isdigit():
            workflow.register_resource(resource, int(os.environ[variable]))


def check_slurm():
    """Raise WorkflowError if SLURM does not answer; its plugin would wait forever."""
    try:
        subprocess.run(["sinfo"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise WorkflowError(
            "SLURM does not answer here (`sinfo`): start on a login node of the cluster"
        )


def count_submissions(dag):
    """Return a line about the jobs and submissions that go to the cluster."""
    jobs = [job for job in dag.needrun_jobs() if not job.is_local]
    submissions = {dag.get_job_group(job) or job for job in jobs}
    return f"To the cluster: {len(jobs)} jobs in {len(submissions)} submissions"


if workflow.remote_exec:
    run_here(workflow)


onstart:
    if not workflow.local_exec:
        check_slurm()
        print(count_submissions(workflow.dag), file=sys.stderr)
