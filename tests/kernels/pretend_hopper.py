"""A Hopper GPU that is not there: launches compile for it, and the assembler says what it makes of them."""

import re
import subprocess
from types import SimpleNamespace

import torch

from rocm_guide.kernels import attention, attention_fp8, gemm, int8_gemm

MODULES = (
    attention,
    attention_fp8,
    gemm,
    int8_gemm,
)
SHARED_MEMORY = 227 * 1024  # the most that a program may have on an H100


def fake_driver():
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class Driver(DriverBase):
        utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": SHARED_MEMORY})

        @classmethod
        def is_active(cls):
            return True

        def map_python_to_cpp_type(self, ty):
            raise NotImplementedError

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return -90  # no real one: Triton keeps what it compiles, and for which target, by device

        def get_current_stream(self, device=None):
            return 0

        def get_active_torch_device(self):
            return torch.device("cuda", 0)

        def get_benchmarker(self):
            raise NotImplementedError

    return Driver()


def compile_launches(monkeypatch):
    """Launches on tensors of the device "meta" compile for sm_90 and stand in the list as (kernel's name, result).

    The body of the fixture ``compiled``.
    """
    import triton
    from triton.runtime import driver

    found, run = [], triton.JITFunction.run

    def compile_only(kernel, *args, grid, warmup, **kwargs):
        found.append((kernel.__name__, run(kernel, *args, grid=grid, warmup=True, **kwargs)))

    before = driver._active
    driver.set_active(fake_driver())
    monkeypatch.setattr(triton.JITFunction, "run", compile_only)
    for module in MODULES:
        monkeypatch.setattr(module, "architecture", lambda tensor: "sm_90", raising=False)
        monkeypatch.setattr(module, "unit_count", lambda tensor: 132, raising=False)
    yield found
    driver.set_active(before)


def empty(*shape, dtype=torch.float16):
    return torch.empty(shape, dtype=dtype, device="meta")


def assembled(kernel, folder):
    """What the assembler tells of a compiled kernel: bytes spilled, and whether its matrix products run one by one."""
    from triton.backends.nvidia.compiler import get_ptxas

    (folder / "k.ptx").write_text(kernel.asm["ptx"])
    command = [get_ptxas(90).path, "-v", "-arch=sm_90a", str(folder / "k.ptx"), "-o", str(folder / "k.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (spilled,) = re.findall(r"(\d+) bytes spill stores", said)
    return int(spilled), "serialized" in said
