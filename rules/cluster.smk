# What is different on a cluster. What a job asks for there is said by its rule.
if workflow.remote_exec:
    run_here(workflow)


onstart:
    if not workflow.local_exec:
        check_slurm()
        print(count_submissions(workflow.dag), file=sys.stderr)
