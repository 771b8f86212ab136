# Chains of reasoning: tasks, trainings, probes, heads of pretrained models, figures.
rule lego_counting_baseline:
    output:
        "results/lego/{task}/counting_baseline.json",
    log:
        "logs/lego/{task}/counting_baseline.log",
    benchmark:
        "logs/lego/{task}/counting_baseline.tsv"
    wildcard_constraints:
        task=any_of(LEGO.tasks),
    conda:
        CONDA
    params:
        task=lambda wildcards: as_params(LEGO.tasks[wildcards.task]),
        code=code("lego/counting_baseline.py"),
    message:
        "Best accuracy by counting on {wildcards.task}"
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
        task=any_of(LEGO.tasks),
        variant=any_of(LEGO.variants),
        seed=seed_of(LEGO),
    priority: 1
    group:
        trainings("lego")
    conda:
        CONDA
    resources:
        mem_mb=memory(4000),
        runtime=runtime(20, paper=1440),
        gpu=1,
    params:
        variant=lego_variant,
        task=lambda wildcards: as_params(LEGO.tasks[wildcards.task]),
        test=lambda wildcards: LEGO.probing_of(wildcards.variant).test,
        code=code("lego/train.py"),
    message:
        "Train {wildcards.variant} on {wildcards.task}, seed {wildcards.seed}"
    script:
        "../scripts/lego/train.py"


rule lego_measure:
    input:
        unpack(lego_pretrained),
        weights=each_seed(
            "results/lego/{task}/{variant}/seed{seed}/weights.safetensors"
        ),
        history=each_seed("results/lego/{task}/{variant}/seed{seed}/history.csv"),
        counting_baseline=rules.lego_counting_baseline.output[0],
    output:
        metrics=each_seed("results/lego/{task}/{variant}/seed{seed}/metrics.json"),
    log:
        "logs/lego/{task}/{variant}/measure.log",
    benchmark:
        "logs/lego/{task}/{variant}/measure.tsv"
    wildcard_constraints:
        task=any_of(LEGO.tasks),
        variant=any_of(LEGO.variants),
    group:
        "lego_measures"
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=60,
        gpu=1,
    params:
        seeds=LEGO.seeds,
        variant=lego_variant,
        task=lambda wildcards: as_params(LEGO.tasks[wildcards.task]),
        probing=lambda wildcards: as_params(LEGO.probing_of(wildcards.variant)),
        code=code("lego/measure.py"),
    message:
        "Measure {wildcards.variant} on {wildcards.task}, all seeds"
    script:
        "../scripts/lego/measure.py"


rule lego_heads:
    input:
        **stored_model("{model}"),
    output:
        heads="results/lego/heads/{model}/heads.csv",
        maps="results/lego/heads/{model}/maps.safetensors",
        run="results/lego/heads/{model}/run.json",
    log:
        "logs/lego/heads/{model}.log",
    benchmark:
        "logs/lego/heads/{model}.tsv"
    wildcard_constraints:
        model=any_of(LEGO.pretrained),
    group:
        "lego_measures"
    conda:
        CONDA
    resources:
        mem_mb=memory(3000),
        runtime=60,
        gpu=1,
    params:
        seeds=LEGO.seeds,
        probing=as_params(LEGO.probing, include={"maps", "n"}),
        code=code("lego/heads.py"),
    message:
        "Score the heads of {wildcards.model} for the two patterns"
    script:
        "../scripts/lego/heads.py"


# --- figures ------------------------------------------------------------------------------------

# Figures that show variants: their script and subcategory
LEGO_PANELS = {
    "curves": ("curves", "Learning"),
    "extrapolation": ("curves", "Learning"),
    "mimicking": ("curves", "Learning"),
    "module": ("curves", "Learning"),
    "pretraining": ("curves", "Learning"),
    "d3": ("curves", "Learning"),
    "percolation": ("percolation", "Inside"),
    "graphs": ("positions", "Learning"),
    "depth": ("positions", "Learning"),
    "iterations": ("iterations", "Inside"),
    "shortcut": ("shortcut", "Shortcuts"),
}
for name, variants in LEGO.figures:
    if variants:
        # `script` is Snakemake's own name
        drawing, subcategory = LEGO_PANELS[name]
        input = {"metrics": of_variants("lego", variants, "metrics.json")}
        params = {"variants": variants}
        if drawing == "curves":
            input["history"] = of_variants("lego", variants, "history.csv")
        if drawing == "iterations":
            params["layers"] = [LEGO.variants[v].model.n_layers for v in variants]
        figure(f"lego/{name}", drawing, subcategory, input=input, params=params)
figure(
    "lego/task",
    "task",
    "Task",
    input={"baselines": expand(rules.lego_counting_baseline.output, task=LEGO.tasks)},
    params={"tasks": {name: as_params(task) for name, task in LEGO.tasks.items()}},
)
if LEGO.pretrained:
    figure(
        "lego/patterns",
        "patterns",
        "Pretrained models",
        input={
            "maps": expand(rules.lego_heads.output.maps, model=LEGO.pretrained[:1]),
            "heads": expand(rules.lego_heads.output.heads, model=LEGO.pretrained[:1]),
        },
        params={"model": LEGO.pretrained[0]},
    )
    figure(
        "lego/heads",
        "heads",
        "Pretrained models",
        input={"heads": expand(rules.lego_heads.output.heads, model=LEGO.pretrained)},
        params={"models": LEGO.pretrained},
    )


# What claims can be measured on
LEGO_ARTIFACTS = [
    *expand("results/lego/comparisons/{name}.json", name=LEGO.comparisons),
    *of_variants("lego", LEGO.variants, "metrics.json"),
    *expand("results/lego/heads/{model}/run.json", model=LEGO.pretrained),
]


rule lego:
    input:
        figures_of("lego"),
        "results/lego/runs.csv",
        LEGO_ARTIFACTS,
