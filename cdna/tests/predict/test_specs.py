# SPDX-License-Identifier: MIT
"""Every published peak must come out of units x FLOPs per clock x clock."""

from __future__ import annotations

import pytest

from cdna.predict.specs import GPUS, HardwareError, find_gpu, gpu, roofline

# What the data sheets print (TFLOPS, dense), to the digits that they print.
PUBLISHED = {
    "MI300X": {
        "fp64": 81.7,
        "fp64-matrix": 163.4,
        "fp32": 163.4,
        "fp32-matrix": 163.4,
        "tf32": 653.7,
        "fp16": 1307.4,
        "bf16": 1307.4,
        "fp8": 2614.9,
        "int8": 2614.9,
    },
    "MI325X": {"fp64": 81.7, "fp64-matrix": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "fp8": 2614.9},
    "MI300A": {"fp64": 61.3, "fp64-matrix": 122.6, "fp32": 122.6, "tf32": 490.3, "fp16": 980.6, "fp8": 1961.2},
    "MI250X": {
        "fp64": 47.9,
        "fp64-matrix": 95.7,
        "fp32": 47.9,
        "fp32-matrix": 95.7,
        "fp16": 383.0,
        "bf16": 383.0,
        "int8": 383.0,
    },
    "MI355X": {"fp64": 78.6, "fp32": 157.3, "fp16": 2516.6, "fp8": 5033.2, "fp4": 10066.3},
    "H100": {"fp64": 33.5, "fp64-matrix": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "fp8": 1978.9},
    "H200": {"fp16": 989.4, "int8": 1978.9},
    "MI210": {"fp64": 22.6, "fp64-matrix": 45.3, "fp16": 181.0, "int8": 181.0},
    "MI250": {"fp64": 45.3, "fp16": 362.1},
    "MI350X": {"fp64": 72.1, "fp16": 2306.9, "fp8": 4613.7},
    "A100-40GB": {"fp64": 9.7, "fp64-matrix": 19.5, "fp32": 19.5, "tf32": 155.9, "bf16": 311.9, "int8": 623.7},
    "A100-80GB": {"fp16": 311.9},
    "L40S": {"fp32": 91.6, "fp16": 366.4, "fp8": 732.8},
    "RTX4090": {"fp32": 82.6, "fp16": 165.2, "fp8": 330.3},
}


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
        assert 0.5 < spec.bandwidth_tb_s < 10
        assert 0.9 < spec.memory_bytes / (spec.memory_gib << 30) <= 1


def test_an_mi250x_is_two_devices_and_the_others_are_one():
    assert {name for name, spec in GPUS.items() if spec.devices != 1} == {"MI250X", "MI250"}
    assert gpu("MI250X").memory_gib / gpu("MI250X").devices == 64


def test_an_amd_row_takes_its_limits_from_the_architecture():
    from cdna.arch import ARCHS

    for name in ("MI300X", "MI355X"):
        spec, arch = gpu(name), ARCHS[gpu(name).arch]
        assert (spec.units, spec.dies, spec.memory_gib << 30) == (arch.cus, arch.xcds, arch.memory_bytes)
        assert (spec.lds_kib << 10, spec.lanes, spec.register_kib) == (arch.lds_bytes, arch.wave_size, 512)


def test_gib_and_gb_are_two_things():
    x = gpu("MI300X")
    assert x.memory_gib == 192 and x.memory_bytes == 196_592 << 20  # amd-smi: 196,592 MiB
    assert 206.1e9 < x.memory_bytes < 206.2e9
    assert not hasattr(x, "memory_gb")


def test_names_in_any_spelling():
    assert {gpu(n).name for n in ("mi300x", "MI300X", "mi-300x")} == {"MI300X"}
    assert gpu("a100").name == "A100-80GB" and gpu("rtx 4090").name == gpu("4090").name == "RTX4090"


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
    assert find_gpu("NVIDIA A100-SXM4-40GB").name == "A100-40GB" and find_gpu("NVIDIA L40S").name == "L40S"
    assert find_gpu("NVIDIA GeForce RTX 4090").name == "RTX4090"
    assert find_gpu("AMD Instinct MI250X / MI250").name == "MI250X" and find_gpu("AMD Instinct MI250").name == "MI250"


@pytest.mark.parametrize(
    "bad",
    [
        lambda: gpu("MI9"),
        lambda: gpu("MI250X").peak_tflops("fp8"),
        lambda: roofline(gpu("MI300X"), "fp8", float("nan")),
    ],
)
def test_bad_input_is_named(bad):
    with pytest.raises(HardwareError, match="="):
        bad()
