# SPDX-License-Identifier: MIT
"""The libraries that run HIP kernels on a CPU: built for the baseline, complete, and built again when damaged."""

from __future__ import annotations

import ctypes
import re
import struct

import pytest
import torch

from cdna.base import cache_folder
from cdna.elf import ElfFile
from cdna.hip.cpu_library import baseline, build_cpu, open_cpu
from cdna.hip.toolchain import HipError, find_clang, sources

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[baseline().processor]
HERE = [(name, baseline().processor) for name in sources()]
DYNAMIC, NEEDED = 6, 1
# What a system's start-up code may ask for and does without (weak symbols).
OPTIONAL = {"_ITM_registerTMCloneTable", "_ITM_deregisterTMCloneTable", "__gmon_start__"}


def wanted(elf: ElfFile) -> tuple[set[str], set[str], set[str]]:
    """Libraries, undefined symbols, and releases of the C library that a shared library asks for."""
    table = next(s for s in elf.sections if s.kind == DYNAMIC)
    names = elf.part(elf.sections[table.link].offset, elf.sections[table.link].size)
    entries = struct.iter_unpack("<QQ", elf.part(table.offset, table.size))
    needed = {names[at : names.index(b"\0", at)].decode() for tag, at in entries if tag == NEEDED}
    releases = {x.decode() for x in re.findall(rb"GLIBC_([0-9.]+)", names)}
    return needed, {s.name for s in elf.symbols() if s.name and not s.section} - OPTIONAL, releases


@pytest.mark.parametrize(("name", "machine"), [*HERE, ("swiglu_fp8", OTHER)])
def test_a_library_needs_the_c_library_and_libm_only(name, machine):
    if machine == OTHER and "ziglang" not in find_clang():
        pytest.skip("only zig builds for another processor")
    needed, undefined, releases = wanted(ElfFile(build_cpu(name, machine).read_bytes()))
    assert needed == {"libc.so.6", "libm.so.6"}
    assert max(tuple(map(int, r.split("."))) for r in releases) <= (2, 28), "newer than the one torch is built for"
    assert undefined >= {"swapcontext"} and not any(s.startswith("_Z") for s in undefined)
    if machine != OTHER:
        libraries = [ctypes.CDLL(n) for n in sorted(needed)]
        assert not [s for s in undefined if not any(hasattr(x, s) for x in libraries)]
        assert open_cpu(name).guide_failure


PROBE = """
#include "guide.h"
#if defined(__AVX__) || defined(__F16C__) || defined(__FMA__) || defined(__ARM_FEATURE_BF16)
#error built for the processor at hand
#endif
#if defined(__ARM_FEATURE_ATOMICS) || (defined(__x86_64__) && !(defined(__SSE4_2__) && defined(__POPCNT__)))
#error not the baseline
#endif
extern "C" void narrow(const float* x, const double* d, f16* h, bf16* b, bf16* db, int n) {
    for (int i = 0; i < n; ++i) h[i] = (f16)x[i], b[i] = (bf16)x[i], db[i] = (bf16)d[i];
}
extern "C" void widen(const f16* h, const bf16* b, float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) x[i] = h[i], y[i] = b[i];
}
extern "C" void steps(const f16* a, const f16* b, const f16* c, f16* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = a[i] * b[i] + c[i];
}
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    source = tmp_path_factory.mktemp("probe") / "probe.hip"
    source.write_text(PROBE)
    return open_cpu(source)


def pointers(*tensors: torch.Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(t.data_ptr()) for t in tensors]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a[~a.isnan()], b[~b.isnan()])


def test_conversions_without_instructions_for_them_are_to_nearest_even(probe):
    """Every fp16 and bf16 number, all middles between them, what lies beside the middles, and a spread of all fp32."""
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    halves, brains = codes.view(torch.float16), codes.view(torch.bfloat16)
    x, y = torch.empty(2, len(codes))
    probe.widen(*pointers(halves, brains, x, y), len(codes))
    assert same(x, halves.float()) and same(y, brains.float())

    spread = torch.arange(-(2**31), 2**31, 9973, dtype=torch.int64).to(torch.int32).view(torch.float32)
    middles = torch.cat([x[:-1].double() + x[1:].double(), y[:-1].double() + y[1:].double()]).float() / 2
    beside = [torch.nextafter(middles, torch.full_like(middles, to)) for to in (-3e38, 3e38)]
    x = torch.cat([spread, x, y, middles, *beside]).contiguous()
    # In fp64 a number can lie beside a middle by less than fp32 can tell; rounded twice, it would land on the tie.
    d = x.double() * (1 + torch.tensor([0, 2**-52, -(2**-52), 2**-40])[torch.arange(len(x)) % 4].double())
    h, b, db = torch.empty(len(x), dtype=torch.float16), *torch.empty(2, len(x), dtype=torch.bfloat16)
    probe.narrow(*pointers(x, d, h, b, db), len(x))
    assert same(h, x.half()) and same(b, x.bfloat16()) and len(x) > 800_000
    up, down = ((torch.nextafter(d.float(), torch.full_like(x, to))).bfloat16() for to in (3e38, -3e38))
    nearest = torch.where((up.double() - d).abs() < (d - down.double()).abs(), up, down)
    clear = d.isfinite() & (up.double() - d != d - down.double()) & up.isfinite() & down.isfinite()
    assert torch.equal(db[clear], nearest[clear])
    assert same(db[~clear & (d == x)], x[~clear & (d == x)].bfloat16())


def test_arithmetic_in_fp16_is_rounded_after_every_operation(probe):
    """As on the GPU without contraction, whatever the CPU could do in one instruction."""
    a, b, c = torch.randn(3, 10_000, generator=torch.Generator().manual_seed(1)).half()
    out = torch.empty_like(a)
    probe.steps(*pointers(a, b, c, out), len(a))
    assert torch.equal(out, a * b + c)
    assert not torch.equal(out, (a.double() * b.double() + c.double()).half()), "the case tells nothing"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache of the test's own, in which only zig's C library and run-time library are there already."""
    zig = cache_folder() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("CDNA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "zig").symlink_to(zig)
    source = tmp_path / "small.hip"
    source.write_text('extern "C" int answer() { return 42; }\n')
    return source


def test_a_missing_function_is_named_when_the_library_is_built(empty_cache):
    empty_cache.write_text(
        'extern "C" int nobody_defines_this();\nextern "C" int f() { return nobody_defines_this(); }\n'
    )
    with pytest.raises(HipError, match=r"^small.hip for the CPU .*undefined.*nobody_defines_this") as caught:
        open_cpu(empty_cache)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["emptied", "cut", "cut by one byte", "one bit", "something else"])
def test_a_damaged_library_is_built_again(empty_cache, damage):
    library = build_cpu(empty_cache)
    whole = library.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    spoilt = {"emptied": b"", "cut": whole[:700], "cut by one byte": whole[:-1], "one bit": flipped}
    library.write_bytes(spoilt.get(damage, b"\x7fELF and then something else" * 50))
    assert open_cpu(empty_cache).answer() == 42
    assert build_cpu(empty_cache) == library and library.read_bytes() == whole
    when = library.stat().st_mtime_ns
    assert build_cpu(empty_cache).stat().st_mtime_ns == when, "a whole one is kept"


def test_its_folder_names_target_and_compiler(empty_cache):
    folder = build_cpu(empty_cache).parent
    assert folder.parent == cache_folder() / "hip"
    assert re.fullmatch(rf"{baseline().clang}-glibc2\.\d+-(zig-)?clang\d+\.\d+\.\d+\w*", folder.name)


def test_a_library_that_the_system_refuses_is_one_line(empty_cache, monkeypatch):
    def refuse(*_, **__):
        raise OSError("small.so: failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(HipError, match=r"failed to map segment.*CDNA_CACHE"):
        open_cpu(empty_cache)


def test_other_processors_and_systems_are_refused(monkeypatch):
    with pytest.raises(HipError, match="riscv64 with linux: the kernels run on x86_64 and aarch64"):
        baseline("riscv64")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(HipError, match="with darwin"):
        baseline()
