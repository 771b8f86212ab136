# Chains of reasoning: tasks, trainings, probes, heads of pretrained models, figures.
rule lego:
    input:
        expand("results/lego/figures/{figure}.png", figure=LEGO_FIGURES),
        "results/lego/runs.csv",
        LEGO_ARTIFACTS,


rule lego_counting_baseline:
    output:
        "results/lego/{task}/counting_baseline.json",
    log:
        "logs/lego/{task}/counting_baseline.log",
    benchmark:
        "logs/lego/{task}/counting_baseline.tsv"
    wildcard_constraints:
        task=one_of(LEGO_TASKS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        task=lambda wildcards: plain(LEGO_TASKS[wildcards.task]),
        code=code("lego/counting_baseline.py"),
    message:
        "What can be known of {wildcards.task} by counting"
    script:
        "../scripts/lego/counting_baseline.py"


rule lego_train:
    input:
        unpack(lego_pretrained),
    output:
        weights="results/lego/{task}/{variant}/seed{seed}/weights.safetensors",
        history="results/lego/{task}/{variant}/seed{seed}/history.csv",
        run="results/lego/{task}/{variant}/seed{seed}/run.json",
    log:
        "logs/lego/{task}/{variant}/seed{seed}/train.log",
    benchmark:
        "logs/lego/{task}/{variant}/seed{seed}/train.tsv"
    wildcard_constraints:
        task=one_of(LEGO_TASKS),
        variant=one_of(LEGO_VARIANTS),
        seed=one_of(map(str, LEGO_SEEDS)),
    priority: 1
    group:
        trainings("lego")
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=minutes(20, paper=1440),
        gpu=1,
    params:
        variant=lego_variant,
        task=lambda wildcards: plain(LEGO_TASKS[wildcards.task]),
        test=lambda wildcards: LEGO.probing_of(wildcards.variant).test,
        code=code("lego/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.task}, seed {wildcards.seed}"
    script:
        "../scripts/lego/train.py"


rule lego_measure:
    input:
        unpack(lego_pretrained),
        weights=lego_of_seeds(
            "results/lego/{task}/{variant}/seed{seed}/weights.safetensors"
        ),
        history=lego_of_seeds("results/lego/{task}/{variant}/seed{seed}/history.csv"),
        counting_baseline="results/lego/{task}/counting_baseline.json",
    output:
        metrics=lego_of_seeds("results/lego/{task}/{variant}/seed{seed}/metrics.json"),
    log:
        "logs/lego/{task}/{variant}/measure.log",
    benchmark:
        "logs/lego/{task}/{variant}/measure.tsv"
    wildcard_constraints:
        task=one_of(LEGO_TASKS),
        variant=one_of(LEGO_VARIANTS),
    group:
        "lego_measures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=60,
        gpu=1,
    params:
        seeds=LEGO_SEEDS,
        variant=lego_variant,
        task=lambda wildcards: plain(LEGO_TASKS[wildcards.task]),
        probing=lambda wildcards: plain(LEGO.probing_of(wildcards.variant)),
        code=code("lego/measure.py"),
    message:
        "Look into {wildcards.variant} on {wildcards.task}, all seeds"
    script:
        "../scripts/lego/measure.py"


rule lego_heads:
    input:
        model=ancient("results/models/{model}/weights"),
        source="results/models/{model}/source.json",
    output:
        heads="results/lego/heads/{model}/heads.csv",
        maps="results/lego/heads/{model}/maps.safetensors",
        run="results/lego/heads/{model}/run.json",
    log:
        "logs/lego/heads/{model}.log",
    benchmark:
        "logs/lego/heads/{model}.tsv"
    wildcard_constraints:
        model=one_of(LEGO.pretrained),
    group:
        "lego_measures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(3000),
        runtime=60,
        gpu=1,
    params:
        seeds=LEGO_SEEDS,
        probing=plain(LEGO.probing, include={"maps", "n"}),
        code=code("lego/heads.py"),
    message:
        "Look for the two patterns in the heads of {wildcards.model}"
    script:
        "../scripts/lego/heads.py"


rule lego_compare:
    input:
        of=lambda wildcards: lego_of_variants(
            [LEGO_COMPARISONS[wildcards.comparison].variant], "metrics.json"
        ),
        over=lambda wildcards: lego_of_variants(
            [LEGO_COMPARISONS[wildcards.comparison].baseline], "metrics.json"
        ),
        towards=lambda wildcards: lego_of_variants(
            filter(None, [LEGO_COMPARISONS[wildcards.comparison].normalise_by]),
            "metrics.json",
        ),
    output:
        "results/lego/comparisons/{comparison}.json",
    log:
        "logs/lego/comparisons/{comparison}.log",
    benchmark:
        "logs/lego/comparisons/{comparison}.tsv"
    wildcard_constraints:
        comparison=one_of(LEGO_COMPARISONS),
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(500),
        runtime=10,
    params:
        metric=lambda wildcards: LEGO_COMPARISONS[wildcards.comparison].metric,
        towards=lambda wildcards: LEGO_COMPARISONS[wildcards.comparison].normalise_by,
        code=code("lego/compare.py"),
    message:
        "Compare LEGO variants: {wildcards.comparison}"
    script:
        "../scripts/lego/compare.py"


rule lego_runs:
    input:
        run=lego_of_variants(LEGO_VARIANTS, "run.json"),
        metrics=lego_of_variants(LEGO_VARIANTS, "metrics.json"),
    output:
        "results/lego/runs.csv",
    log:
        "logs/lego/runs.log",
    benchmark:
        "logs/lego/runs.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        code=code("report/study.py"),
    message:
        "Gather the runs of the LEGO study"
    script:
        "../scripts/report/study.py"


rule lego_plot_curves:
    input:
        history=lego_of_panels("history.csv"),
        metrics=lego_of_panels("metrics.json"),
    output:
        png=report(
            "results/lego/figures/{figure}.png",
            caption="../report/lego/curves.rst",
            category="LEGO study",
            subcategory="Learning",
            labels={"figure": "{figure}"},
        ),
        svg="results/lego/figures/{figure}.svg",
    log:
        "logs/lego/figures/{figure}.log",
    benchmark:
        "logs/lego/figures/{figure}.tsv"
    wildcard_constraints:
        figure="curves|extrapolation|mimicking|module|pretraining|d3",
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=lambda wildcards: LEGO_PANELS[wildcards.figure],
        code=code("lego/plot_curves.py"),
    message:
        "Draw learning curves, {wildcards.figure}"
    script:
        "../scripts/lego/plot_curves.py"


rule lego_plot_percolation:
    input:
        metrics=lego_of_panels("metrics.json"),
    output:
        png=report(
            "results/lego/figures/{figure}.png",
            caption="../report/lego/percolation.rst",
            category="LEGO study",
            subcategory="Inside",
            labels={"figure": "{figure}"},
        ),
        svg="results/lego/figures/{figure}.svg",
    log:
        "logs/lego/figures/{figure}.log",
    benchmark:
        "logs/lego/figures/{figure}.tsv"
    wildcard_constraints:
        figure="percolation",
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=lambda wildcards: LEGO_PANELS[wildcards.figure],
        code=code("lego/plot_percolation.py"),
    message:
        "Draw in which layer variables are resolved"
    script:
        "../scripts/lego/plot_percolation.py"


rule lego_plot_positions:
    input:
        metrics=lego_of_panels("metrics.json"),
    output:
        png=report(
            "results/lego/figures/{figure}.png",
            caption="../report/lego/positions.rst",
            category="LEGO study",
            subcategory="Learning",
            labels={"figure": "{figure}"},
        ),
        svg="results/lego/figures/{figure}.svg",
    log:
        "logs/lego/figures/{figure}.log",
    benchmark:
        "logs/lego/figures/{figure}.tsv"
    wildcard_constraints:
        figure="graphs|depth",
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=lambda wildcards: LEGO_PANELS[wildcards.figure],
        code=code("lego/plot_positions.py"),
    message:
        "Draw accuracy by position, {wildcards.figure}"
    script:
        "../scripts/lego/plot_positions.py"


rule lego_plot_iterations:
    input:
        metrics=lego_of_panels("metrics.json"),
    output:
        png=report(
            "results/lego/figures/{figure}.png",
            caption="../report/lego/iterations.rst",
            category="LEGO study",
            subcategory="Inside",
            labels={"figure": "{figure}"},
        ),
        svg="results/lego/figures/{figure}.svg",
    log:
        "logs/lego/figures/{figure}.log",
    benchmark:
        "logs/lego/figures/{figure}.tsv"
    wildcard_constraints:
        figure="iterations",
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=lambda wildcards: LEGO_PANELS[wildcards.figure],
        layers=[LEGO_VARIANTS[name].model.n_layers for name in LEGO_PANELS["iterations"]],
        code=code("lego/plot_iterations.py"),
    message:
        "Draw tests with more or fewer layers"
    script:
        "../scripts/lego/plot_iterations.py"


rule lego_plot_shortcut:
    input:
        metrics=lego_of_panels("metrics.json"),
    output:
        png=report(
            "results/lego/figures/{figure}.png",
            caption="../report/lego/shortcut.rst",
            category="LEGO study",
            subcategory="Shortcuts",
            labels={"figure": "{figure}"},
        ),
        svg="results/lego/figures/{figure}.svg",
    log:
        "logs/lego/figures/{figure}.log",
    benchmark:
        "logs/lego/figures/{figure}.tsv"
    wildcard_constraints:
        figure="shortcut",
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        variants=lambda wildcards: LEGO_PANELS[wildcards.figure],
        code=code("lego/plot_shortcut.py"),
    message:
        "Draw the shortcut and its fixes"
    script:
        "../scripts/lego/plot_shortcut.py"


rule lego_plot_task:
    input:
        baselines=expand("results/lego/{task}/counting_baseline.json", task=LEGO_TASKS),
    output:
        png=report(
            "results/lego/figures/task.png",
            caption="../report/lego/task.rst",
            category="LEGO study",
            subcategory="Task",
            labels={"figure": "task"},
        ),
        svg="results/lego/figures/task.svg",
    log:
        "logs/lego/figures/task.log",
    benchmark:
        "logs/lego/figures/task.tsv"
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        tasks={name: plain(task) for name, task in LEGO_TASKS.items()},
        code=code("lego/plot_task.py"),
    message:
        "Draw a sentence and what counting tells"
    script:
        "../scripts/lego/plot_task.py"


rule lego_plot_patterns:
    input:
        maps=expand(
            "results/lego/heads/{model}/maps.safetensors", model=LEGO.pretrained[:1]
        ),
        heads=expand("results/lego/heads/{model}/heads.csv", model=LEGO.pretrained[:1]),
    output:
        png=report(
            "results/lego/figures/patterns.png",
            caption="../report/lego/patterns.rst",
            category="LEGO study",
            subcategory="Pretrained models",
            labels={"figure": "patterns"},
        ),
        svg="results/lego/figures/patterns.svg",
    log:
        "logs/lego/figures/patterns.log",
    benchmark:
        "logs/lego/figures/patterns.tsv"
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        model=LEGO.pretrained[0] if LEGO.pretrained else None,
        code=code("lego/plot_patterns.py"),
    message:
        "Draw an association and a manipulation head"
    script:
        "../scripts/lego/plot_patterns.py"


rule lego_plot_heads:
    input:
        heads=expand("results/lego/heads/{model}/heads.csv", model=LEGO.pretrained),
    output:
        png=report(
            "results/lego/figures/heads.png",
            caption="../report/lego/heads.rst",
            category="LEGO study",
            subcategory="Pretrained models",
            labels={"figure": "heads"},
        ),
        svg="results/lego/figures/heads.svg",
    log:
        "logs/lego/figures/heads.log",
    benchmark:
        "logs/lego/figures/heads.tsv"
    group:
        "lego_figures"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=10,
    params:
        models=LEGO.pretrained,
        code=code("lego/plot_heads.py"),
    message:
        "Draw the scores of all heads"
    script:
        "../scripts/lego/plot_heads.py"
