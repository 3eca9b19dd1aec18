# SPDX-License-Identifier: MIT
"""The kernel tests as they would choose on an MI300X: nothing that they ask for is refused before a launch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: Those that choose among the 8-bit types.
FILES = ("gemm/test_gemm.py", "gemm/test_gemm_skinny.py", "attention/test_attention_quantized.py")


def test_no_kernel_test_is_refused():
    """The tests run in a process in which PyTorch answers as on an MI300X, each up to its first launch."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET" and not k.startswith("PYTEST_")}
    environment |= {
        "PRETENDED_GPU": "gfx942",
        "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE.parents[1] / "cdna", HERE))),
    }
    command = [sys.executable, "-m", "pytest", "--tb=line", "-p", "no:cacheprovider", "-p", "pretend_gpu"]
    files = [str(HERE / name) for name in FILES]
    run = subprocess.run([*command, *files], cwd=HERE.parent.parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) > 300, run.stdout[-300:]
