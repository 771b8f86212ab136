# The rules of all figures and pages, one for each entry that `figure` and `page` have added.
for rule, drawn in DRAWN.items():

    rule:
        name:
            rule
        input:
            **drawn.input,
        output:
            **drawn.output,
        log:
            f"{drawn.logs}.log",
        benchmark:
            f"{drawn.logs}.tsv"
        wildcard_constraints:
            **{name: any_of(values) for name, values in drawn.constraints.items()},
        group:
            f"{drawn.script.split('/')[0]}_figures"
        conda:
            CONDA
        resources:
            mem_mb=memory(drawn.memory),
        params:
            **drawn.params,
            code=code(drawn.script),
        message:
            drawn.message
        script:
            # evaluated again when the job runs, with the name of its rule in `rule`
            script_of(rule)
