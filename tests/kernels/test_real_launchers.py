# SPDX-License-Identifier: MIT
"""The short way into a kernel, through Triton's own code in C down to a pretended driver of each vendor.

No GPU is needed for it: the kernels are compiled for gfx942 and sm_90, Triton's launchers are those that a GPU's owner
has, and the library below them notes what it is asked to launch (tests/kernels/pretended/driver.c). What the short way
asks has to be what Triton's own way asks: the function, the grid, the block, the shared memory and each parameter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PRETENDED = Path(__file__).parent / "pretended"
NAMES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}


@pytest.fixture(scope="module", params=sorted(NAMES))
def results(request, tmp_path_factory):
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if compiler is None or not headers.exists():
        pytest.skip("Triton builds its launchers in C when a GPU is there: that takes gcc or clang, and Python.h")
    folder = tmp_path_factory.mktemp(request.param)
    library = folder / NAMES[request.param]
    flags = ["-DHIP"] if request.param == "hip" else []
    # -w: the pretended functions leave most of their arguments alone, and some are kept under another type.
    build = [
        *compiler.split(),
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        *flags,
        str(PRETENDED / "driver.c"),
        "-o",
        str(library),
    ]
    subprocess.run(build, check=True)
    (folder / "libcuda.so").symlink_to(library)
    own = {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_INTERPRET": "0", "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, str(PRETENDED / "launches.py"), request.param, str(library)]
    run = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_the_short_way_asks_the_driver_for_the_same(results):
    assert set(results) == {"float", "no bias", "bias", "mixed"}
    for name, case in results.items():
        own, again, other = case["launches"]
        assert case["short"] == 2, name
        for which in ("function", "numbers", "parameters"):
            assert own[which] == again[which] == other[which], (name, which)


def test_each_launch_goes_to_the_stream_of_its_time(results):
    for case in results.values():
        assert [one["stream"] for one in case["launches"]] == [4242, 4242, 777777]


def test_the_driver_gets_the_tensors_addresses(results):
    for name, case in results.items():
        for one in case["launches"]:
            assert set(case["addresses"]) <= set(one["parameters"]), name


def test_grids_blocks_and_numbers_arrive(results):
    grids = {name: case["launches"][1]["numbers"][:3] for name, case in results.items()}
    assert grids == {"float": [4, 1, 1], "no bias": [64, 1, 1], "bias": [8, 4, 2], "mixed": [4, 1, 1]}
    first = results["float"]["launches"][1]["parameters"]
    assert "00100000" in first and "9a99993e" in first  # 4096, and 0.3 in fp32
    assert "0000000002000000" in results["mixed"]["launches"][1]["parameters"]  # 2**33
