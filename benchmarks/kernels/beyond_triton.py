# SPDX-License-Identifier: MIT
"""Where does Triton's code for gfx942 leave more than a fifth of a loop, and what shows it?

    python -m benchmarks.kernels.beyond_triton [--write]

Nothing is measured on a GPU. Four short Triton programs are compiled for gfx942, as a kernel of this course is; a
workgroup of each is executed at two lengths, and a turn of its loop is laid out by the model of
:mod:`rocm_guide.observe.loops`. Two of them stand beside a Gluon kernel that does the same. What rows,
decoding and the fused FP8 kernels leave is read from results/peers_mi300x.json, and so is where ours execute or load
more than a public kernel. `--write` puts the tables and the programs into docs/beyond_triton.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3

from benchmarks.kernels.peers_cases import MI300X, operations
from cdna.compile import Compiled, compile_kernel
from cdna.run import run
from cdna.testing import run_cell
from rocm_guide.common.base import write_text
from rocm_guide.kernels.mla_decode import launch_mla
from rocm_guide.kernels.paged import attention_paged
from rocm_guide.observe.loops import LoopCost, causal_cost, loop_cost, triton_attention
from rocm_guide.observe.predict import launches_of, with_memory

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/beyond_triton.md"
F16, BF16 = torch.float16, torch.bfloat16


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BK
        b += BK * N
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def flash(q_ptr, k_ptr, v_ptr, o_ptr, keys, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :])
    m, total, out = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, D], tl.float32)
    for n in range(0, keys, N):
        k = tl.load(k_ptr + (n + j)[:, None] * D + d[None, :])
        s = tl.dot(q, k.T)
        m_new = tl.maximum(m, tl.max(s, 1))
        p, shrink = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        total, m = total * shrink + tl.sum(p, 1), m_new
        v = tl.load(v_ptr + (n + j)[:, None] * D + d[None, :])
        out = tl.dot(p.to(tl.float16), v, out * shrink[:, None])
    tl.store(o_ptr + i[:, None] * D + d[None, :], (out / total[:, None]).to(tl.float16))


@triton.jit
def shared(q_ptr, c_ptr, o_ptr, keys, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + m[None, :] * D + d[:, None])
    out = tl.zeros((D, M), tl.float32)
    for start in range(0, keys, N):
        c = tl.load(c_ptr + (start + n)[:, None] * D + d[None, :])
        p = tl.dot(c, q).to(tl.float16)
        out = tl.dot(tl.trans(c), p, out)
    tl.store(o_ptr + m[None, :] * D + d[:, None], out.to(tl.float16))


MM = gl.constexpr(AMDMFMALayout(3, [16, 16, 16], True, [2, 4]))
A_LDS = gl.constexpr(gl.SwizzledSharedLayout(4, 2, 8, [1, 0]))
COLUMNS = gl.constexpr(gl.BlockedLayout([2, 4], [2, 32], [8, 1], [1, 0]))  # a lane has two rows of B
B_LDS = gl.constexpr(
    gl.SharedLinearLayout(
        [[1, 0], [2, 0], [0, 1], [0, 2], [0, 4], [0, 8], [4, 0], [8, 0], [16, 0], [0, 17], [0, 34], [0, 68]]
    )
)


@gluon.jit
def gluon_product(a_ptr, b_ptr, c_ptr, K, M: gl.constexpr, N: gl.constexpr, BK: gl.constexpr):
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [16, 4], [8, 1], [1, 0])
    m = gl.arange(0, M, layout=gl.SliceLayout(1, ROWS))[:, None]
    a_at = m * K + gl.arange(0, BK, layout=gl.SliceLayout(0, ROWS))[None, :]
    k = gl.arange(0, BK, layout=gl.SliceLayout(1, COLUMNS))[:, None]
    b_at = k * N + gl.arange(0, N, layout=gl.SliceLayout(0, COLUMNS))[None, :]
    a_lds = gl.allocate_shared_memory(gl.float16, [M, BK], A_LDS)
    b_lds = gl.allocate_shared_memory(gl.float16, [BK, N], B_LDS)
    total = gl.zeros([M, N], gl.float32, layout=MM)
    a_next, b_next = cdna3.buffer_load(a_ptr, a_at), cdna3.buffer_load(b_ptr, b_at)
    for step in range(0, K, BK):
        a_lds.store(a_next)
        b_lds.store(b_next)
        ahead = gl.minimum(step + BK, K - BK)
        a_next, b_next = cdna3.buffer_load(a_ptr + ahead, a_at), cdna3.buffer_load(b_ptr + ahead * N, b_at)
        left, right = a_lds.load(gl.DotOperandLayout(0, MM, 4)), b_lds.load(gl.DotOperandLayout(1, MM, 4))
        total = cdna3.mfma(left, right, total)
    m = gl.arange(0, M, layout=gl.SliceLayout(1, MM))[:, None]
    gl.store(c_ptr + m * N + gl.arange(0, N, layout=gl.SliceLayout(0, MM))[None, :], total)


def compiled_product(kernel: Any = product, **options: Any) -> Compiled:
    """Return 128 x 128 x 32 in fp16 with eight waves, C = A B, both with rows that are contiguous."""
    of = [torch.empty(1 << 16, dtype=t, device="meta") for t in (F16, F16, torch.float32)]
    return compile_kernel(kernel, [*of, 4096], {"M": 128, "N": 128, "BK": 32}, num_warps=8, **options)


def compiled_flash(stages: int) -> Compiled:
    """Return 128 queries, 32 keys a turn, heads of 128, four waves, MFMA 32 x 32 x 8."""
    of = [torch.empty(1 << 16, dtype=F16, device="meta")] * 4
    sizes = {"M": 128, "N": 32, "D": 128}
    return compile_kernel(flash, [*of, 4096], sizes, num_warps=4, num_stages=stages, matrix_instr_nonkdim=32)


def compiled_shared() -> Compiled:
    """Return 32 queries, 64 keys a turn, 512 numbers wide, eight waves, MFMA 16 x 16 x 16."""
    of, sizes = [torch.empty(1 << 18, dtype=F16, device="meta")] * 3, {"M": 32, "N": 64, "D": 512}
    return compile_kernel(shared, [*of, 4096], sizes, num_warps=8, num_stages=1, matrix_instr_nonkdim=16)


def product_cost(kernel: Compiled) -> LoopCost:
    """Execute a product of 128 x 128 at two lengths of K; raise ValueError if it is wrong."""

    def operands(k: int) -> list[Any]:
        torch.manual_seed(0)
        return [torch.randn(128, k).half(), torch.randn(k, 128).half(), torch.zeros(128, 128), k]

    run(kernel, (1,), given := operands(128))
    if (given[2] - given[0].double() @ given[1].double()).abs().max() > 1e-3:
        raise ValueError(f"{kernel.name} is wrong")
    return loop_cost(kernel, lambda k: ((1,), operands(k), 0), (128, 256), 32)


def flash_cost(kernel: Compiled) -> LoopCost:
    """Execute 128 queries over 128 and over 256 keys."""
    x = torch.randn(256, 128).half()
    return loop_cost(kernel, lambda keys: ((1,), [x, x, x, torch.empty_like(x), keys], 0), (128, 256), 32)


def shared_cost(kernel: Compiled) -> LoopCost:
    """Execute 32 queries over 128 and over 256 keys; raise ValueError if they are wrong."""
    torch.manual_seed(0)
    q, c, out = (torch.randn(32, 512) / 32).half(), (torch.randn(256, 512) / 32).half(), torch.zeros(32, 512).half()
    run(kernel, (1,), [q, c, out, 256])
    if (out - (q.double() @ c.double().T) @ c.double()).abs().max() > 1e-3:
        raise ValueError(f"{kernel.name} is wrong")
    return loop_cost(kernel, lambda keys: ((1,), [q, c, out, keys], 0), (128, 256), 64)


def notebook_attention(x: torch.Tensor) -> tuple[Compiled, int, list[Any]]:
    """Return the attention kernel of notebook 37, queries of a workgroup, and arguments to execute it."""
    (notebook,) = (ROOT / "notebooks").glob("37_*.ipynb")
    cells = ["".join(c["source"]) for c in json.loads(notebook.read_text("utf-8"))["cells"]]
    whole = "\n\n\n".join(cells)
    parts = [re.search(rf"@gluon\.jit\ndef {n}\(.*?\n\n\n", whole, re.S) for n in ("places", "store_tile")]
    code = [p.group() for p in parts if p]
    code += [next(c for c in cells if f"\n{n}" in c) for n in ("V_LDS =", "def attend(")]
    head = (
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
        "from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3, warp_pipeline_stage as stage\n\n\n"
    )
    kernel = run_cell(head + "\n\n\n".join(code) + "\n")["attend"]
    half, log2 = torch.empty(1 << 16, dtype=F16, device="meta"), 128**-0.5 * 1.4426950408889634
    built = compile_kernel(kernel, [half] * 4 + [300, 3, log2], {"M": 256}, num_warps=8)
    return built, 256, [x, x, x, torch.empty_like(x), 512, 1, log2]


def decoding(name: str, call: Callable[[Callable[..., torch.Tensor]], Any], step: int) -> tuple[Compiled, LoopCost]:
    """Return the code of a decoding kernel, and what ``step`` keys cost; ``call`` launches it on empty tensors."""
    launches = launches_of(lambda: call(lambda *shape, dtype=BF16: torch.empty(shape, dtype=dtype, device="cuda")))
    kernel, _, arguments, _ = next(launch for launch in launches if launch[0].name == name)
    given = {n: with_memory(value) for n, value in arguments.items()}
    if "length_ptr" in given:
        given["length_ptr"].fill_(1 << 20)
    return kernel, loop_cost(kernel, lambda keys: ((1,), given | {"tokens": keys}, 0), (256, 512), step)


def decoding_rows() -> Iterator[tuple[str, Compiled, LoopCost]]:
    """Yield the loops of decoding: latents that 128 heads share, and eight heads in pages."""

    def latents(empty: Any) -> None:
        cache = empty(1, 512, 576)
        launch_mla(empty(1, 128, 512), empty(1, 128, 64), cache[..., :512], cache[..., 512:], None, 0.07, parts=4)

    def pages(empty: Any) -> None:
        k, v = empty(8, 64, 2, 128), empty(8, 64, 2, 128)
        of_pages, lengths = empty(1, 8, dtype=torch.int32), empty(1, dtype=torch.int32)
        attention_paged(empty(1, 8, 128), k, v, of_pages, lengths)

    one = compiled_shared()
    yield "4. `shared`", one, shared_cost(one)
    yield "4. our MLA decoding, 128 heads", *decoding("_mla_part", latents, 64)
    yield "our paged decoding, memory-bound", *decoding("_paged_part", pages, 64)


def memory_table() -> str:
    """Return what our kernels leave that memory should limit, in Markdown, from the stored table of the peers."""
    stored = json.loads((ROOT / "benchmarks/results/peers_mi300x.json").read_text("utf-8"))["rows"]
    lines = [
        "| operation | VALU, waits an element | LDS conflict cycles | us of compute units, of HBM | left |",
        "|---|---|---|---|---|",
    ]
    for name, op in operations().items():
        row = stored[name]["ours"]
        if not name.startswith(("GEMM", "attention", "MLA prefill")):
            counts = f"{row['instructions']['valu']:.1f}, {row['instructions']['waitcnt']:.2f}"
            memory = row["moved"] * op.floor / MI300X.bandwidth_tb_s / 1e6
            times = f"{row['unit_us']:.1f}, {memory:.1f} | {max(0, 1 - memory / row['unit_us']):.0%}"
            lines.append(f"| {name} | {counts} | {row['lds_conflicts']:.1f} | {times} |")
    return "\n".join(lines)


#: Starts of operations' names -> why ours execute or load more there; the first that fits.
CAUSES = {
    ("skinny", "GEMM int8 64 "): "Few tokens: narrow tiles and parts of K give every compute unit work. Each workgroup "
    "loads the activations again, from L2; aiter's few wide tiles leave most units idle.",
    ("GEMM",): "A tile of 256 x 128 loads more for a product than one of 256 x 256, but its workgroups fill whole "
    "rounds of 304 units better.",
    ("attention backward causal bf16 4 x 16 x",): "Two kernels read queries and keys more often than aiter's single "
    "one. That has one wave on a SIMD, as ours for dK and dV, and spills 86 registers where ours spill none.",
    ("attention backward",): "Two kernels, whose tiles leave room for a second workgroup on a unit, read queries and "
    "keys more often. aiter's single one has one wave on a SIMD, and spills from 128 numbers a head on.",
    ("attention causal bf16 4 x 16 x",): "Values narrower than keys: 64 queries to a workgroup read keys and values "
    "more often than aiter's 256, whose eight waves spill 72 registers. 128 in eight waves would load a third less in "
    "the same time, and spill in the persistent kernel.",
    ("attention",): "64 queries to a workgroup read keys and values twice as often as 128 do. aiter's 128 spill "
    "more than 500 registers; in eight waves they do not spill, but leave no room for a second workgroup.",
    ("paged",): "An eighth more instructions, and fewer lines: the compute units wait for HBM for half of the time.",
    ("RMSNorm backward", "LayerNorm backward"): "Sums over rows: ours add the parts in a second kernel, Liger leaves "
    "that to torch, whose lines are not counted.",
    ("RMSNorm", "LayerNorm", "add"): "A workgroup for a row or two loads the weight again, from L2. Who keeps it for "
    "several rows starts fewer workgroups; HBM is the limit of both.",
}


def more_table() -> str:
    """Return where ours execute or load more than a twentieth above the least of the others, and why, in Markdown."""
    stored = json.loads((ROOT / "benchmarks/results/peers_mi300x.json").read_text("utf-8"))["rows"]
    found: dict[str, list[str]] = {}
    for name, row in stored.items():
        others = [peer for library, peer in row.items() if library != "ours"]
        kinds = ("executed", "lines", "likely_us")
        more, lines, us = (row["ours"][what] / min(peer[what] for peer in others) for what in kinds)
        if max(more, lines) > 1.05:
            cause = next(why for names, why in CAUSES.items() if name.startswith(names))
            found.setdefault(cause, []).append(f"| {name} | {more:.2f}, {lines:.2f} | {us:.2f} |")
    head = "| operation | instructions, lines | time |\n|---|---|---|"
    return "\n\n".join(f"{cause}\n\n{head}\n" + "\n".join(rows) for cause, rows in found.items())


def shown(kernel: Compiled) -> str:
    """Return what the loop does with LDS, by name of the instruction, and how often it meets a barrier."""
    start = max(kernel.parsed.loops, key=lambda loop: loop.instructions)
    body = [i for i in kernel.parsed.instructions if start.first_line <= i.line <= start.last_line]
    return ", ".join(f"{n} `{op}`" for op, n in Counter(i.op for i in body if i.kind in ("lds", "barrier")).items())


def rows() -> Iterator[tuple[str, Compiled, LoopCost]]:
    """Yield name, code and cost of each kernel of the table."""
    for name, kernel in (("1. `product`, eight waves", product), ("1. the same in Gluon", gluon_product)):
        one = compiled_product(kernel)
        yield name, one, product_cost(one)
    for stages, name in ((2, "2. `flash`, `num_stages=2`"), (1, "3. `flash`, `num_stages=1`")):
        one = compiled_flash(stages)
        yield name, one, flash_cost(one)
    x = torch.randn(1, 1, 512, 128).half()
    for name, found in (("3. our Triton attention", triton_attention(x)), ("2., 3. in Gluon", notebook_attention(x))):
        yield name, found[0], causal_cost(*found)
    yield from decoding_rows()


def table() -> str:
    """Return the table of the page, in Markdown."""
    lines = [
        f"Triton {triton.__version__}, gfx942:\n",
        "| kernel | VGPRs, waves on a SIMD | LDS and barriers in the loop | LDS cycles / ideal | "
        "cycles of a turn, of the matrix cores | left |",
        "|---|---|---|---|---|---|",
    ]
    for name, kernel, c in rows():
        cycles = f"{c.banks:.1f} | {c.cycles:,.0f}, {c.matrix:,.0f} | {c.left:.0%}"
        lines.append(f"| {name} | {c.vgprs}, {c.waves:g} | {shown(kernel)} | {cycles} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or write it and the programs into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    write, made = parser.parse_args(arguments).write, {"table": table(), "memory": memory_table(), "more": more_table()}
    for kernel in (product, flash, gluon_product, shared):
        made[kernel.fn.__name__] = f"```python\n{inspect.getsource(kernel.fn).rstrip()}\n```"
    if not write:
        print(made["table"], made["memory"], made["more"], sep="\n\n")
        return 0
    text = PAGE.read_text("utf-8")
    for name, part in made.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(pattern, lambda m, part=part: f"{m[1]}{part}\n{m[2]}", text, flags=re.S)
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} places for {name}: one is wanted")
    write_text(PAGE, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
