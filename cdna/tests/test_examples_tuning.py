# SPDX-License-Identifier: MIT
"""The kernels of examples/tuning.py compute what they say: in Triton's interpreter, against float64."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import contextlib, itertools, torch, triton
from cdna.examples.tuning import attention_rows, matmul, scale_rows
from cdna.interpreter.patches import complete_interpreter

complete = contextlib.ExitStack()
complete.enter_context(complete_interpreter())  # Triton 3.6 cannot loop where numpy is newer than 2.3
torch.manual_seed(0)
for rows, cols in [(1, 1), (3, 37), (5, 300)]:
    x = torch.randn(rows, cols)
    y = torch.full_like(x, float("nan"))
    scale_rows[(rows,)](x, y, 2.5, cols, BLOCK=64)
    torch.testing.assert_close(y, 2.5 * x)
for (m, n, k), split, relu in itertools.product([(16, 16, 16), (33, 17, 50), (70, 40, 129)], [1, 3], [False, True]):
    if split > 1 and relu:
        continue
    a, b = torch.randn(m, k), torch.randn(k, n)
    c = torch.zeros(m, n) if split > 1 else torch.full((m, n), float("nan"))
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 16), split)
    matmul[grid](a, b, c, m, n, k, BM=32, BN=16, BK=32, SPLIT_K=split, RELU=relu)
    want = (a.double() @ b.double()).clamp(min=0) if relu else a.double() @ b.double()
    torch.testing.assert_close(c.double(), want, rtol=1e-5, atol=1e-4)
for s, d in [(16, 16), (50, 32), (1, 16), (130, 64)]:
    q, k, v = (torch.randn(s, d) for _ in range(3))
    o = torch.full((s, d), float("nan"))
    attention_rows[(triton.cdiv(s, 32),)](q, k, v, o, d**-0.5, s, D=d, BM=32, BN=16)
    want = torch.softmax(q.double() @ k.double().T * d**-0.5, 1) @ v.double()
    torch.testing.assert_close(o.double(), want, rtol=1e-5, atol=1e-5)
print("all right")
"""


def test_example_kernels_against_float64():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-2000:]
