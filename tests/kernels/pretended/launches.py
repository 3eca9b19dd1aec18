# SPDX-License-Identifier: MIT
"""Launch kernels through Triton's own launchers in C, with a pretended driver below them, and print what it was asked.

    python launches.py cuda|hip LIBRARY

Every case is launched three times on the same tensors: by Triton's own way, which the plan then remembers, and twice by
the short way, the second time on another stream. Prints JSON: for each case its parameters' types, the three launches
([function, grid, block, shared memory, stream, parameters]) and how often the short way was taken.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from rocm_guide.kernels import direct, launch

FIRST, SECOND = 4242, 777777
HEAD = 10
BYTES = {"i1": 1, "i8": 1, "i16": 2, "fp16": 2, "bf16": 2, "i32": 4, "fp32": 4, "i64": 8, "fp64": 8}


@triton.jit
def scaled(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)


@triton.jit
def maybe(x_ptr, bias_ptr, y_ptr, rows, stride, columns, eps, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    value = tl.load(x_ptr + at, mask=inside) + eps * rows
    if HAS_BIAS:
        value += tl.load(bias_ptr + tl.arange(0, BLOCK), mask=inside)
    tl.store(y_ptr + at, value, mask=inside)


@triton.jit
def tuples(tensors, sizes, far, flag, FORM: tl.constexpr):
    BLOCK: tl.constexpr = FORM[0]
    x_ptr, y_ptr, _nothing = tensors
    n, step = sizes
    at = (tl.program_id(0) + far) * step + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.where(flag, value, -value), mask=at < n)


def cases():
    """(name, launch, tensors, floats)"""
    x, y = torch.zeros(4096), torch.zeros(4096)
    h, b = torch.zeros(64, 96, dtype=torch.bfloat16), torch.zeros(96, dtype=torch.bfloat16)
    yield "float", launch.Launch(scaled, (4,), (4096,), {"BLOCK": 1024}), (x, y), (0.3,)
    fixed, constants = (64, 96, 96), {"HAS_BIAS": False, "BLOCK": 128}
    yield "no bias", launch.Launch(maybe, (64,), fixed, constants, {"num_warps": 2}), (h, None, h.clone()), (1e-6,)
    constants = {**constants, "HAS_BIAS": True}
    yield "bias", launch.Launch(maybe, (8, 4, 2), fixed, constants), (h, b, h.clone()), (1e-6,)
    own = {"arrange": lambda *given: ((*given, None),)}
    fixed = ((4096, 1), 1 << 33, True)
    yield "tuples", launch.Launch(tuples, (4,), fixed, {"FORM": (1024, "none", True)}, **own), (x, y), ()


def pretend(vendor: str, library: str):
    """Make Triton's driver of ``vendor`` the active one, above ``library``; gives (library, list of signatures)."""
    # Loaded by everybody's name first, so that whoever asks for a driver gets this one.
    pretended = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    if vendor == "cuda":
        triton.knobs.nvidia.libcuda_path = str(Path(library).parent)
        from triton.backends.nvidia.driver import CudaDriver as Driver
        from triton.backends.nvidia.driver import CudaLauncher as Launcher

        target = GPUTarget("cuda", 90, 32)
    else:
        triton.knobs.amd.libhip_path = library
        from triton.backends.amd.driver import HIPDriver as Driver
        from triton.backends.amd.driver import HIPLauncher as Launcher

        target = GPUTarget("hip", "gfx942", 64)
    active = Driver()
    active.get_current_device = lambda: 0
    active.get_current_target = lambda: target
    active.utils.get_device_properties = lambda _: {"max_shared_mem": 65536, "multiprocessor_count": 304}
    driver.set_active(active)
    signatures, initialise = [], Launcher.__init__

    def counted(self, source, metadata):
        initialise(self, source, metadata)
        flat, in_c = [], self.launch

        def collect(types):
            for each in types:
                collect(each) if isinstance(each, tuple) else flat.append(each)

        collect(source.signature.values())
        signature = [each for each in flat if each != "constexpr"]

        def note(*arguments):
            # After the kernel's own come two addresses of memory that Triton may add.
            pretended.expect(len(signature) + 2)
            signatures.append(signature)
            return in_c(*arguments)

        self.launch = note

    Launcher.__init__ = counted
    return pretended, active, signatures


def launches(pretended, signatures) -> list:
    """What the driver was asked since the last time."""
    notes = (ctypes.c_int64 * 65536)()
    end, at, found = pretended.take(notes), 0, []
    while at < end:
        count, function, *numbers = notes[at : at + HEAD]
        types = [*signatures[len(found)], "*", "*"]
        values = notes[at + HEAD : at + HEAD + count]
        cut = [struct.pack("<q", v)[: BYTES.get(t, 8)].hex() for t, v in zip(types, values, strict=True)]
        found.append({"function": function, "numbers": numbers[:-1], "stream": numbers[-1], "parameters": cut})
        at += HEAD + count
    if len(found) != len(signatures):
        raise SystemExit(f"{len(signatures)} launches, {len(found)} of them reached the driver")
    signatures.clear()
    return found


def main(vendor: str, library: str) -> None:
    pretended, active, signatures = pretend(vendor, library)
    short, make = [0], direct.call_of

    def call_of(*arguments):
        call = make(*arguments)

        def counted(*given):
            short[0] += 1
            call(*given)

        return counted

    launch.call_of = call_of
    stream = [FIRST]
    active.get_current_stream = lambda _: stream[0]
    results = {}
    for name, plan, tensors, floats in cases():
        for stream[0] in (FIRST, FIRST, SECOND):
            plan(*tensors, floats=floats)
        found = launches(pretended, signatures)
        addresses = [struct.pack("<q", t.data_ptr()).hex() for t in tensors if t is not None]
        results[name] = {"launches": found, "short": short[0], "addresses": addresses}
        short[0] = 0
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
