# SPDX-License-Identifier: MIT
"""The planner against what PyTorch's recorder wrote on an NVIDIA H100, against real CPU tensors, and its limits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaForCausalLM

from rocm_guide.common.base import GuideError
from rocm_guide.models.load import meta_model
from rocm_guide.tune.tunableop import planner
from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES, BlasRules, Matrix, addmm_gemm, bmm_gemm, mm_gemm
from rocm_guide.tune.tunableop.gemm import describe_gemm, parse_gemm
from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt
from rocm_guide.tune.tunableop.planner import plan, plan_model
from rocm_guide.tune.tunableop.recorder import record_gemms, sdpa_needs_gemms
from rocm_guide.tune.tunableop.tuning import call_seconds, tuning_seconds

ROOT = Path(__file__).parents[3]
from benchmarks.tunableop import experiments as tunableop_experiments
from benchmarks.tunableop import recorder as tunableop_recorder

RECORDED = json.loads(
    (Path(__file__).parents[2] / "samples" / "tunableop" / "recorded_h100_torch2.11.json").read_text()
)


def _planned(case):
    model = meta_model(tunableop_recorder.configs()[case["model"]], dtype=case["dtype"], attention=case["attention"])
    tunableop_recorder.set_bias(model, case["bias"])
    ids, mask = padded_prompt(case["batch"], RECORDED["prompt"], tunableop_recorder.PAD if case["pad"] else 1)
    with record_gemms(model, CUDA_RULES) as trace:
        generate_fixed(model, ids, mask, RECORDED["new_tokens"], cache=case["cache"])
    return trace


def test_the_recording_is_broad():
    cases = RECORDED["cases"]
    assert "H100" in RECORDED["hardware"]
    assert len(cases) == 196
    assert {c["model"].split("-")[0] for c in cases} == {"llama", "mistral", "gemma", "qwen2", "gpt2", "opt"}
    assert {c["batch"] for c in cases} == {1, 2, 8}
    assert sum(len(c["recorded"]) for c in cases) == 2616


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({c["model"] for c in RECORDED["cases"]}))
def test_every_recorded_case_line_for_line(name):
    """The recording was made with transformers 5.17; newer ones need no product for the rotary embedding."""
    for case in (c for c in RECORDED["cases"] if c["model"] == name):
        trace = _planned(case)
        rotary = {c.gemm.line() for c in trace.calls if "rotary" in c.module}
        skip = rotary | set(case["rotary"])
        assert [x for x in trace.lines() if x not in skip] == [x for x in case["recorded"] if x not in skip], case
        assert not rotary or rotary == set(case["rotary"])


def test_every_recorded_small_product():
    """952 products of all layouts, sizes of one, types, biases, attention: what each added to the recorder's file."""
    seen, count = set(), 0
    for name, run in tunableop_experiments.experiments():
        with record_gemms(rules=CUDA_RULES) as trace:
            run("meta")
        # PyTorch lists a product only once per process.
        new = [line for line in trace.lines() if line not in seen]
        assert new == RECORDED["experiments"][name], name
        seen |= set(new)
        count += 1
    assert count == len(RECORDED["experiments"]) == 952


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "opt-1.3b"])
def test_shapes_alone_equal_real_tensors(name, cache, attention):
    config = tunableop_recorder.configs(shrink=16)[name]
    ids, mask = padded_prompt(2, 5, 4)
    lines = []
    for device in ("meta", "cpu"):
        model = meta_model(config, dtype="float32", attention=attention)
        if device == "cpu":
            model.to_empty(device="cpu")
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.zero_()
        with record_gemms(model) as trace:
            out = generate_fixed(model, ids, mask, 5, cache=cache)
        assert tuple(out.shape) == (2, 13)
        lines.append([c.gemm.line() for c in trace.calls])
    assert lines[0] == lines[1]


def test_recording_leaves_real_results_alone():
    """With real weights the text is the model's own, fused attention included, and the products are the plan's."""
    from rocm_guide.models.shapes import config_of

    config = config_of(
        "llama-3-8b",
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_hidden_layers=2,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=200,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    ids, mask = padded_prompt(2, 7, 4)
    own = model.generation_config
    for cache in ("dynamic", "static"):
        plain = generate_fixed(model, ids, mask, 6, cache=cache)
        assert model.generation_config is own
        with record_gemms(model) as trace:
            recorded = generate_fixed(model, ids, mask, 6, cache=cache)
        assert torch.equal(recorded, plain)
        with record_gemms(meta := meta_model(config, dtype="float32", attention="sdpa")) as planned:
            generate_fixed(meta, ids, mask, 6, cache=cache)
        assert trace.lines() == planned.lines()
        # Even where this machine's attention is made of products, they are not the GPU's.
        with sdpa_kernel(SDPBackend.MATH), record_gemms(model) as trace:
            generate_fixed(model, ids, mask, 6, cache=cache)
        assert trace.lines() == planned.lines()


def _config(**changes):
    from transformers import LlamaConfig

    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "vocab_size": 99}
    return LlamaConfig(**{**sizes, "num_hidden_layers": 3, **changes})


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_the_shortcut_counts_what_a_full_trace_counts(cache, attention):
    config = _config()
    model = meta_model(config, dtype="bfloat16", attention=attention)
    with record_gemms(model) as trace:
        generate_fixed(model, *padded_prompt(2, 6, 4), 9, cache=cache)
    counts = {}
    for call in trace.calls:
        counts[call.gemm.line()] = counts.get(call.gemm.line(), 0) + 1
    found = plan_model(config, batch=2, prompt=6, pad=4, new_tokens=9, cache=cache, attention=attention)
    assert {g.gemm.line(): g.calls for g in found.gemms.values()} == counts
    assert found.lines() == trace.lines()
    assert found.pattern
    prefill = sum(call.step == 0 for call in trace.calls)
    assert sum(g.prefill for g in found.gemms.values()) == prefill


def test_a_trusted_pattern_gives_the_same_plan_from_fewer_layers(monkeypatch):
    """Once a plan has compared one layer with the whole model, another padding need not."""
    config = _config(num_hidden_layers=6)
    how = {"prompt": [5, 12], "new_tokens": 4, "pad": 8, "cache": "static", "attention": "eager"}
    looked = plan(config, **how)
    traced, run = [], planner._traced
    monkeypatch.setattr(
        planner, "_traced", lambda model, *a, **k: traced.append(len(model.model.layers)) or run(model, *a, **k)
    )
    trusted = plan(config, **how, trust_pattern=looked.pattern)
    assert looked.pattern and set(traced) == {1}
    counts = [{key: (g.prefill, g.decode) for key, g in found.gemms.items()} for found in (looked, trusted)]
    assert counts[0] == counts[1]


def test_layers_that_differ_are_traced_in_full():
    """Sliding and full attention alternate irregularly: one repetition is the whole model."""
    from transformers import Qwen2Config

    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    config = Qwen2Config(
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=4,
        vocab_size=50,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
        layer_types=kinds,
    )
    found = plan_model(config, prompt=6, new_tokens=8, attention="eager")
    model = meta_model(config, dtype="bfloat16", attention="eager")
    with record_gemms(model) as trace:
        generate_fixed(model, *padded_prompt(1, 6), 8)
    assert found.lines() == trace.lines()
    assert sum(g.calls for g in found.gemms.values()) == len(trace.calls)


def test_padding_and_static_cache_shrink_the_list():
    options = {"prompt": range(1, 33, 2), "new_tokens": 8, "attention": "eager"}
    loose = plan(_config(), **options)
    tight = plan(_config(), **options, pad=16, cache="static")
    assert len(loose.gemms) > 5 * len(tight.gemms)
    assert loose.flops > 0
    assert sum(g.decode for g in loose.gemms.values()) == sum(g.decode for g in tight.gemms.values())


def test_batch_one_token_and_experts():
    one = plan_model(_config(), prompt=1, new_tokens=1)
    assert all(g.decode == 0 for g in one.gemms.values())
    with pytest.raises(GuideError, match="at least 1"):
        plan_model(_config(), prompt=0)
    with pytest.raises(GuideError, match="dynamic or static"):
        plan_model(_config(), cache="sliding")
    with pytest.raises(GuideError, match="at least 1"):
        plan(_config(), prompt=[])


def test_a_decision_on_a_value_is_named():
    class Decides(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    model = Decides()
    with pytest.raises(GuideError, match="decides on a value"), record_gemms(model):
        model(torch.empty(3, device="meta"))


def test_rules_of_platforms_and_releases():
    a, b = Matrix((1, 64), (64, 1), "Half"), Matrix((64, 32), (1, 64), "Half")
    bias = Matrix((32,), (1,), "Half")
    assert addmm_gemm(bias, a, b).kind == "GemmAndBias"
    assert addmm_gemm(bias, a, b, BlasRules(fused_bias_needs_rows=True)).kind == "Gemm"
    assert addmm_gemm(bias, a, b, BlasRules(fused_bias=False)).kind == "Gemm"
    double = [Matrix(m.size, m.stride, "double") for m in (bias, a, b)]
    assert [addmm_gemm(*double, r).kind for r in (BlasRules(), CUDA_RULES)] == ["Gemm", "GemmAndBias"]
    assert mm_gemm(Matrix((0, 4), (4, 1), "Half"), b) is None
    batched = Matrix((1, 4, 8), (32, 8, 1), "Half"), Matrix((1, 8, 6), (48, 6, 1), "Half")
    assert bmm_gemm(*batched).kind == "Gemm"
    # A grouped-head product with a mask: cuDNN fuses it on NVIDIA, on ROCm it becomes products.
    q, kv = (torch.empty(1, h, 16, 64, device="meta", dtype=torch.bfloat16) for h in (8, 2))
    mask = torch.empty(1, 1, 16, 16, device="meta", dtype=torch.bool)
    assert sdpa_needs_gemms(q, kv, kv, mask, causal=False, gqa=True)
    assert not sdpa_needs_gemms(q, kv, kv, mask, causal=False, gqa=True, cudnn=True)


def test_scaled_products_are_listed_on_rocm():
    a = torch.empty(32, 64, dtype=torch.float8_e4m3fn, device="meta")
    b = torch.empty(48, 64, dtype=torch.float8_e4m3fn, device="meta").t()
    one = torch.empty((), device="meta")
    with record_gemms() as trace:
        torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    assert trace.lines()[0].endswith("tn_48_32_64_ld_64_64_48_rw_0_bias_None")
    # The same rules as torch.cuda.tunable's own parser of these lines.
    assert trace.lines()[0].split(",")[0].count("_") == 6


@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize(("scales", "rw"), [("row", 1), ("tensor", 0)])
def test_a_scale_for_each_row_is_seen_also_where_there_is_one_row(rows, scales, rw):
    """PyTorch takes one scale each first; one row beside a weight with a scale a column is row-wise."""
    a = torch.empty(rows, 64, dtype=torch.float8_e4m3fn, device="meta")
    b = torch.empty(48, 64, dtype=torch.float8_e4m3fn, device="meta").t()
    sizes = ((rows, 1), (1, 48)) if scales == "row" else ((), ())
    scale_a, scale_b = (torch.empty(size, device="meta") for size in sizes)
    kind = getattr(torch.nn.functional.ScalingType, "RowWise" if scales == "row" else "TensorWise")
    if scales == "tensor":
        scale_a, scale_b = scale_a.reshape(1), scale_b.reshape(1)
    with record_gemms() as trace:
        torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    with record_gemms() as public:
        torch.nn.functional.scaled_mm(a, b, scale_a, kind, scale_b, kind, output_dtype=torch.bfloat16)
    assert trace.lines()[0].endswith(f"tn_48_{rows}_64_ld_64_64_48_rw_{rw}_bias_None")
    assert public.lines() == trace.lines() and not public.untunable


def test_cost_grows_with_work_and_bounds_are_ordered():
    small, large = (parse_gemm(f"GemmTunableOp_BFloat16_TN,tn_{n}_{n}_{n}") for n in (256, 8192))
    assert call_seconds(large) > 10 * call_seconds(small)
    low, high = tuning_seconds([small, large])
    assert 0 < low < high
    assert tuning_seconds([small], candidates=10)[1] == pytest.approx(tuning_seconds([small], candidates=1000)[1] / 100)


def test_explanations():
    text = describe_gemm(
        parse_gemm("GemmTunableOp_BFloat16_TN,tn_32000_4_4096_ld_4096_524288_32000,Gemm_Rocblas_7,0.05")
    )
    assert "Y[4, 32000] = X[4, 4096] @ W[32000, 4096].T" in text
    assert "X has a leading dimension above the row length" in text
    assert "kernel 7 in the list of rocBLAS" in text
    assert "4 independent products" in describe_gemm(parse_gemm("GemmStridedBatchedTunableOp_float_NN,nn_16_32_64_B_4"))


BIG = """
import resource, sys
from rocm_guide.tune.tunableop.planner import plan
how = dict(batch=4, prompt=1000, new_tokens=64, pad=8, cache=sys.argv[1], attention=sys.argv[2])
found = plan("random:llama-3-70b", **how)
print(len(found.gemms), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "attention", "count"), [("static", "sdpa", 10), ("dynamic", "eager", 10 + 2 * 64)])
def test_seventy_billion_parameters_in_four_gib(cache, attention, count):
    out = subprocess.run([sys.executable, "-c", BIG, cache, attention], capture_output=True, text=True, check=True)
    products, kib = map(float, out.stdout.split())
    assert products == count
    assert kib < 4 * 2**20


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"])
def test_a_mixture_of_experts_has_a_plan(name):
    """Every token meets its top-k experts: rows and operations of the expert products are those of the model."""
    from rocm_guide.models.shapes import config_of
    from rocm_guide.models.sizes import sizes_of

    config = config_of(name, num_hidden_layers=2, **({"first_k_dense_replace": 0} if name == "deepseek-v3" else {}))
    found = plan_model(config, prompt=24, new_tokens=2)
    experts = [e for e in found.gemms.values() if any(m.endswith("mlp.experts") for m in e.modules)]
    layer = sizes_of(config).groups[0][0]
    rows = 24 * layer.top_k
    prefill = [e for e in experts if e.prefill and any(m.endswith("experts") for m in e.modules)]
    flops = sum(e.prefill * e.gemm.flops for e in prefill)
    assert flops == 2 * 2 * rows * layer.expert_linear, "two layers, one multiply and one add for each weight and row"
    assert all(e.gemm.n == rows // layer.experts or rows % layer.experts for e in prefill)
    assert len(found.assumed) == 1 and "equally often" in found.assumed[0]


def test_experts_of_a_real_model_multiply_as_often(monkeypatch):
    """The eager loop on real weights, where the router decides: as many rows in all, in other portions."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=1,
        vocab_size=100,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    torch.manual_seed(0)
    model = MixtralForCausalLM(config).eval()
    model.set_experts_implementation("eager")
    ids, mask = padded_prompt(1, 16)
    with record_gemms(model) as real, torch.no_grad():
        model(ids, attention_mask=mask)
    planned = plan_model(config, prompt=16, new_tokens=1, dtype="float32")

    def rows(gemms):
        return sum(times * g.n for g, times in gemms if (g.m, g.k) == (256, 64))

    assert rows((c.gemm, 1) for c in real.calls) == 32
    assert rows((e.gemm, e.prefill) for e in planned.gemms.values()) == 32


def test_a_shape_by_its_bare_name():
    assert (
        plan("qwen3-0.6b", prompt=4, new_tokens=2).lines() == plan("random:qwen3-0.6b", prompt=4, new_tokens=2).lines()
    )


GPT_OSS = {"model_type": "gpt_oss", "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2}
GPT_OSS |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 4}
GPT_OSS |= {"num_experts_per_tok": 2, "vocab_size": 512, "sliding_window": 64}
GPT_OSS |= {"layer_types": ["sliding_attention", "full_attention"]}


def planned(tmp_path, fields, **recipe):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fields | ({"quantization_config": recipe} if recipe else {})))
    found = plan(str(file), prompt=8, new_tokens=3)
    return found, {m.rpartition(".")[2] for g in found.gemms.values() for m in g.modules}


def test_a_wrapper_with_images_and_a_model_without_sdpa_are_planned(tmp_path):
    text = {k: v for k, v in GPT_OSS.items() if k not in ("layer_types", "num_local_experts", "num_experts_per_tok")}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    images = {"model_type": "gemma3", "text_config": text | {"model_type": "gemma3_text"}, "vision_config": vision}
    found, asked = planned(tmp_path, images)
    assert not found.assumed
    assert asked == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"}
    found, asked = planned(tmp_path, GPT_OSS)
    assert {"q_proj", "experts", "router", "self_attn"} <= asked
    assert "attention: this model has no sdpa in transformers; planned with eager" in found.assumed


@pytest.mark.parametrize(
    ("recipe", "asked"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"lm_head", "router", "self_attn"}),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, {"lm_head", "router", "self_attn"}),
        ({"quant_method": "mxfp4"}, {"q_proj", "k_proj", "v_proj", "o_proj", "lm_head", "router", "self_attn"}),
    ],
)
def test_packed_layers_ask_for_nothing_and_the_plan_says_so(tmp_path, recipe, asked):
    found, modules = planned(tmp_path, GPT_OSS, **recipe)
    assert modules == asked
    said = " ".join(found.assumed)
    assert f"{recipe['quant_method']}" in said and "kernels of their own multiply the packed weights" in said


FP8_LINEAR = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}
COMPRESSED |= {"config_groups": {"group_0": {"targets": ["Linear"], "weights": FP8_LINEAR}}}
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}


def torchao(kind="Float8DynamicActivationFloat8WeightConfig", **options):
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": options}}}


PER_ROW = {"_type": "PerRow", "_data": {"dim": -1}}


@pytest.mark.parametrize(
    ("recipe", "element", "rw"),
    [
        (COMPRESSED | {"use_optimized_inference": True}, "Float8_e4m3fn", 1),
        (torchao(), "Float8_e4m3fn", 0),
        (torchao(granularity=[PER_ROW, PER_ROW]), "Float8_e4m3fn", 1),
        (torchao(activation_dtype="float8_e4m3fnuz", weight_dtype="torch.float8_e4m3fnuz"), "Float8_e4m3fnuz", 0),
    ],
)
def test_layers_that_pytorch_multiplies_in_fp8_are_scaled_products(tmp_path, recipe, element, rw):
    plain, _ = planned(tmp_path, LLAMA)
    found, _ = planned(tmp_path, LLAMA, **recipe)
    assert len(found.gemms) == len(plain.gemms) and found.flops == plain.flops and not found.untunable
    for old, new in zip(plain.gemms.values(), found.gemms.values(), strict=True):
        same = ("m", "n", "k", "ld", "transa", "transb")
        assert [getattr(old.gemm, k) for k in same] == [getattr(new.gemm, k) for k in same]
        if old.modules == ["lm_head"]:
            assert new.gemm == old.gemm
        else:
            op = f"ScaledGemmTunableOp_{element}_{element}_BFloat16_TN"
            assert new.gemm.op == op and new.gemm.params.endswith(f"_rw_{rw}_bias_None")
            assert parse_gemm(new.gemm.line()) == new.gemm
    said = " ".join(found.assumed)
    takes = "gfx942 (MI300X); PyTorch refuses" if "fnuz" in element else "gfx950 (MI355X); PyTorch refuses"
    assert "ScaledGemm" in said and takes in said and "16 bits as before: lm_head" in said


@pytest.mark.parametrize(
    "recipe",
    [
        COMPRESSED,
        COMPRESSED | {"use_optimized_inference": True, "dequantize": True},
        torchao("Float8WeightOnlyConfig"),
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
    ],
)
def test_other_fp8_checkpoints_ask_for_no_scaled_product(tmp_path, recipe):
    found, _ = planned(tmp_path, LLAMA, **recipe)
    assert not [line for line in found.lines() if line.startswith("Scaled")]
    assert found.assumed, "the plan says how its layers run"


@pytest.mark.parametrize(
    ("fields", "recipe", "said"),
    [
        ({}, torchao(granularity={"_type": "PerBlock"}), "PerBlock"),
        ({}, torchao(granularity=[PER_ROW, "PerTensor"]), "granularity="),
        ({}, torchao(activation_dtype="float8_e3m4"), "activation_dtype='float8_e3m4'"),
        ({}, torchao(activation_dtype="float8_e4m3fnuz"), "one type"),
        ({"intermediate_size": 120}, COMPRESSED | {"use_optimized_inference": True}, r"\[120, 64\].*multiples of 16"),
    ],
)
def test_what_pytorch_cannot_multiply_is_named(tmp_path, fields, recipe, said):
    with pytest.raises(GuideError, match=said):
        planned(tmp_path, LLAMA | fields, **recipe)


def test_torchao_leaves_an_odd_layer_and_row_scales_give_bfloat16(tmp_path):
    found, _ = planned(tmp_path, LLAMA | {"intermediate_size": 120}, **torchao())
    kinds = {m.rpartition(".")[2]: e.gemm.kind for e in found.gemms.values() for m in e.modules}
    assert kinds["q_proj"] == "ScaledGemm" and kinds["up_proj"] == kinds["down_proj"] == "Gemm"
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | {"quantization_config": torchao(granularity=PER_ROW)}))
    with pytest.raises(GuideError, match="dtype=float16"):
        plan(str(file), prompt=8, new_tokens=2, dtype="float16")
