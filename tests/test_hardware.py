# SPDX-License-Identifier: MIT
"""Every published peak must come out of units x FLOPs per clock x clock."""

from __future__ import annotations

import pytest

from rocm_guide.hardware import GPUS, HardwareError, find_gpu, gpu, roofline

# What the data sheets print (TFLOPS, dense), to the digits that they print.
PUBLISHED = {
    "MI300X": {"fp64": 81.7, "fp64-matrix": 163.4, "fp32": 163.4, "fp32-matrix": 163.4, "tf32": 653.7, "fp16": 1307.4,
               "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
    "MI325X": {"fp64": 81.7, "fp64-matrix": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "fp8": 2614.9},
    "MI300A": {"fp64": 61.3, "fp64-matrix": 122.6, "fp32": 122.6, "tf32": 490.3, "fp16": 980.6, "fp8": 1961.2},
    "MI250X": {"fp64": 47.9, "fp64-matrix": 95.7, "fp32": 47.9, "fp32-matrix": 95.7, "fp16": 383.0, "bf16": 383.0,
               "int8": 383.0},
    "MI355X": {"fp64": 78.6, "fp32": 157.3, "fp16": 2516.6, "fp8": 5033.2, "fp4": 10066.3},
    "H100": {"fp64": 33.5, "fp64-matrix": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "fp8": 1978.9},
    "H200": {"fp16": 989.4, "int8": 1978.9},
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, peaks in PUBLISHED.items() for d in peaks])
def test_the_published_peak_is_the_product(name, dtype):
    assert gpu(name).peak_tflops(dtype) == pytest.approx(PUBLISHED[name][dtype], abs=0.06)


def test_mi300x_holds_622592_threads_and_not_half_of_that():
    x = gpu("MI300X")
    assert x.units == x.dies * 38 == 304
    assert x.waves == 304 * 32
    assert x.threads == 622_592


def test_all_specs_are_whole():
    for name, spec in GPUS.items():
        assert spec.name == name
        assert spec.source
        assert spec.units % spec.dies == 0
        assert 1 < spec.bandwidth_tb_s < 10


def test_an_mi250x_is_two_devices_and_the_others_are_one():
    assert {name for name, spec in GPUS.items() if spec.devices != 1} == {"MI250X"}
    assert gpu("MI250X").memory_gb / gpu("MI250X").devices == 64


def test_the_roof_is_bandwidth_below_the_ridge_and_peak_above():
    x = gpu("MI300X")
    ridge = x.ridge("fp8")
    assert roofline(x, "fp8", ridge / 2) == pytest.approx(x.peak_tflops("fp8") / 2)
    assert roofline(x, "fp8", ridge * 2) == x.peak_tflops("fp8")
    assert roofline(x, "fp8", 0) == 0


def test_device_names():
    assert find_gpu("AMD Instinct MI300X OAM").name == "MI300X"
    assert find_gpu("NVIDIA H200").name == "H200"
    assert find_gpu("NVIDIA H100 PCIe") is None
    assert find_gpu("Tesla T4") is None


@pytest.mark.parametrize("bad", [lambda: gpu("MI9"), lambda: gpu("MI250X").peak_tflops("fp8"),
                                 lambda: roofline(gpu("MI300X"), "fp8", float("nan"))])  # fmt: skip
def test_bad_input_is_named(bad):
    with pytest.raises(HardwareError, match="="):
        bad()
