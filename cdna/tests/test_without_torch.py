# SPDX-License-Identifier: MIT
"""The README's examples, word for word, in an empty folder and where torch cannot be imported."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cdna.base import InputError
from cdna.cli.inspect.arguments import Tensor
from cdna.compile import compile_kernel
from cdna.examples.rows import softmax_three_passes

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
KERNEL, PROGRAM, *_ = re.findall(r"```python\n(.*?)```", README, re.S)
COMMAND = re.search(r"```\n(cdna inspect .*?)```", README, re.S)[1].replace("\\\n", " ")

WITHOUT = """
import importlib.util, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "torch" else real(name, *a)
sys.meta_path.insert(0, Hidden())
"""


def python(folder, code, *words):
    (folder / "add.py").write_text(KERNEL)
    command = [sys.executable, "-c", f"{WITHOUT}sys.path.insert(0, '')\n{code}", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def cdna(folder, line):
    code = "sys.argv = ['cdna', *sys.argv[1:]]\nfrom cdna.cli.main import main\nmain()"
    return python(folder, code, *shlex.split(line)[1:])


def test_the_first_example_is_inspected_and_executed(tmp_path):
    done = cdna(tmp_path, COMMAND)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r" 32,768  bytes loaded .*\n +16,384  bytes stored", done.stdout)
    # Arrays begin at a line of memory: not one line more than their bytes fill.
    assert re.search(r"    384  lines of 128 bytes touched", done.stdout)


def test_the_first_example_is_stepped_through(tmp_path):
    done = cdna(tmp_path, COMMAND.replace("inspect", "step").replace("--run ", "--steps 2 "))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "add, workgroup 0, wave 0: step 1 of" in done.stdout


def test_the_program_runs(tmp_path):
    done = python(tmp_path, PROGRAM + "\nassert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "occupancy  8 waves per SIMD" in done.stdout


def test_what_needs_torch_says_so_in_one_line(tmp_path):
    done = cdna(tmp_path, "cdna inspect add.py::add --call 'add[(1,)](1)'")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "needs torch, which is not installed" in done.stderr


def test_an_array_compiles_as_a_tensor_in_its_place_does():
    """Alignment and size of the allocation decide; the same two hints as the JIT's own."""
    torch = pytest.importorskip("torch")
    raw = np.zeros(4096 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    for shift, dtype in ((0, np.float32), (4, np.float32), (2, np.float16), (16, np.int8)):
        array = raw[start + shift : start + shift + 2048].view(dtype)
        tensor = torch.from_numpy(array)
        made = [compile_kernel(softmax_three_passes, [x, x, 500], {"BLOCK": 256}) for x in (array, tensor)]
        assert made[0].assembly == made[1].assembly and made[0].signature == made[1].signature
    with pytest.raises(InputError, match="x_ptr is an array of complex64; use bool, int8"):
        compile_kernel(softmax_three_passes, [np.zeros(3, np.complex64), array, 500], {"BLOCK": 256})


@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp64", "u8", "i1", "i64", "fp8e4b8", "fp8e5"])
def test_random_values_are_the_same_each_time_and_aligned(kind):
    one, two = Tensor(kind, (3, 100)).random(), Tensor(kind, (3, 100)).random()
    assert np.array_equal(one, two) and one.shape == (3, 100) and one.ctypes.data % 256 == 0
    assert len(np.unique(one)) > (1 if kind == "i1" else 50)
    assert one.itemsize == {"fp16": 2, "bf16": 2, "fp64": 8, "i64": 8}.get(kind, 1)
