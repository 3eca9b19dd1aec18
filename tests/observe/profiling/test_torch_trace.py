# SPDX-License-Identifier: MIT
# ruff: noqa: C408
"""Traces: streamed, attributed, summed up; every number read a second time by other means."""

from __future__ import annotations

import functools
import gzip
import importlib
import io
import itertools
import json
import math
import random
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rocm_guide.common.base import GuideError
from rocm_guide.observe.profiling.amd.reader import read_profile, read_rocpd
from rocm_guide.observe.profiling.torch_trace.attribution import innermost, parents
from rocm_guide.observe.profiling.torch_trace.events import TraceError, iter_events, iter_text_events
from rocm_guide.observe.profiling.torch_trace.slices import KERNELS, SLICES, kernel_slice, module_place, module_slices
from rocm_guide.observe.profiling.torch_trace.summary import compare_traces, summarize

SAMPLES = Path(__file__).parents[3] / "notebooks" / "recorded"
CPU_TRACE = SAMPLES / "torch_cpu_train.json.gz"
GPU_TRACES = sorted(p for p in SAMPLES.glob("*.json.gz") if p != CPU_TRACE)


@functools.lru_cache(maxsize=8)
def whole(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


# ---- the stream


@pytest.mark.parametrize("read", [iter_events, summarize, read_profile, read_rocpd])
def test_a_file_that_is_not_there_is_named(read):
    with pytest.raises(TraceError, match=r"^missing\.json: cannot be opened \([^)]+\); check the path$"):
        list(read("missing.json"))


def test_stream_gives_what_json_load_gives():
    header: dict = {}
    events = list(iter_events(CPU_TRACE, header))
    document = dict(whole(CPU_TRACE))
    assert events == document.pop("traceEvents")
    assert header == document


@pytest.mark.parametrize("window", [1, 2, 7, 64, 1000])
def test_any_window_size_reads_the_same(window, monkeypatch):
    import rocm_guide.observe.profiling.torch_trace.events as module

    monkeypatch.setattr(module, "WINDOW", window)
    events = [
        {"name": 'a "quoted" {name}]', "ph": "X", "ts": 1.25e3, "dur": 0, "args": {"n": [1, -2.5, None, True]}}
    ] * 3
    text = json.dumps({"a": 12345, "traceEvents": events, "z": "é"}, indent=1)
    header: dict = {}
    assert list(iter_text_events(io.StringIO(text), header=header)) == events
    assert header == {"a": 12345, "z": "é"}


def test_array_form_and_empty_array():
    assert list(iter_text_events(io.StringIO('[{"a": 1}, {"b": 2}]'))) == [{"a": 1}, {"b": 2}]
    assert list(iter_text_events(io.StringIO('{"traceEvents": []}'))) == []


def test_truncation_at_every_byte_is_a_named_error():
    text = json.dumps({"traceEvents": [{"name": "k", "ts": 1, "dur": 2, "args": {"a": "\\u00e9"}}], "x": 1})
    for end in range(len(text)):
        with pytest.raises(TraceError):
            list(iter_text_events(io.StringIO(text[:end]), "cut.json"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"traceEvents": 3}',
        '{"traceEvents": [{}] } x',
        '{"traceEvents": [{}, ]}',
        "{3: 1}",
        "null",
        "{" * 9,
    ],
)
def test_not_a_trace_is_a_named_error(text):
    with pytest.raises(TraceError):
        list(iter_text_events(io.StringIO(text)))


def test_a_broken_gzip_is_a_named_error(tmp_path):
    file = tmp_path / "t.json.gz"
    file.write_bytes(CPU_TRACE.read_bytes()[:-500])
    with pytest.raises(TraceError):
        summarize(file)


# ---- nesting


def test_parents_and_innermost_against_brute_force():
    import random

    rng = random.Random(0)
    for _ in range(200):
        spans = [(0.0, 100.0)]
        for _ in range(rng.randrange(12)):
            lo, hi = spans[rng.randrange(len(spans))]
            a, b = sorted(rng.sample(range(int(lo * 1000) + 1, int(hi * 1000)), 2)) if hi - lo > 0.01 else (0, 0)
            a, b = a / 1000, b / 1000
            if a < b and all(b <= x or y <= a or (x <= a and b <= y) or (a <= x and y <= b) for x, y in spans):
                spans.append((a, b))
        rng.shuffle(spans)
        starts, ends = [s[0] for s in spans], [s[1] for s in spans]

        def smallest(around, spans=spans):
            return min(around, key=lambda k: spans[k][1] - spans[k][0], default=-1)

        for i, above in enumerate(parents(starts, ends)):
            a, b = spans[i]
            assert above == smallest([j for j, (x, y) in enumerate(spans) if j != i and x <= a and b <= y])
        times = [rng.uniform(-1, 101) for _ in range(20)]
        for t, found in zip(times, innermost(starts, ends, times), strict=True):
            assert found == smallest([j for j, (x, y) in enumerate(spans) if x <= t < y])


# ---- summaries, each against a second reading of the same file


def second_reading_cpu(path: Path):
    """Self times by a plain walk over each thread's events."""
    events = [e for e in whole(path)["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "cpu_op"]
    own = {id(e): e["dur"] for e in events}
    by_thread = defaultdict(list)
    for e in events:
        by_thread[e["tid"]].append(e)
    for rows in by_thread.values():
        for child in rows:
            around = [
                p
                for p in rows
                if p is not child and p["ts"] <= child["ts"] and child["ts"] + child["dur"] <= p["ts"] + p["dur"]
            ]
            if around:
                own[id(min(around, key=lambda p: p["dur"]))] -= child["dur"]
    totals = defaultdict(float)
    for e in events:
        totals[e["name"]] += own[id(e)]
    return events, totals


def test_cpu_trace_totals_match_a_second_reading():
    found = summarize(CPU_TRACE)
    events, totals = second_reading_cpu(CPU_TRACE)
    assert found.device == "cpu" and found.steps == 3 and found.skipped == 0
    assert found.launches == len(events)
    ours = defaultdict(float)
    for k in found.kernels:
        ours[k.name] += k.total_us
    for name, total in totals.items():
        assert math.isclose(ours[name], total, abs_tol=0.5), name
    assert math.isclose(sum(found.slices.values()), found.work_us, rel_tol=1e-9)
    assert math.isclose(found.busy_us + found.idle_us, found.span_us, rel_tol=1e-9)
    # One thread: the union of the operators is the sum of their self times.
    assert math.isclose(found.busy_us, sum(totals.values()), rel_tol=1e-6)


def test_backward_operators_land_in_the_slice_of_their_forward():
    """Three products per linear layer and step (forward, and two in the backward): counts known from the model."""
    mm = {k.slice: k.count for k in summarize(CPU_TRACE).kernels if k.name == "aten::mm"}
    layers, steps = 2, 3
    assert mm == {
        "attention GEMMs": 4 * layers * 3 * steps,
        "MLP GEMMs": 3 * layers * 3 * steps,
        "other": 1 * 3 * steps,
    }


@pytest.mark.parametrize("path", GPU_TRACES, ids=lambda p: p.name)
def test_gpu_trace_totals_match_a_second_reading(path):
    found = summarize(path)
    kernels = [
        e
        for e in whole(path)["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    assert found.device == "gpu" and "H100" in found.device_name
    assert found.launches == len(kernels)
    assert math.isclose(found.work_us, sum(e["dur"] for e in kernels), rel_tol=1e-9)
    first, last = min(e["ts"] for e in kernels), max(e["ts"] + e["dur"] for e in kernels)
    assert math.isclose(found.span_us, last - first, rel_tol=1e-9)
    # Busy time by another method: count over the sorted edges.
    edges = sorted([(e["ts"], 1) for e in kernels] + [(e["ts"] + e["dur"], -1) for e in kernels])
    busy = depth = 0
    for (t, step), (after, _) in itertools.pairwise(edges):
        depth += step
        busy += (after - t) if depth > 0 else 0
    assert math.isclose(found.busy_us, busy, rel_tol=1e-6)
    launched = {}
    for e in whole(path)["traceEvents"]:
        if (
            e.get("ph") == "X"
            and str(e.get("cat")).endswith(("_runtime", "_driver"))
            and "correlation" in e.get("args", {})
        ):
            launched[e["args"]["correlation"]] = e["ts"]
    waiting = end = 0.0
    for e in sorted(kernels, key=lambda e: e["ts"]):
        asked = launched.get(e["args"]["correlation"], -1)
        if end and e["ts"] > end and asked >= end:
            waiting += e["ts"] - end
        end = max(end, e["ts"] + e["dur"])
    assert math.isclose(found.launch_idle_us, waiting, rel_tol=1e-6, abs_tol=0.01)


@pytest.mark.parametrize("path", [p for p in GPU_TRACES if "profile" not in p.name], ids=lambda p: p.name)
def test_gpu_slices_have_the_launches_that_the_model_has(path):
    """A Llama with 32 layers: 7 products per layer and direction, 65 norms."""
    found = summarize(path)
    count = defaultdict(int)
    for k in found.kernels:
        if "splitKreduce" not in k.name and kernel_slice(k.name) == "GEMMs, place unknown":
            count[k.slice] += k.count
    times = 3 if path.name.startswith("train") else 1
    assert count["attention GEMMs"] == 4 * 32 * times * found.steps
    assert count["MLP GEMMs"] == 3 * 32 * times * found.steps
    assert "GEMMs, place unknown" not in found.slices
    assert {"attention", "norms", "activation"} <= set(found.slices)


def test_gap_causes():
    def launch(ts, c):
        return {
            "ph": "X",
            "cat": "hip_runtime",
            "name": "hipLaunchKernel",
            "ts": ts,
            "dur": 1,
            "tid": 1,
            "args": {"correlation": c},
        }

    def kernel(ts, dur, c, stream=7):
        args = {"stream": stream, "correlation": c}
        return {"ph": "X", "cat": "kernel", "name": f"k{c}", "ts": ts, "dur": dur, "args": args}

    from rocm_guide.observe.profiling.torch_trace.attribution import idle_gaps
    from rocm_guide.observe.profiling.torch_trace.timeline import timeline_of

    line = timeline_of(
        [
            launch(0, 1),
            kernel(5, 10, 1),
            launch(2, 2),
            kernel(30, 5, 2),
            launch(60, 3),
            kernel(65, 5, 3),
            kernel(62, 20, 4, 8),
        ]
    )
    span, busy, late, gaps = idle_gaps(line)
    assert (span, busy) == (77, 10 + 5 + 20)
    assert [(g.duration, g.cause) for g in gaps] == [(27, "wait"), (15, "wait")] and late == 0
    line = timeline_of([launch(0, 1), kernel(5, 10, 1), launch(40, 2), kernel(45, 5, 2)])
    *_, late, gaps = idle_gaps(line)
    assert [(g.duration, g.cause, g.next_name) for g in gaps] == [(30, "launch", "k2")] and late == 30


def test_events_without_usable_times_are_counted_not_summed(tmp_path):
    file = tmp_path / "t.json"
    good = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {}}
    bad = [
        {**good, "dur": -1},
        {**good, "ts": "x"},
        {**good, "ts": None},
        {**good, "dur": float("inf")},
        {**good, "dur": True},
    ]
    file.write_text(json.dumps({"traceEvents": [good, *bad]}))
    found = summarize(file)
    assert (found.launches, found.skipped, found.work_us) == (1, 5, 2.0)


def test_empty_trace_is_a_named_error(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"traceEvents": [{"ph": "M", "name": "process_name"}]}')
    with pytest.raises(TraceError, match="no operator or kernel"):
        summarize(file)


# ---- comparison


def test_compare_is_per_step_and_sorted(tmp_path):
    def write(name, durations, steps):
        events = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": i, "dur": 1, "tid": 1}
            for i in range(steps)
        ]
        now = 0
        for kernel, dur in durations * steps:
            events.append({"ph": "X", "cat": "kernel", "name": kernel, "ts": now, "dur": dur, "args": {"stream": 0}})
            now += dur
        (tmp_path / name).write_text(json.dumps({"traceEvents": events}))
        return summarize(tmp_path / name)

    a = write("a.json", [("flash_fwd", 10), ("rms_norm", 40)], 2)
    b = write("b.json", [("flash_fwd", 12), ("rms_norm", 8), ("nccl_AllReduce", 3)], 3)
    rows = compare_traces(a, b)
    assert [(r.name, r.a_us, r.b_us) for r in rows] == [
        ("norms", 40, 8),
        ("communication", 0, 3),
        ("attention", 10, 12),
    ]
    assert rows[0].saved_us == 32
    assert {r.name: r.saved_us for r in compare_traces(a, b, by="total")}["busy"] == 50 - 23
    assert len(compare_traces(a, b, by="kernel")) == 3
    with pytest.raises(GuideError, match="by='colour'"):
        compare_traces(a, b, by="colour")
    with pytest.raises(GuideError, match="same kind"):
        compare_traces(a, summarize(CPU_TRACE))


# ---- slices of real architectures

ARCHITECTURES = {
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=64,
        ),
        4,
        3,
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=64), 2, 2),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        dict(
            hidden_size=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=64,
            word_embed_proj_dim=32,
        ),
        4,
        2,
    ),
    "bert": (
        "BertConfig",
        "BertModel",
        dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64),
        4,
        2,
    ),
    "gptneox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64),
        2,
        2,
    ),
    "qwen2": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=64,
        ),
        4,
        3,
    ),
    "phi": (
        "PhiConfig",
        "PhiForCausalLM",
        dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64),
        4,
        2,
    ),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            vocab_size=64,
        ),
        4,
        3,
    ),
    "falcon": (
        "FalconConfig",
        "FalconForCausalLM",
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=64),
        2,
        2,
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        dict(d_model=32, d_ff=64, num_layers=2, num_heads=4, d_kv=8, vocab_size=64),
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_linear_layer_of_an_architecture_gets_its_place(name):
    torch = pytest.importorskip("torch")
    import transformers

    config, model, sizes, attention, mlp = ARCHITECTURES[name]
    with torch.device("meta"):
        built = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    places = module_slices(built)
    matrices = [p for p, m in built.named_modules() if getattr(getattr(m, "weight", None), "ndim", 0) == 2]
    count = defaultdict(int)
    for path in matrices:
        count[places[path]] += 1
    if attention is None:  # T5: self-attention in both halves, cross-attention in the decoder, one MLP each
        attention, mlp = (4 + 8) / 2 * 2, (2 + 2) / 2 * 2
    assert count["attention GEMMs"] / 2 == attention, places
    assert count["MLP GEMMs"] / 2 == mlp, places
    # A norm's class or name says so; no matrix is ever taken for one.
    norms = [p for p, m in built.named_modules() if "Norm" in type(m).__name__]
    assert norms and all(places[p] == "norms" for p in norms)
    assert not any(places[p] == "norms" for p in matrices)


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "", "communication"),
        ("void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>", "mlp", "communication"),
        ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "", "GEMMs, place unknown"),
        ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "mlp", "MLP GEMMs"),
        ("Cijk_Alik_Bljk_BBS_BH_MT64x64", "attention", "attention"),
        ("pytorch_flash::flash_fwd_splitkv_kernel<...>", "", "attention"),
        ("ck_tile::FmhaFwdKernel", "", "attention"),
        ("_fused_moe_silu_and_mul", "", "activation"),
        ("triton_red_fused_rms_norm_0", "", "norms"),
        ("Memcpy HtoD (Pinned -> Device)", "", "other"),
        ("void split_embedding_forward_kernel<c10::Half>(fbgemm_gpu::FixedDivisor)", "", "other"),
        ("fbgemm::permute_2D_sparse_data", "", "other"),
        ("void fbgemm_gpu::f8f8bf16<ck::kernel_gemm_xdl_cshuffle_v3>", "", "GEMMs, place unknown"),
        # one of each library, as its sources name it; the place says which GEMMs, never what a kernel is
        ("fused_moe_kernel", "", "GEMMs, place unknown"),
        ("_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E", "", "GEMMs, place unknown"),
        ("_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E", "mlp", "MLP GEMMs"),
        ("void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<..., Swiglu>>", "", "GEMMs, place unknown"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_swiglu", "", "GEMMs, place unknown"),
        ("_batched_gemm_a16wfp4_kernel", "attention", "attention"),
        ("bmm_kernel", "", "GEMMs, place unknown"),
        ("persistent_matmul", "mlp", "MLP GEMMs"),
        ("void ck::kernel_gemm_xdl_cshuffle_v3_multi_d_b_preshuffle<...>", "attention GEMMs", "attention GEMMs"),
        ("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2>", "", "GEMMs, place unknown"),
        ("triton_tem_fused_addmm_3", "mlp", "MLP GEMMs"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3", "mlp", "norms"),
        ("triton_poi_fused_mul_silu_5", "", "activation"),
        ("kernel_unified_attention_2d", "other", "attention"),
        ("_ZN5aiter18mla_a16w16_qh16_m16x4_n16x1_coex0_mask1E", "", "attention"),
        ("_fwd_grouped_kernel_stage1", "other", "attention"),
        ("attn_fwd", "MLP GEMMs", "attention"),
        ("void aiter::add_rmsnorm_quant_kernel<...>", "attention", "norms"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", "other", "activation"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "other", "communication"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "mlp", "activation"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "attention", "attention"),
        ("Cijk_Alik_Bljk_BBS_BH_MT64x64", "norms", "GEMMs, place unknown"),
        ("Cijk_Alik_Bljk_BBS_BH_MT64x64", "other", "other"),
    ],
)
def test_kernel_names(name, place, expected):
    assert kernel_slice(name, place) == expected
    assert expected in SLICES


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row.seen)
def test_a_row_decides_on_the_name_that_its_source_has(row):
    first = next(r for r in KERNELS if re.search(r.names, row.seen, re.I))
    assert first is row
    assert row.kind in (*SLICES, "GEMM") and kernel_slice(row.seen) in (row.kind, f"{row.kind}s, place unknown")
    if row.source.startswith("notebooks/"):
        assert row.seen.encode() in gzip.decompress((SAMPLES.parents[1] / row.source).read_bytes())
    else:
        assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+/tree/[\w./-]+", row.source)


def test_names_of_pytorch_are_its_own():
    for row in KERNELS:
        if row.library == "PyTorch":
            assert hasattr(torch.ops.aten, row.seen.removeprefix("aten::"))
    # A kernel of inductor has the first letters of its category: tem of template, per of persistent_reduction.
    kinds = importlib.import_module("torch._inductor.wrapper_benchmark")._kernel_category_choices
    for row in KERNELS:
        if row.library == "inductor":
            assert [kind for kind in kinds if kind[:3] == row.seen.split("_")[1]]


# Kernels of AITER for gfx942, one of each folder under hsa/ (2026-08-22), as a trace shows them: mangled.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN5aiter27pa_bf16_noquant_gqa8_1tg_4wE", "attention"),
        ("_ZN5aiter44PA_A16W8_BLK256_1TG_4W_16mx1_64nx4_MTP_PS_PBE", "attention"),
        ("_ZN5aiter41mla_dec_stage1_bf16_a16w16_subQ128_mqa128E", "attention"),
        ("_ZN5aiter39mla_pfl_bf16_a16w16_causal_subQ16_mqa16E", "attention"),
        ("_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_gelu_1tg_32x128E", "GEMMs, place unknown"),
        ("_ZN5aiter19topksoftmax_4x128x4E", "other"),
    ],
)
def test_mangled_names_of_aiter(name, expected):
    assert kernel_slice(name) == expected
    assert kernel_slice("alpa_bf16_kernel") == "other"  # a word that only ends so


def step_trace(marks, kernels):
    """A GPU's trace: marks and kernels are (start, duration), a kernel with a launch has a third, its number."""
    made = [
        {
            "ph": "X",
            "cat": "gpu_user_annotation",
            "name": f"ProfilerStep#{i}",
            "ts": ts,
            "dur": dur,
            "args": {"stream": 7},
        }
        for i, (ts, dur) in enumerate(marks)
    ]
    for ts, dur, *number in kernels:
        args = {"stream": 7, "correlation": number[0] if number else 990}
        made.append({"ph": "X", "cat": "kernel", "name": f"k{dur}", "ts": ts, "dur": dur, "args": args})
        for c in number:
            call = {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": ts - 5, "dur": 1, "tid": 1}
            made.append({**call, "args": {"correlation": c}})
    return made


@pytest.mark.parametrize(
    ("marks", "kernels", "work", "outside"),
    [
        ([(100, 50)], [(10, 30), (100, 20, 1), (130, 10, 2)], 30, 1),  # launched before the recording began
        ([(100, 50)], [(10, 30, 3), (100, 20, 1), (130, 10, 2)], 60, 0),  # launched within it: counted
        ([(100, 50)], [(100, 20), (130, 10)], 30, 0),  # inside the mark, with or without a launch
        ([(100, 50), (200, 50)], [(160, 5), (210, 10, 1), (300, 7)], 15, 1),  # between two steps; behind the last
        ([], [(10, 30), (100, 20, 1)], 50, 0),  # no mark of the GPU's own: nothing can be said
        ([(500, 5)], [(10, 30), (100, 20)], 50, 0),  # a mark that fits no kernel proves nothing
    ],
)
def test_kernels_outside_the_gpus_own_step_marks(marks, kernels, work, outside, tmp_path):
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": step_trace(marks, kernels)}))
    found = summarize(file)
    assert (found.work_us, found.outside) == (work, outside)
    assert found.outside_us == sum(k[1] for k in kernels) - work
    assert found.launches + found.outside == len(kernels)
    assert sum(found.slices.values()) == work == found.busy_us
    assert found.steps == len(marks)


def work_of(gpu, ts, dur, pid=None, **more):
    args = {"device": gpu, "stream": 0}
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": ts, "dur": dur, "pid": gpu if pid is None else pid} | {
        "args": args,
        **more,
    }


def summary_of(events, tmp_path, **header):
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": events, **header}))
    return summarize(file)


def said_by_summary(tmp_path):
    from rocm_guide.cli.main import app

    done = CliRunner().invoke(app, ["trace", "summary", str(tmp_path / "t.json")])
    assert done.exit_code == 0, done.output
    return done.output


def test_gpus_that_work_in_turn_are_not_one_that_never_waits(tmp_path):
    """Joined, the two are busy all the time; each waits for half of it. Streams of one GPU are no two GPUs."""
    other_stream = work_of(0, 105, 5)
    other_stream["args"] = {"device": 0, "stream": 3}
    found = summary_of([work_of(0, 100, 50), work_of(1, 150, 50), other_stream], tmp_path)
    assert (found.span_us, found.busy_us, found.work_us) == (100, 100, 105)
    assert [(d.name, d.launches, d.busy_us, d.work_us) for d in found.devices] == [("0", 2, 50, 55), ("1", 1, 50, 50)]
    said = said_by_summary(tmp_path)
    assert "2 x gpu, 3 kernels" in said and "GPU 1 alone: busy 0.05 ms, idle 50%, 1 kernels" in said
    # Ranks that each saw one GPU as number 0, whose traces were joined: the process tells them apart.
    found = summary_of([work_of(0, 100, 50, pid=7), work_of(0, 150, 50, pid=9)], tmp_path)
    assert [(d.launches, d.busy_us) for d in found.devices] == [(1, 50), (1, 50)]
    found = summary_of([work_of(0, 100, 50), work_of(0, 120, 10)], tmp_path)
    assert len(found.devices) == 1 and "alone" not in said_by_summary(tmp_path)


def test_a_step_that_several_processes_went_through_is_one(tmp_path):
    step = {"ph": "X", "cat": "user_annotation", "ts": 90, "dur": 100}
    steps = [{**step, "name": f"ProfilerStep#{n}", "pid": rank, "tid": rank} for n in (5, 6, 7) for rank in range(4)]
    found = summary_of([work_of(0, 100, 30), *steps], tmp_path)
    assert found.steps == 3 and "per step: 0.01 ms" in said_by_summary(tmp_path)


def test_times_of_the_cpu_are_not_said_to_be_those_of_the_gpu_that_was_there(tmp_path):
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "tid": 1}
    there = {"deviceProperties": [{"name": "AMD Instinct MI300X"}]}
    found = summary_of([op], tmp_path, **there)
    assert found.device == "cpu" and found.devices == ()
    said = said_by_summary(tmp_path)
    assert "t.json: CPU, 1 operators in 1 step" in said and "  operator\n" in said
    assert "no kernel of AMD Instinct MI300X" in said and "add ProfilerActivity.CUDA" in said
    summary_of([op], tmp_path)
    assert "no kernel of" not in said_by_summary(tmp_path)
    summary_of([work_of(0, 1, 2)], tmp_path, **there)
    assert "t.json: AMD Instinct MI300X, 1 kernels in" in said_by_summary(tmp_path)


def test_work_of_an_unknown_kind_is_named(tmp_path):
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "tid": 1}
    passed = ("python_function", "Trace", "overhead", "cuda_sync", "user_annotation", "gpu_user_annotation")
    events = [op, *({**op, "cat": c} for c in (*passed, "hip_runtime", "mtia_ccp_events", "mtia_ccp_events"))]
    found = summary_of(events, tmp_path)
    assert found.unknown == {"mtia_ccp_events": 2} and found.to_dict()["unknown"] == found.unknown
    assert "not read, and in no figure above: events of kinds that are not known here (2 mtia_ccp_events)" in (
        said_by_summary(tmp_path)
    )
    found = summary_of([op, *({**op, "cat": f"kind {n}"} for n in range(50))], tmp_path)
    assert len(found.unknown) <= 21 and sum(found.unknown.values()) == 50 and found.unknown["others"] == 30


def change_trace(events, rng):
    """Change what a trace means: drop, double, reorder or move events to another device's stream."""
    events = [{**e, "args": dict(e.get("args", {}))} for e in events]
    for _ in range(rng.randrange(1, 6)):
        at, kind = rng.randrange(len(events)), rng.randrange(5)
        if kind == 0:
            del events[at]
        elif kind == 1:
            events.insert(rng.randrange(len(events)), dict(events[at]))
        elif kind == 2:
            rng.shuffle(events)
        elif kind == 3:
            events[at]["args"]["stream"] = rng.randrange(99)
        else:
            events[at].pop(rng.choice(("dur", "ts", "cat", "name", "ph")), None)
    return events


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_trace_is_summed_up_as_it_stands(seed, tmp_path):
    """Its kernels are counted here by a plain loop, its busy time on a raster of microseconds."""
    rng = random.Random(seed)
    kernels = [(100 + 10 * i + rng.randrange(8), rng.randrange(1, 9), i) for i in range(30)]
    kernels += [(rng.randrange(5, 60), rng.randrange(1, 9)) for _ in range(5)]
    events = change_trace(step_trace([(95, 400)], kernels), rng)
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": events}))
    found = summarize(file)

    def whole(event, *cats):
        return event.get("ph") == "X" and event.get("cat") in cats and {"ts", "dur", "name"} <= set(event)

    calls = {e["args"]["correlation"] for e in events if whole(e, "cuda_runtime")}
    marks = [e for e in events if whole(e, "gpu_user_annotation")]
    counted, outside = [], 0
    for e in (e for e in events if whole(e, "kernel")):
        inside = not marks or any(m["ts"] <= e["ts"] < m["ts"] + m["dur"] for m in marks)
        if inside or e["args"]["correlation"] in calls:
            counted.append(e)
        else:
            outside += 1
    assert (found.launches, found.outside) == (len(counted), outside)
    assert found.work_us == sum(e["dur"] for e in counted)
    busy = {t for e in counted for t in range(e["ts"], e["ts"] + e["dur"])}
    assert found.busy_us == len(busy)
    assert found.span_us == max(busy) + 1 - min(busy)
    lost = [e for e in events if e.get("ph") == "X" and "cat" in e and not {"ts", "dur", "name"} <= set(e)]
    assert found.skipped == len(lost)


def test_the_frame_of_a_whole_model_does_not_hide_its_kernels(tmp_path):
    """vLLM with compiled graphs: one frame around all; GEMMs 60 us, attention 25, communication 15."""
    names = (
        ("Cijk_Alik_Bljk_BBS_BH_MT256x128x64", 60),
        ("kernel_paged_attention_2d", 25),
        ("ncclDevKernel_Generic_1", 15),
    )
    made = [{"ph": "X", "cat": "python_function", "name": "nn.Module: XForCausalLM_0", "ts": 0, "dur": 999, "tid": 1}]
    for n, (name, dur) in enumerate(names):
        args = {"stream": 0, "correlation": n}
        made.append({"ph": "X", "cat": "hip_runtime", "name": "x", "ts": 9 + n, "dur": 1, "tid": 1, "args": args})
        made.append({"ph": "X", "cat": "kernel", "name": name, "ts": 99 * n + 99, "dur": dur, "args": args})
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": made}))
    assert summarize(file).slices == {"attention": 25, "communication": 15, "GEMMs, place unknown": 60}


@pytest.mark.parametrize("path", GPU_TRACES, ids=lambda p: p.name)
def test_operators_that_lead_nowhere_change_nothing(path, tmp_path):
    """In a GPU's trace, a hundred operators without a number for each that is there cost nothing and say nothing."""
    document = dict(whole(path))
    plain = [e for e in document["traceEvents"] if e.get("cat") == "cpu_op" and "Sequence number" not in e["args"]]
    without = [e for e in document["traceEvents"] if e not in plain[:200]]
    file = tmp_path / path.name.removesuffix(".gz")
    file.write_text(json.dumps({**document, "traceEvents": without + plain[:50] * 3}))
    assert summarize(file).to_dict() == summarize(path).to_dict() | {"file": file.name}


def test_lora_layers_stay_in_the_slice_of_the_layer_they_adapt():
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(4, 4)
    wrapped = torch.nn.ModuleDict({"base_layer": linear, "lora_A": torch.nn.Linear(4, 2)})
    wrapped.weight = linear.weight
    block = torch.nn.ModuleDict({"self_attn": torch.nn.ModuleDict({"q_proj": wrapped})})
    places = module_slices(block)
    assert {places[p] for p in places if p.startswith("self_attn.q_proj")} == {"attention GEMMs"}
    assert module_place("query", "Linear", "attention") == "attention GEMMs"


@pytest.mark.slow
def test_a_large_trace_is_streamed_in_bounded_memory(tmp_path):
    """40 MB here, 500 MB in benchmarks/profiling/big_trace.py; the totals are those of the repeated sample."""
    import subprocess
    import sys

    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.profiling.big_trace", "--megabytes", "40", "--out", tmp_path / "r.json"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["file_bytes"] > 40e6 and found["peak_gib"] < 0.5


# ---- size

PEAK = """
import json, resource, sys
from rocm_guide.observe.profiling.torch_trace.summary import summarize
peaks = []
for file in sys.argv[1:]:
    found = summarize(file)
    peaks.append([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, found.launches])
print(json.dumps(peaks))
"""


def operators(groups):
    """Yield two operators and a range around them, ``groups`` times, the inner one first: not in order of time."""
    for i in range(groups):
        event = {"ph": "X", "cat": "cpu_op", "ts": 20 * i, "dur": 15, "tid": 1}
        yield {**event, "name": "aten::mm", "ts": 20 * i + 1, "dur": 9, "args": {"Sequence number": i}}
        yield {**event, "name": "aten::linear"}
        yield {**event, "name": "slice::MLP GEMMs::layer", "cat": "user_annotation", "dur": 16}


def test_an_event_costs_less_than_two_hundred_bytes(tmp_path):
    files = []
    for groups in (20_000, 80_000):
        files.append(tmp_path / f"{groups}.json")
        with files[-1].open("w") as out:
            out.write('{"traceEvents": [')
            out.writelines(f"{',' if i else ''}{json.dumps(e)}\n" for i, e in enumerate(operators(groups)))
            out.write("]}")
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, files)], capture_output=True, text=True, check=True)
    (small, few), (large, many) = json.loads(done.stdout)
    assert (few, many) == (40_000, 160_000)
    assert large - small < 180_000 * 200  # both files are longer than the window of text that is in memory


@pytest.mark.parametrize(
    ("module", "limit", "least", "said"),
    [
        ("timeline", "MOST_EVENTS", 12, "more than 11 events; record fewer steps"),
        ("timeline", "MOST_TEXT", 43, "more than 42 characters of names"),
        ("events", "LONGEST_VALUE", 37, "more than 36 characters beside the events"),
    ],
)
def test_a_trace_without_end_is_refused_by_name(module, limit, least, said, tmp_path, monkeypatch):
    file = tmp_path / "long.json"
    beside = {"a": "x" * 10, "b": "y" * 10, "c": "z" * 8}
    file.write_text(json.dumps({**beside, "traceEvents": list(operators(4))}))
    place = importlib.import_module(f"rocm_guide.observe.profiling.torch_trace.{module}")
    monkeypatch.setattr(place, limit, least)
    assert summarize(file).launches == 8
    monkeypatch.setattr(place, limit, least - 1)
    with pytest.raises(TraceError, match=said):
        summarize(file)
