"""Compare linear probes of every variable after every layer with the forward pass they read.

The model has twelve layers and twelve positions, as in the paper's figure. One pass gives the
hidden states of all layers; the probes are fitted from sums over sentences. Reading and fitting
should take less than twice as long as the forward pass on the same sentences.
"""

import torch

from benchmarks.comparison import Result, seconds
from scripts.anatomy import seeding
from scripts.anatomy.lego import experiment, graphs, groups, probes, tasks
from scripts.anatomy.lego.models import LegoTransformer
from scripts.anatomy.lego.settings import ArchitectureSettings, Heads

CLAUSES, LAYERS, SENTENCES = 12, 12, 400
SHAPE = ArchitectureSettings(n_layers=LAYERS, d_model=128, d_ff=512, heads=(Heads(learned=4),))
AIM = 200.0  # percent


def measure() -> Result:
    """Time probing and the forward pass on the same sentences."""
    torch.set_num_threads(1)
    group = groups.built_in("z2")
    layout = tasks.layout(group, tasks.alphabet(26))
    task = tasks.Task(group, layout, graphs.path(CLAUSES), CLAUSES)
    model = LegoTransformer(
        SHAPE,
        d_vocab=layout.d_vocab,
        length=layout.length(CLAUSES),
        classes=1,
        special=layout.ids([tasks.START, tasks.END]).tolist(),
        generator=seeding.torch_generator(0, "weights"),
    ).eval()
    batch = tasks.sample(task, SENTENCES, seeding.numpy_generator(0, "sentences"))
    held = experiment.tensors(batch)

    @torch.inference_mode()
    def forward() -> None:
        for tokens, indices in zip(
            held.tokens.split(probes.BATCH_SIZE),
            held.indices.split(probes.BATCH_SIZE),
            strict=True,
        ):
            model(tokens, indices)

    def probing() -> None:
        states = probes.states(model, held.tokens, held.indices, held.values)
        probes.fit_probes(states, classes=group.order)

    whole, plain = seconds(probing, forward, repeats=5)
    return Result(
        what=f"linear probes of {LAYERS} layers and {CLAUSES} positions, {SENTENCES} sentences: "
        "reading and fitting, as a share of the forward pass",
        ratio=100 * whole / plain,
        unit="%",
        aim=AIM,
        details={"reading and fitting": whole, "forward pass": plain},
        note=f"one thread; width {SHAPE.d_model}",
    )
