# SPDX-License-Identifier: MIT
"""Figures and facts that stand in a notebook's prose, worked out again from data, from code, or from a cell's output.

Each case was once a sentence that was wrong. A case asks for the sentence as it is now (spaces do not count), so
whoever rewrites it finds the check beside the new words.
"""

import functools
import gzip
import json
import re
from pathlib import Path

import pytest
import yaml

from cdna.costs import Costs
from cdna.predict import gpu, published_points
from cdna.run.counters import LINE

ROOT = Path(__file__).parents[2]
MHZ = 2100
MI300X = gpu("MI300X")


@functools.cache
def cells(number):
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def joined(text):
    return text if isinstance(text, str) else "".join(text)


@functools.cache
def prose(number):
    return " ".join(" ".join(joined(c["source"]) for c in cells(number) if c["cell_type"] == "markdown").split())


@functools.cache
def code(number):
    return "\n".join(joined(c["source"]) for c in cells(number) if c["cell_type"] == "code")


@functools.cache
def printed(number):
    outputs = [o for c in cells(number) if c["cell_type"] == "code" for o in c["outputs"]]
    return "\n".join(joined(o["text"]) for o in outputs if "text" in o)


def says(number, *pieces):
    """Assert that the prose of a notebook has these words."""
    assert [piece for piece in pieces if piece not in prose(number)] == []


def numbers(number, pattern):
    """Return the numbers that a pattern finds in the prose, once."""
    (found,) = re.findall(pattern, prose(number))
    return [float(n.replace(",", "")) for n in ((found,) if isinstance(found, str) else found)]


def numbered():
    return [p.name[:2] for p in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


CASES = []


def case(check):
    CASES.append(check)
    return check


@case
def coarse_judge_of_exact_answers():
    from rocm_guide.models import load_data

    rows = len(load_data("tiny")["test"].select(range(0, len(load_data("tiny")["test"]), 4)))
    for number in ("10", "11"):
        (one,) = numbers(number, r"one more or less is (\d\.\d) %")
        assert f"answers to {rows} questions" in prose(number) and one == round(100 / rows, 1)


@case
def a_run_of_another_model_has_a_folder_of_its_own():
    # A run that keeps something (notebooks 02 and on) refuses a folder that was made with another model.
    texts = {"README.md": (ROOT / "README.md").read_text()} | {n: prose(n) for n in numbered()}
    for name, text in texts.items():
        for command in re.findall(r"rocm-guide run 0?2[^`#]*?-p MODEL (?!tiny)[^`#]*", text.replace("\\ ", " ")):
            assert "-p RUN" in command or "random:" in command or "smollm2" in command, (name, command)
    says("00", "-p RUN llama-guanaco")


@case
def rows_of_the_largest_tensor():
    rows, columns = numbers("30", r"\(([\d,]+) rows of logits over a vocabulary of ([\d,]+) are already more than 2³¹")
    assert rows * columns > 2**31
    assert (rows - 1000) * columns < 2**31  # and not by far


@case
def a_row_and_the_l1():
    says("30", "A row of 32 KiB just fits the 32 KiB of L1", "512 KiB of registers, sixteen times its L1")
    assert MI300X.l1_kib * 1024 == 16384 * 2 and MI300X.simds * 512 * 64 * 4 == 16 * MI300X.l1_kib * 1024


@case
def three_latencies():
    cycles, ns, other = numbers("25", r"takes ([\d,]+) \*cycles\* here, (\d+) ns at 2,100 MHz.*? assume (\d+) \*ns\*")
    assert cycles == Costs().memory_latency and round(1000 * cycles / MHZ) == ns
    assert f"LATENCY_NS = {other:.0f}" in code("20") and f"{other:.0f}e-9" in code("23")


@case
def bytes_of_the_vector_l1():
    says("24", "LDS and the vector L1 move 128 bytes a cycle each")
    assert LINE / Costs().line_cycles == 128
    assert '"vector L1": 128 * spec.units' in code("20")
    loaded = 3 * 16384  # bytes that three waves on each of the four SIMDs load in a turn of the product's loop
    assert re.search(rf"vector L1 +{loaded // 128} cycles", printed("24"))


@case
def what_setprio_stands_around():
    says(
        "24", "raises its priority around its loads and lowers it, then raises it again around its matrix instructions"
    )
    lines = printed("24").split("tile_matmul: 64 instructions in the loop")[1].splitlines()
    ops = [m[1] for line in lines if (m := re.match(r" *\d+ (\w+)", line))]
    ops = ops[: len(ops) - ops[::-1].index("s_barrier")]
    marks = [(i, op) for i, op in enumerate(ops) if op == "s_setprio"][:4]
    assert len(marks) == 4
    first, second = ops[marks[0][0] : marks[1][0]], ops[marks[2][0] : marks[3][0]]
    assert any(op.startswith("buffer_load") for op in first) and not any("mfma" in op for op in first)
    assert any("mfma" in op for op in second) and not any("load" in op for op in second)


@case
def a_step_against_prefill():
    says("17", "a decoding step has a thousandth of the operations of prefill (4 tokens against 4,000)")
    says("17", "all 255 of them together a quarter")
    rows = re.findall(r"^ +(\d+) +(\d+) +([\d.]+)%  tn_", printed("17"), re.M)
    prefill = sum(float(share) for calls, _, share in rows if int(calls))
    decode = sum(float(share) for _, calls, share in rows if int(calls))
    assert 0.2 < decode / prefill < 0.3 and 900 < prefill / (decode / 255) < 1100


@case
def the_share_that_a_server_takes():
    from rocm_guide.models import SHAPES
    from rocm_guide.serve import size_server
    from rocm_guide.serve.vllm import FLAGS

    (share,) = numbers("18", r"\(vLLM 0\.32: (\d+) %, unless")
    (flag,) = [flag for flag in FLAGS if "--gpu-memory-utilization" in flag.name]
    assert float(flag.default) == share / 100
    default, said = (
        size_server(SHAPES["llama-3-8b"], length=8192, **how) for how in ({}, {"utilization": share / 100})
    )
    assert default.blocks == said.blocks
    theirs = numbers("18", r"vLLM printed ([\d,]+) tokens in bf16, ([\d,]+) with FP8 .*? and ([\d,]+) with")
    ours = numbers("18", r"computed for that share .*? are ([\d,]+), ([\d,]+) and ([\d,]+), 0.3 % less each")
    assert all(round(100 * (1 - y / x), 1) == 0.3 for x, y in zip(theirs, ours, strict=True))


@case
def issues_by_card_and_state():
    (text,) = re.findall(r"Known trouble, by card.*?is closed\.", prose("18"))
    on_942, _, on_950 = text.partition("On gfx950")
    assert "gfx942" in on_942 and "#4783" in on_942 and "open" in on_942 and "#5049" not in on_942
    assert "#5049" in on_950 and "#43605" in on_950.partition("an earlier")[2]
    assert "51957" not in prose("18")


@case
def advice_is_taken_and_data_sheets_are_asked():
    assert "waves_per_eu=advice.value" in code("23")
    # Whoever chooses another GPU there gets its bandwidth.
    assert "5.3e12" not in code("20") + code("23") and "sheet.bandwidth_tb_s" in code("23")


@case
def releases_of_triton():
    (pin,) = re.findall(r'"triton>=(\d\.\d+),<3\.(\d+)', (ROOT / "pyproject.toml").read_text())
    says("22", f"Triton {pin[0]} to 3.{int(pin[1]) - 1}; a newer one is tried, with a warning")


@case
def a_hint_that_cannot_be_met_pads_nothing():
    import torch
    import triton
    import triton.language as tl

    from cdna.compile import compile_kernel
    from cdna.report import kernel_report

    says("16", "`waves_per_eu=1` is not padded: a workgroup of eight warps puts two waves on each of the four SIMDs")

    def waves(warps):
        x = torch.empty(65536, dtype=torch.bfloat16, device="meta")
        report = kernel_report(compile_kernel(double, [x, x, 65536], {"B": 2048}, num_warps=warps, waves_per_eu=1))
        return report.occupancy.waves_per_simd

    @triton.jit
    def double(x, y, n, B: tl.constexpr):
        o = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)

    assert (waves(4), waves(8)) == (1, 8)


@case
def what_a_library_reaches():
    points = {p.what: p.microseconds for p in published_points()}
    for kind, tflops in zip(
        ("fp16", "bf16"), numbers("31", r"hipBLASLt reaches (\d+) TFLOPS in fp16 and (\d+) in bf16"), strict=True
    ):
        us = points[f"hipBLASLt: {kind} 4096 x 4864 x 32896"]
        assert round(2 * 4096 * 4864 * 32896 / us / 1e6) == tflops


@case
def counters_that_fit_one_run():
    files = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "rocm_guide").rglob("*.py")]
    texts = {str(p): p.read_text(encoding="utf-8") for p in files} | {n: prose(n) + code(n) for n in numbered()}
    for name, text in texts.items():
        for run in re.findall(r"--pmc ([A-Za-z_0-9 ,]+)", text):
            assert not {"FETCH_SIZE", "WRITE_SIZE"} <= set(re.split(r"[ ,]+", run)), (name, run)
    says(
        "40",
        "computed from three counters of the L2 cache and `WRITE_SIZE` from two more, and the L2 counts four at once",
    )


@case
def what_a_fixed_clock_costs():
    assert "CLOCK_MHZ = 1900" in code("42")
    says(
        "42",
        "The guide uses 1,900 MHz",
        "the power control (PCC) is less likely to step in",
        "It costs a tenth at most",
    )
    assert 0.09 < 1 - 1900 / MHZ < 0.1


@case
def reset_of_the_clock():
    says("42", "ends determinism, too: `rocm-smi --resetperfdeterminism` makes the same call")
    firsts = [row.split("|")[1] for row in (ROOT / "docs/errata.md").read_text().splitlines() if row.startswith("| ")]
    assert not [first for first in firsts if "rocm-smi -r" in first]  # the document is right there


@case
def arguments_of_kernels_count_where_the_gpu_is_the_limit():
    step = json.loads((ROOT / "benchmarks/results/profile_7b.json").read_text())["decode"]["1"]
    saved = 2.5 * step["launches"]
    says("42", "almost half of what the kernels take", "with a static one the step there has 1,683 kernels")
    assert 0.4 < saved / step["busy_us"] < 0.5
    says("42", "Launched kernel by kernel from Python, the GPU stands still most of the step")
    assert step["idle_us"] / step["span_us"] > 0.5
    # The exercise is about a GPU that never stands still.
    says("42", "has 1,333 kernels and takes 30 ms, all of them on the GPU, which never stands still")


@case
def a_step_is_longer_than_the_span_of_its_kernels():
    graph = json.loads((ROOT / "benchmarks/results/profile_7b.json").read_text())["graph"]
    before, after = numbers("40", r"the step went from ([\d.]+) ms to ([\d.]+) ms")
    assert [before, after] == [round(graph[f"{x}_wall_ms"][0], 1) for x in "ab"]
    text = gzip.decompress((ROOT / "notebooks/recorded/profile_a_eager.json.gz").read_bytes())
    kernels = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "kernel"]
    span = (max(e["ts"] + e["dur"] for e in kernels) - min(e["ts"] for e in kernels)) / 1e3
    says("40", f"more than the {span:.2f} ms above? That span begins with the first kernel and ends with the last")
    assert f"{span:.2f} ms" in printed("40") and span < before


@case
def operators_are_registered_under_the_name_that_is_told():
    files = (ROOT / "cdna/cdna/hip/binding.cpp", ROOT / "rocm_guide/tune/ck/generate.py")
    registered = {n for p in files for n in re.findall(r"TORCH_LIBRARY(?:_FRAGMENT)?\((\w+),", p.read_text())}
    told = {name for n in numbered() for name in re.findall(r"torch\.ops\.(\w+)\.", prose(n) + code(n))} - {"aten"}
    assert told <= registered and {"cdna_hip", "rocm_guide_ck"} <= told


@case
def containers():
    compose = (ROOT / "docker/compose.yaml").read_text()
    services = yaml.safe_load(compose)
    assert "SYS_PTRACE" in compose and "ipc: host" in compose and services
    texts = [compose, prose("00"), (ROOT / "README.md").read_text(), (ROOT / "docs/hub.md").read_text()]
    tags = {tag for text in texts for tag in re.findall(r"rocm/pytorch:([\w.]+)", text)}
    assert len(tags) == 1 and "latest" not in tags


@case
def no_kernel_moves_less_than_the_floor():
    shares = [float(x) for x in re.findall(r"([\d.]+) times the floor \(every input read once", printed("38"))]
    assert len(shares) > 10 and min(shares) >= 1


@case
def the_faulting_instruction_is_in_the_listing():
    assert "buffer_load_dword" in printed("41") and "left out" not in printed("41")


@case
def the_largest_models_of_a_card():
    from rocm_guide.models import SHAPES
    from rocm_guide.models.sizes import sizes_of

    total, card = numbers("12", r"a 70B on one MI300X \((\d+) of (\d+) GB\)")
    assert card == int(MI300X.memory_gib * 2**30 / 1e9)
    assert abs(2 * sizes_of(SHAPES["llama-2-70b"]).parameters / 1e9 - total) < 2


@case
def latent_attention_for_prompts():
    says("39", "so does ours for prompts, which is that kernel with one line moved")
    assert "absorb" in (ROOT / "rocm_guide/kernels/mla_prefill.py").read_text()


@case
def causal_attention_in_print():
    from cdna.predict.published import published_points

    (point,) = (p for p in published_points() if "Triton, attn-dsl-bench: 16 x 16 heads, 4096 x 4096 x 128" in p.what)
    (below,) = numbers("34", r"lies (\d+) % below the measured one")
    assert (point.microseconds, round(-100 * point.error)) == (4216.3, below)


@case
def two_dies_and_eight():
    says("20", "An MI250X is two dies (GCDs) that appear as *two* devices")
    assert (gpu("MI250X").devices, MI300X.devices, MI300X.dies) == (2, 1, 8)


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_a_statement(check):
    check()


def test_a_section_that_is_pointed_to_is_there():
    """“notebook 20, section 9”: once 33 and 20 pointed to sections that had moved to another notebook."""
    numbered = {p.name[:2] for p in (ROOT / "notebooks").glob("*.ipynb")}
    heads = {n: set(re.findall(r"(?:^| )## (\d+) ·", prose(n))) for n in numbered}
    pointed = [(n, *m) for n in numbered for m in re.findall(r"[Nn]otebook (\d\d), section (\d+)", prose(n) + code(n))]
    assert len(pointed) > 5
    assert [one for one in pointed if one[2] not in heads.get(one[1], ())] == []
