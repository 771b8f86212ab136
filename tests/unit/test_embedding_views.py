"""Layers rebuilt from their view alone, against what the library's own layers compute.

Every parameter of the tiny models is random, biases and gains included: as they come, these are
zeros and ones, and hide a swapped or forgotten one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.activations import ACT2FN

from scripts.anatomy.embedding import adapters, views
from scripts.anatomy.embedding.adapters import UnsupportedArchitecture
from scripts.anatomy.embedding.views import LayerView, ModelView

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 32,
}
GROUPED = {"num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": None}
TOKENS = torch.randint(2, 50, (2, 9), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Case:
    """A tiny model, and where its library's layer takes in what attention and FF read."""

    architecture: str
    attention: str
    ff: str
    sizes: dict[str, Any] = field(default_factory=dict)
    causal: bool = False
    norms: tuple[str, str] | None = None

    def model(self, auto: Any = AutoModel, **sizes: Any) -> PreTrainedModel:
        """The model in double precision, all of its parameters random."""
        config = transformers.AutoConfig.for_model(
            self.architecture, **SIZES | self.sizes | sizes, attn_implementation="eager"
        )
        model = auto.from_config(config).double().eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                is_gain = parameter.dim() == 1 and name.endswith("weight")
                parameter.copy_(1 + 0.3 * noise if is_gain else 0.4 * noise)
        return model


def bert_like(architecture: str, **sizes: Any) -> Case:
    return Case(architecture, "attention.self", "intermediate", sizes)


def llama_like(architecture: str, **sizes: Any) -> Case:
    norms = ("input_layernorm", "post_attention_layernorm")
    return Case(architecture, "self_attn", "mlp", GROUPED | sizes, True, norms)


def opt(**sizes: Any) -> Case:
    norms = ("self_attn_layer_norm", "final_layer_norm")
    return Case("opt", "self_attn", "fc1", {"ffn_dim": 40} | sizes, True, norms)


def neox(**sizes: Any) -> Case:
    norms = ("input_layernorm", "post_attention_layernorm")
    return Case("gpt_neox", "attention", "mlp", sizes, True, norms)


GPT2 = Case("gpt2", "attn", "mlp", {"n_inner": 40}, True, ("ln_1", "ln_2"))
DISTILBERT = Case("distilbert", "attention", "ffn", {"dim": 24, "hidden_dim": 40})
ALBERT = Case(
    "albert",
    "attention",
    "ffn",
    {"embedding_size": 10, "num_hidden_layers": 3, "num_hidden_groups": 2, "inner_group_num": 2},
)
NARROW_OPT = opt(word_embed_proj_dim=10, do_layer_norm_before=False)
CASES = {
    "albert": ALBERT,
    "bert": bert_like("bert"),
    "bert decoder": Case("bert", "attention.self", "intermediate", {"is_decoder": True}, True),
    "distilbert": DISTILBERT,
    "electra": bert_like("electra", embedding_size=24),
    "electra narrow": bert_like("electra", embedding_size=10),
    "gpt2": GPT2,
    "gpt2 scaled by layer": Case(
        "gpt2", "attn", "mlp", {"scale_attn_by_inverse_layer_idx": True}, True, ("ln_1", "ln_2")
    ),
    "gpt_neox": neox(),
    "gpt_neox serial": neox(use_parallel_residual=False, attention_bias=False),
    "llama": llama_like("llama", attention_bias=True, mlp_bias=True),
    "llama wide heads": llama_like("llama", head_dim=10),
    "mistral": llama_like("mistral"),
    "mpnet": Case("mpnet", "attention.attn", "intermediate"),
    "opt": opt(),
    "opt without biases": opt(enable_bias=False, layer_norm_elementwise_affine=False),
    "opt narrow and post-norm": NARROW_OPT,
    "qwen2": llama_like("qwen2", tie_word_embeddings=True),
    "roberta": bert_like("roberta"),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
DECODERS = {name: case for name, case in CASES.items() if case.norms}
PRE_NORM = {name: case for name, case in DECODERS.items() if case is not NARROW_OPT}
every_pre_norm_case = pytest.mark.parametrize("case", PRE_NORM.values(), ids=PRE_NORM)


# --- what the library computes ------------------------------------------------------------------


class Trace:
    """Inputs and outputs of chosen modules during one forward pass, a list per role, by layer."""

    def __init__(self, model: PreTrainedModel, modules: dict[str, list[nn.Module]]) -> None:
        self.inputs: dict[str, list[Tensor]] = {role: [] for role in modules}
        self.outputs: dict[str, list[Tensor]] = {role: [] for role in modules}
        for role, of_role in modules.items():
            for module in dict.fromkeys(of_role):  # once each, also where layers share it
                module.register_forward_hook(self._keep(role), with_kwargs=True)
        with torch.inference_mode():
            self.result = model(TOKENS, output_attentions=True)

    def _keep(self, role: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> None:
            given = args[0] if args else kwargs["hidden_states"]
            given = given.unflatten(0, TOKENS.shape) if given.dim() == 2 else given  # OPT
            output = output[0] if isinstance(output, tuple) else output
            output = output.unflatten(0, TOKENS.shape) if output.dim() == 2 else output
            self.inputs[role].append(given)
            self.outputs[role].append(output)

        return hook


def trace(case: Case, model: PreTrainedModel) -> Trace:
    layers = adapters.layers(model)
    pairs = adapters.coefficient_modules(model)
    modules = {
        "attention": [layer.get_submodule(case.attention) for layer in layers],
        "ff": [layer.get_submodule(case.ff) for layer in layers],
        "W_O": [attention for attention, _ in pairs],
        "V": [ff for _, ff in pairs],
    }
    for role, path in zip(("attention_norm", "ff_norm"), case.norms or (), strict=False):
        modules[role] = [layer.get_submodule(path) for layer in layers]
    return Trace(model, modules)


# --- the same from the view ---------------------------------------------------------------------


def rotate(vectors: Tensor, model: PreTrainedModel) -> Tensor:
    """Rotary positions, where the model has them: pairs of coordinates turn with the position."""
    if not hasattr(model.base_model, "rotary_emb"):
        return vectors
    positions = torch.arange(TOKENS.shape[1])[None]
    cos, sin = (part[0] for part in model.base_model.rotary_emb(vectors, positions))
    turning, rest = vectors[..., : cos.shape[-1]], vectors[..., cos.shape[-1] :]
    first, second = turning.chunk(2, dim=-1)
    turned = turning * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, rest], dim=-1)


def attention_weights(
    x: Tensor, layer: LayerView, head: int, kv_head: int, case: Case, model: PreTrainedModel
) -> Tensor:
    """Softmax of x W_Q (x W_K)^T / sqrt(d_head), with biases and what the model adds to it."""
    queries = rotate(x @ layer.W_Q[head] + layer.b_Q[head], model)
    keys = rotate(x @ layer.W_K[kv_head] + layer.b_K[kv_head], model)
    scores = queries @ keys.transpose(1, 2) * layer.scale
    if case.architecture == "mpnet":
        scores = scores + model.base_model.encoder.compute_position_bias(x)[:, head]
    if case.causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(dim=-1)


def attention_output(x: Tensor, weights: Tensor, layer: LayerView, view: ModelView) -> Tensor:
    """The sum over heads of A x W_V W_O; a bias of values passes through, as A's rows sum to 1."""
    total = layer.b_O
    for head, W_O in enumerate(layer.W_O):
        kv_head = view.kv_head(head)
        total = total + weights[:, head] @ x @ (layer.W_V[kv_head] @ W_O)
        total = total + layer.b_V[kv_head] @ W_O
    return total


def ff_coefficients(x: Tensor, layer: LayerView, activation: str) -> Tensor:
    """f(x K^T), or f(x gate^T) * (x up^T)."""
    read = {name: x @ keys.T + layer.b_in[name] for name, keys in layer.K.items()}
    if set(read) == {"gate", "up"}:
        return ACT2FN[activation](read["gate"]) * read["up"]
    assert set(read) == {"key"}
    return ACT2FN[activation](read["key"])


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Equal to `tolerance`; the library rounds some softmaxes to single precision."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --- layers -------------------------------------------------------------------------------------


@every_case
def test_attention_rebuilt(case: Case) -> None:
    """Attention rebuilt from the view equals the model's."""
    model = case.model()
    actual, view = trace(case, model), views.view(model)
    assert len(view.layers) == len(actual.result.attentions) == len(actual.inputs["attention"])
    for index, layer in enumerate(view.layers):
        x, weights = actual.inputs["attention"][index], actual.result.attentions[index]
        assert weights.std() > 0.005  # a uniform attention would be equal whatever the weights
        for head in range(len(layer.W_Q)):
            own = attention_weights(x, layer, head, view.kv_head(head), case, model)
            assert_same(own, weights[:, head])
        assert_same(attention_output(x, weights, layer, view), actual.outputs["W_O"][index])


@every_case
def test_ff_rebuilt(case: Case) -> None:
    """The feed-forward block rebuilt from the view equals the model's."""
    model = case.model()
    actual, view = trace(case, model), views.view(model)
    for index, layer in enumerate(view.layers):
        coefficients = ff_coefficients(actual.inputs["ff"][index], layer, view.activation)
        assert_same(actual.inputs["V"][index], coefficients, 1e-10)
        assert_same(actual.outputs["V"][index], coefficients @ layer.V + layer.b_out, 1e-10)


@every_case
def test_heads_lie_side_by_side_in_the_hooked_input(case: Case) -> None:
    """The input of W_O's module is the heads side by side."""
    model = case.model()
    actual, view = trace(case, model), views.view(model)
    layer, x, weights = (
        view.layers[-1],
        actual.inputs["attention"][-1],
        actual.result.attentions[-1],
    )
    heads = actual.inputs["W_O"][-1].unflatten(-1, (len(layer.W_O), -1))
    for head in range(len(layer.W_O)):
        kv_head = view.kv_head(head)
        own = weights[:, head] @ x @ layer.W_V[kv_head] + layer.b_V[kv_head]
        assert_same(own, heads[..., head, :])


def test_products_of_stored_weights() -> None:
    """Products of the view equal those of the stored weights."""
    model = GPT2.model()
    layer, block = views.view(model).layers[1], model.h[1]
    q, k, v = block.attn.c_attn.weight.split(24, dim=1)
    for head, at in enumerate((slice(0, 8), slice(8, 16), slice(16, 24))):
        assert_same(layer.W_Q[head] @ layer.W_K[head].T, q[:, at] @ k[:, at].T, 1e-12)
        W_VO = v[:, at] @ block.attn.c_proj.weight[at]
        assert_same(layer.W_V[head] @ layer.W_O[head], W_VO, 1e-12)
    assert torch.equal(layer.K["key"], block.mlp.c_fc.weight.T)
    assert torch.equal(layer.V, block.mlp.c_proj.weight)

    model = CASES["bert"].model()
    layer, block = views.view(model).layers[1], model.encoder.layer[1]
    attention = block.attention.self
    for head, at in enumerate((slice(0, 8), slice(8, 16), slice(16, 24))):
        W_QK = attention.query.weight[at].T @ attention.key.weight[at]
        assert_same(layer.W_Q[head] @ layer.W_K[head].T, W_QK, 1e-12)
        W_VO = attention.value.weight[at].T @ block.attention.output.dense.weight[:, at].T
        assert_same(layer.W_V[head] @ layer.W_O[head], W_VO, 1e-12)
    assert torch.equal(layer.K["key"], block.intermediate.dense.weight)
    assert torch.equal(layer.V, block.output.dense.weight.T)


def test_grouped_queries() -> None:
    """Query heads use the keys and values of their group."""
    view = views.view(CASES["llama wide heads"].model())
    layer = view.layers[0]
    assert layer.W_Q.shape == (6, 24, 10)
    assert layer.W_K.shape == layer.W_V.shape == (2, 24, 10)
    assert layer.W_O.shape == (6, 10, 24)
    assert layer.K["gate"].shape == layer.K["up"].shape == layer.V.shape == (40, 24)
    assert [view.kv_head(head) for head in range(6)] == [0, 0, 0, 1, 1, 1]


def test_shared_layers_repeat() -> None:
    """ALBERT's shared layers repeat in the order they run."""
    model = ALBERT.model()  # 3 layers by 2 groups: the library runs the first group twice
    groups = [group.albert_layers for group in model.encoder.albert_layer_groups]
    expected = [layer for group in (0, 0, 1) for layer in groups[group]]
    assert [id(layer) for layer in adapters.layers(model)] == [id(layer) for layer in expected]


# --- embeddings ---------------------------------------------------------------------------------


@every_case
def test_view_costs_no_memory(case: Case) -> None:
    """A view shares the model's storage and has no gradients."""
    model = case.model()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    view = views.view(model)
    read = [] if adapters.optional(model.base_model, adapters.adapter(model).widen) else [view.W_E]
    for layer in view.layers:
        read += [layer.V, layer.W_Q, layer.W_K, layer.W_V, layer.W_O, *layer.K.values()]
    assert {tensor.untyped_storage().data_ptr() for tensor in read} <= own
    assert not any(tensor.requires_grad for tensor in read)


def test_factorised_embeddings_reach_the_stream() -> None:
    """A narrow embedding is mapped to the width of the stream."""
    for case, path in (
        (ALBERT, "encoder.embedding_hidden_mapping_in"),
        (CASES["electra narrow"], "embeddings_project"),
        (NARROW_OPT, "decoder.project_in"),
    ):
        model = case.model()
        widen, table = model.get_submodule(path), model.get_input_embeddings().weight
        with torch.inference_mode():
            expected = widen(table) - widen(torch.zeros_like(table))
        assert_same(views.view(model).W_E, expected, 1e-12)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("case", DECODERS.values(), ids=DECODERS)
def test_unembedding_gives_the_logits(case: Case, tied: bool) -> None:
    """W_U times the last state gives the model's logits."""
    model = case.model(AutoModelForCausalLM, tie_word_embeddings=tied)
    view, norm = views.view(model), adapters.final_norm(model)
    streams = []
    last = adapters.layers(model)[-1]
    last.register_forward_hook(
        lambda _, args, output: streams.append(output[0] if isinstance(output, tuple) else output)
    )
    with torch.inference_mode():
        logits = model(TOKENS).logits
        assert_same(norm(streams[0]) @ view.W_U.T, logits, 1e-10)
        if view.final_norm is not None:
            folded = views.fold_norms(view)
            plain = normalised(norm, streams[0]) @ folded.W_U.T
            assert_same(plain + view.final_norm.bias @ view.W_U.T, logits, 1e-5)
    assert (view.W_U is view.W_E) == (tied and case is not NARROW_OPT)


@pytest.mark.parametrize(
    "name", ["albert", "bert", "distilbert", "electra", "electra narrow", "mpnet", "roberta"]
)
def test_masked_heads(name: str) -> None:
    """Heads of masked models are tied, or have a matrix of their own."""
    view = views.view(CASES[name].model(AutoModelForMaskedLM))
    assert view.W_U is view.W_E
    model = CASES[name].model(AutoModelForMaskedLM, tie_word_embeddings=False)
    view, head = views.view(model), model.get_output_embeddings().weight
    assert view.W_U.shape == (50, 24)
    narrow = model.get_input_embeddings().weight.pinverse() @ view.W_E  # the map to the stream
    assert_same(view.W_U, head @ narrow, 1e-8)


def test_unembedding_without_a_head() -> None:
    """A base model without its head has W_U only if it is tied."""
    view = views.view(GPT2.model())
    assert view.W_U is view.W_E
    assert views.view(neox().model()).W_U is None


def test_same_view_with_any_head() -> None:
    """A task head does not change the view."""
    for case in (GPT2, CASES["bert"], CASES["llama"], opt(), DISTILBERT):
        model = case.model(transformers.AutoModelForSequenceClassification)
        one, other = views.view(model), views.view(model.base_model)
        assert torch.equal(one.W_E, other.W_E)
        assert torch.equal(one.layers[1].W_O, other.layers[1].W_O)
        assert one.architecture == case.architecture


# --- norms --------------------------------------------------------------------------------------


def normalised(norm: nn.Module, stream: Tensor) -> Tensor:
    """What a norm does before its gain and bias."""
    if isinstance(norm, nn.LayerNorm):
        return functional.layer_norm(stream, stream.shape[-1:], eps=norm.eps)
    return functional.rms_norm(stream, stream.shape[-1:], eps=norm.variance_epsilon)


@every_pre_norm_case
def test_folded_parameters_read_the_plain_stream(case: Case) -> None:
    """Folded parameters, reading the normalised stream, compute the same."""
    model = case.model()
    actual, view = trace(case, model), views.fold_norms(views.view(model))
    for index, (layer, module) in enumerate(zip(view.layers, adapters.layers(model), strict=True)):
        read, ff_read = (
            normalised(module.get_submodule(path), actual.inputs[role][index])
            for role, path in zip(("attention_norm", "ff_norm"), case.norms, strict=True)
        )
        weights = actual.result.attentions[index]
        for head in range(len(layer.W_Q)):
            own = attention_weights(read, layer, head, view.kv_head(head), case, model)
            assert_same(own, weights[:, head])
        assert_same(attention_output(read, weights, layer, view), actual.outputs["W_O"][index])
        coefficients = ff_coefficients(ff_read, layer, view.activation)
        assert_same(actual.inputs["V"][index], coefficients, 1e-6)


def test_folding_twice_is_folding_once() -> None:
    """Folding twice equals folding once."""
    once = views.fold_norms(views.view(GPT2.model()))
    twice = views.fold_norms(once)
    assert torch.equal(once.W_E, twice.W_E)
    assert torch.equal(once.layers[0].W_Q, twice.layers[0].W_Q)
    assert torch.equal(once.layers[0].K["key"], twice.layers[0].K["key"])
    assert once.W_U is once.W_E  # still tied


def test_input_embedding_of_its_own_is_not_folded() -> None:
    """The final gain is not folded into an untied input embedding."""
    view = views.view(neox().model(AutoModelForCausalLM))
    folded = views.fold_norms(view)
    assert folded.W_E is view.W_E
    assert not torch.allclose(folded.W_U, view.W_U)


def test_nothing_to_fold_in_a_post_norm_model() -> None:
    """Folding leaves a post-norm model as it is."""
    for case in (CASES["bert"], ALBERT, NARROW_OPT):
        view = views.view(case.model())
        folded = views.fold_norms(view)
        assert not view.pre_norm
        assert folded.W_E is view.W_E
        assert folded.layers[0].W_Q is view.layers[0].W_Q
        assert folded.layers[0].K["key"] is view.layers[0].K["key"]


# --- what cannot be viewed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, num_heads=2, d_ff=8, num_layers=1),
        transformers.MambaConfig(vocab_size=20, hidden_size=8, state_size=2, num_hidden_layers=1),
    ],
    ids=["t5", "mamba"],
)
def test_unsupported_architecture(config: transformers.PretrainedConfig) -> None:
    """An unsupported architecture is refused, and the supported ones are listed."""
    model = AutoModel.from_config(config)
    for call in (views.view, adapters.coefficient_modules):
        with pytest.raises(UnsupportedArchitecture, match=repr(config.model_type)) as error:
            call(model)
        assert ", ".join(adapters.supported()) in str(error.value)


def test_every_supported_architecture_is_rebuilt_here() -> None:
    """Every supported architecture has a case in this file."""
    assert {case.architecture for case in CASES.values()} == set(adapters.supported())


def test_wrapped_and_quantised_weights_are_refused() -> None:
    """Quantised or wrapped weights are refused."""

    class Wrapped(nn.Module):
        weight, bias = nn.Parameter(torch.zeros(24, 24)), None

    quantised = nn.Linear(24, 24)
    quantised.weight = nn.Parameter(torch.zeros(24, 24, dtype=torch.int8), requires_grad=False)
    for module, name in ((Wrapped(), "Wrapped"), (quantised, "Linear")):
        model = CASES["bert"].model()
        model.encoder.layer[0].attention.output.dense = module
        with pytest.raises(ValueError, match=f"weights of a {name} cannot be viewed"):
            views.view(model)
