# SPDX-License-Identifier: MIT
"""Launch kernels through Triton's own launchers in C, with a pretended driver below them, and print what it was asked.

    python launches.py cuda|hip LIBRARY

Every case is called three times on the same tensors through ``fast``: by Triton's own way, which is remembered, and
twice by the short way, the second time on another stream. Prints JSON: for each case the three launches ([function,
grid, block, shared memory, stream, parameters]) and how often the short way was taken.
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

from rocm_guide.kernels import fast

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
def mixed(x_ptr, y_ptr, n, far, flag, FORM: tl.constexpr):
    BLOCK: tl.constexpr = FORM[0]
    at = (tl.program_id(0) + far) * FORM[1] + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.where(flag, value, -value), mask=at < n)


def cases():
    """(name, wrapper, arguments)"""

    def times(x, scale):
        y = torch.empty(x.shape, dtype=x.dtype)
        scaled[(4,)](x, y, 4096, 1.0 * scale, BLOCK=1024)
        return y

    def rows(x, bias, grid):
        y = torch.empty(x.shape, dtype=x.dtype)
        maybe[grid](x, bias, y, 64, 96, 96, 1e-6, HAS_BIAS=bias is not None, BLOCK=128, num_warps=2)
        return y

    def other(x):
        y = torch.empty(x.shape, dtype=x.dtype)
        mixed[(4,)](x, y, 4096, 1 << 33, True, FORM=(1024, 1, 8))
        return y

    x = torch.zeros(4096)
    h, b = torch.zeros(64, 96, dtype=torch.bfloat16), torch.zeros(96, dtype=torch.bfloat16)
    yield "float", times, (x, 0.3)
    yield "no bias", rows, (h, None, (64,))
    yield "bias", rows, (h, b, (8, 4, 2))
    yield "mixed", other, (x,)


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
    short, make = [0], fast.call_of

    def call_of(*arguments):
        call = make(*arguments)

        def counted(*given):
            short[0] += 1
            call(*given)

        return counted

    stream = [FIRST]
    active.get_current_stream = lambda _: stream[0]
    fast.call_of, fast.on_gpu, fast.current_device = call_of, lambda tensor: True, lambda: 0
    fast.stream_of, fast.allocate = lambda device: stream[0], torch._C._dynamo.guards._empty_strided_cpu
    results = {}
    for name, wrapper, arguments in cases():
        quick, made = fast.fast(wrapper), []
        for stream[0] in (FIRST, FIRST, SECOND):
            made.append(quick(*arguments))
        found = launches(pretended, signatures)
        for one, y in zip(found, made, strict=True):  # each call has a result of its own
            own = struct.pack("<q", y.data_ptr()).hex()
            one["parameters"] = ["result" if value == own else value for value in one["parameters"]]
        given = [struct.pack("<q", t.data_ptr()).hex() for t in arguments if isinstance(t, torch.Tensor)]
        results[name] = {"launches": found, "short": short[0], "addresses": [*given, "result"]}
        short[0] = 0
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
