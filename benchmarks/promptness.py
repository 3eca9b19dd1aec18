# SPDX-License-Identifier: MIT
"""Times that users feel and no test may judge, each as a ratio to something of the same machine.

    python -m benchmarks.promptness

help: `rocm-guide --help` over starting Python and importing typer and rich.
isa, ir: reading eight times the text over reading it once (8 is linear).
compile: compiling a GEMM for gfx942 and reporting on it, over importing torch and triton.
Processor time of this process and its children, so that a busy machine disturbs little; the median of five.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cdna.ir.program import parse_ir
from cdna.isa.kernel import parse_asm

SAMPLES = Path(__file__).parents[1] / "cdna" / "tests" / "samples"
COMPILE = """
from cdna.compile import compile_kernel
from cdna.examples.tuning import matmul
from cdna.report import kernel_report
args = ["*fp16:16"] * 3 + [4096] * 3
kernel_report(compile_kernel(matmul, args, {"BM": 128, "BN": 128, "BK": 64}, num_warps=8))
"""


def seconds(function, *arguments):
    """Return the median processor time of a call, children included."""
    took = []
    for _ in range(5):
        before = os.times()
        function(*arguments)
        after = os.times()
        took.append(sum(after[:4]) - sum(before[:4]))
    return statistics.median(took)


def python(*arguments):
    """Run this Python; with an empty cache of Triton's."""
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "TRITON_CACHE_DIR": empty}
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=env)


def main():
    """Measure and print one line of JSON."""
    asm = (SAMPLES / "gemm_t39.amdgcn").read_text()
    ttgir = (SAMPLES / "gemm_t39.ttgir").read_text()
    copies = [
        "\n".join(asm.replace("gemm", f"gemm{i}").replace(".LBB0", f".LBB{i}") for i in range(n)) for n in (4, 32)
    ]
    libraries = seconds(python, "-c", "import torch, triton")
    ratios = {
        "help": seconds(python, "-m", "rocm_guide.cli.main", "--help") / seconds(python, "-c", "import typer, rich"),
        "isa": seconds(parse_asm, copies[1]) / seconds(parse_asm, copies[0]),
        "ir": seconds(parse_ir, ttgir * 32) / seconds(parse_ir, ttgir * 4),
        "compile": seconds(python, "-c", COMPILE) / libraries,
    }
    print(json.dumps({name: round(value, 2) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
