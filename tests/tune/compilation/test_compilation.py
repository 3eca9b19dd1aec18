# SPDX-License-Identifier: MIT
"""Compiled decoding, the compiler's counters, inductor's knobs, and its kernels for gfx942."""

import statistics
from pathlib import Path

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.tune.compilation.decoder import Decoder, count_compilation, decode_speed, first_divergence
from rocm_guide.tune.compilation.inductor import InductorKernel, extract_kernels, inductor_code, inspect_kernels
from rocm_guide.tune.compilation.knobs import KNOBS, Knob, knob_table, measure_knobs

SAMPLES = Path(__file__).parents[2] / "samples" / "compilation"


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=97)).eval()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
def test_static_cache_and_compile_give_the_same_tokens_without_recompilation(model):
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    eager = Decoder(model, 2, 24, cache="dynamic").run(ids, 20)
    r = decode_speed(Decoder(model, 2, 24, mode="default"), ids, 20, runs=3, warmup=1)
    assert torch.equal(r["tokens"], eager)
    assert (r["warmup"].graphs, r["warmup"].breaks, r["timed"].graphs) == (1, {}, 0)
    assert r["warmup"].kernels > 0
    assert statistics.median(r["tokens_per_s"]) > 0
    # A second prompt of the same length reuses cache and code, and an old prompt leaves nothing behind.
    other = Decoder(model, 2, 24, cache="dynamic").run(ids.flip(0), 20)
    decoder = Decoder(model, 2, 24)
    decoder.run(ids, 20)
    assert torch.equal(decoder.run(ids.flip(0), 20), other)


def test_a_swap_of_equals_is_told_from_a_wrong_token(model):
    """In bfloat16 two candidates can be almost equal. A copy of the most likely token's weights makes such a pair."""
    import copy

    ids = torch.tensor([[11, 12, 13]])
    text = Decoder(model, 1, 16).run(ids, 9)
    assert first_divergence(model, ids, text, text.clone()) is None
    twins = copy.deepcopy(model)
    token = int(text[0, 4])
    twin = next(t for t in range(97) if t not in text)
    with torch.no_grad():
        twins.lm_head.weight[twin] = twins.lm_head.weight[token] * 0.999
    swapped = text.clone()
    swapped[0, 4] = twin
    found = first_divergence(twins, ids, swapped, text)
    assert found.position == 4 and found.gap < 0.05
    wrong = text.clone()
    with torch.no_grad():
        logits = model(torch.cat([ids, text[:, :6]], 1)).logits[0, -1]
    wrong[0, 6] = logits.argmin()
    found = first_divergence(model, ids, wrong, text)
    assert found.position == 6 and found.gap > 2
    with pytest.raises(GuideError, match=r"\(1, 9\), \(1, 8\)"):
        first_divergence(model, ids, text, text[:, :8])


def test_decoding_equals_generate(model):
    ids = torch.tensor([[11, 12, 13]])
    ours = Decoder(model, 1, 16).run(ids, 9)
    theirs = model.generate(ids, max_new_tokens=9, min_new_tokens=9, do_sample=False, pad_token_id=0)
    assert torch.equal(ours, theirs[:, 3:])


def test_decoder_refuses_what_does_not_fit(model):
    with pytest.raises(GuideError, match="cache=sliding"):
        Decoder(model, 1, 8, cache="sliding")
    decoder = Decoder(model, 1, 8)
    with pytest.raises(GuideError, match="batch 2"):
        decoder.run(torch.ones(2, 2, dtype=torch.long), 2)
    with pytest.raises(GuideError, match=r"4 \+ 5 tokens"):
        decoder.run(torch.ones(1, 4, dtype=torch.long), 5)


def test_counting_graphs_breaks_and_recompilations():
    def breaks(x):
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        return y - 1

    with count_compilation() as report:
        torch.compile(breaks, backend="eager")(torch.ones(3))
    assert report.graphs == 2
    assert sum(report.breaks.values()) == 1
    assert str(report).startswith("2 graphs, 1 break, 0 kernels, ")
    assert "data-dependent" in next(iter(report.breaks)).lower()
    torch._dynamo.reset()
    fixed = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    made = []
    for n in (3, 3, 4, 5, 4):
        with count_compilation() as report:
            fixed(torch.ones(n))
        made.append(report.graphs)
    assert made == [1, 0, 1, 1, 0]


def test_a_failing_block_is_reported_too():
    with pytest.raises(ZeroDivisionError), count_compilation() as report:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        _ = 1 / 0
    assert report.graphs == 1 and report.seconds > 0


def test_every_knob_of_the_guide_exists_and_can_be_set():
    from torch._inductor import config

    table = {row["knob"]: row for row in knob_table()}
    assert len(table) == 9
    for knob in KNOBS[1:]:
        with config.patch(knob.options):
            assert getattr(config, knob.name) == knob.value
        assert table[knob.name]["env"].startswith("TORCHINDUCTOR_")
    with pytest.raises(GuideError, match=r"max_autotune\.pointwise"):
        knob_table([Knob("max_autotune.pointwise", True, "as the guide printed it")])


@pytest.mark.slow
def test_knobs_are_toggled_one_at_a_time_and_failures_are_rows():
    seen = []

    def make():
        from torch._inductor import config

        seen.append((config.freezing, config.cpp_wrapper))
        return lambda: torch.arange(12.0).view(3, 4).softmax(-1) * 3

    bad = Knob("max_autotune_gemm_backends", "NOTHING", "fails where there is a product")
    rows = measure_knobs(make, knobs=[KNOBS[0], next(k for k in KNOBS if k.name == "freezing"), bad], runs=3)
    assert seen[:2] == [(False, False), (True, False)]
    assert [row["knob"] for row in rows] == ["(none)", "freezing", "max_autotune_gemm_backends"]
    assert rows[1]["max_error"] == 0 and len(rows[1]["ms"]) == 3

    x = torch.ones(64, 64)
    rows = measure_knobs(lambda: lambda: x @ x, knobs=[bad], runs=1)
    assert "error" in rows[0] and "\n" not in rows[0]["error"]


def test_knobs_are_timed_in_turns(monkeypatch):
    """One row after the other would take a drift of the machine for a knob."""
    monkeypatch.setattr(torch, "compile", lambda fn: fn)  # who is called when, not what is compiled
    calls, names = [], iter("abc")

    def make():
        name = next(names)

        def fn():
            calls.append(name)
            return torch.ones(2)

        return fn

    rows = measure_knobs(make, knobs=[KNOBS[0]] * 3, runs=4)
    assert "".join(calls) == "abc" + "abc" * (3 + 4), "each once to compile it; then rounds of all rows"
    assert [len(row["ms"]) for row in rows] == [4, 4, 4] and rows[1]["max_error"] == 0


def _bf16(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device="meta")


@pytest.mark.slow
def test_inductor_writes_for_mi300x_without_one_and_gfx942_compiles_it():
    def block(x, weight, gate, up):
        h = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * weight
        return torch.nn.functional.silu(h @ gate) * (h @ up)

    code = inductor_code(block, [_bf16(64, 4096), _bf16(4096), _bf16(4096, 11008), _bf16(4096, 11008)])
    assert "type='hip'" in code and "multi_processor_count=304" in code
    assert code.count("extern_kernels.mm(") == 2
    kernels = extract_kernels(code)
    assert [k.name.split("_")[1] for k in kernels] == ["red", "poi"]
    reports = inspect_kernels(kernels)
    assert {r.kernel for r in reports} == {k.name for k in kernels}
    for r in reports:
        assert r.arch == "gfx942"
        assert r.resources.vgpr_spills == 0
        assert r.threads <= 1024 and r.lds <= 65536
    # The widest block loads 128 bits per lane.
    assert any(128 in r.isa.global_loads for r in reports)
    # Nothing of the pretended GPU is left behind.
    assert torch.version.hip is None or torch.cuda.is_available()
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)


def test_inductor_writes_with_a_cuda_build_on_a_machine_without_a_gpu(monkeypatch):
    """There the first fake tensor on the pretended GPU would start CUDA: "No CUDA GPUs are available"."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: "cuda")
    assert "triton_poi_fused" in inductor_code(lambda a: torch.relu(a) * 2, [_bf16(8, 64)])


def test_extracting_kernels():
    code = inductor_code(lambda a: a.relu().sum(-1), [_bf16(128, 512)])
    (kernel,) = extract_kernels(code)
    assert kernel.body.startswith("@triton.jit\ndef triton_")
    assert "triton_heuristics" in kernel.source
    assert extract_kernels("x = 1\n") == []
    assert extract_kernels("async_compile.triton(name, 'x')") == []
    for text in ("def", "\0", "x = '''"):
        with pytest.raises(GuideError, match=r"not inductor's output_code\.py"):
            extract_kernels(text)
    with pytest.raises(GuideError, match="broken: the source cannot be loaded"):
        inspect_kernels([InductorKernel("broken", "def broken(:")])


def test_kernels_of_a_real_run():
    """What torch 2.11 wrote for one decoding step on an NVIDIA H200; Hopper's choices compile for gfx942 as well."""
    kernels = extract_kernels((SAMPLES / "output_code_h200_torch2.11.txt").read_text())
    assert len(kernels) == 9
    assert all(k.body.startswith("@triton.jit") and "type='cuda'" in k.source for k in kernels)
    reports = inspect_kernels(kernels[:2])
    assert {r.arch for r in reports} == {"gfx942"}


def test_inductor_code_settings_change_the_code():
    x = _bf16(64, 256)
    assert "extern_kernels.mm(" in inductor_code(lambda a: a @ a.t(), [x])
    few, many = (
        inspect_kernels(extract_kernels(inductor_code(lambda a: a.float().softmax(-1), [_bf16(64, 8192)], **settings)))
        for settings in ({}, {"max_autotune_pointwise": True})
    )
    assert len(many) > len(few)


def test_a_rotary_embedding_becomes_one_kernel():
    """Its halves are slices, and slicing a tensor on a GPU that is not there asked for the GPU."""

    def rotate(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    kernels = extract_kernels(inductor_code(rotate, [_bf16(1, 32, 64, 128), _bf16(64, 128), _bf16(64, 128)]))
    assert len(kernels) == 1 and inspect_kernels(kernels)[0].resources.vgpr_spills == 0


def test_the_rotary_embedding_of_transformers_is_written_without_a_product_of_blas():
    """Queries and keys of different head counts (GQA), in the words of the library that models are written with."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    shapes = [(1, 32, 64, 128), (1, 8, 64, 128), (1, 64, 128), (1, 64, 128)]
    code = inductor_code(lambda q, k, cos, sin: apply_rotary_pos_emb(q, k, cos, sin), [_bf16(*s) for s in shapes])
    reports = inspect_kernels(extract_kernels(code))
    assert "extern_kernels" not in code.partition("def call")[2]
    assert len({r.kernel for r in reports}) == 2 and not any(r.resources.vgpr_spills for r in reports)


@pytest.mark.parametrize(
    "index",
    [
        (slice(1, None),),
        (slice(None, -1, 2), 1),
        (..., slice(0, 2)),
        (None, 0, ..., None),
        (-1, slice(-3, 9), slice(1, 3)),
        (slice(None), None, slice(1, 2), ..., -2),
    ],
)
def test_a_part_of_a_tensor_is_what_indexing_gives(index):
    from rocm_guide.tune.compilation.inductor import _part

    x = torch.arange(3 * 4 * 5 * 6).view(3, 4, 5, 6)
    assert torch.equal(_part(x, index), x[index]) and _part(x, index).stride() == x[index].stride()


def test_attention_stays_the_one_call_that_it_is_on_the_card():
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(torch.relu(q), k, v, is_causal=True)

    code = inductor_code(attend, [_bf16(1, 32, 64, 128)] * 3)
    assert [k.name for k in extract_kernels(code)] == ["triton_poi_fused_0"], "relu alone is inductor's"
    assert "_scaled_dot_product_flash_attention.default(" in code and "extern_kernels.bmm" not in code
    mask = torch.empty(64, 64, dtype=torch.bfloat16, device="meta")
    with pytest.raises(GuideError, match="with a mask"):
        inductor_code(
            lambda q, m: torch.nn.functional.scaled_dot_product_attention(q, q, q, m), [_bf16(1, 2, 64, 64), mask]
        )
    with pytest.raises(GuideError, match=r"in torch\.float32"):
        inductor_code(attend, [_bf16(1, 2, 64, 64).float()] * 3)
