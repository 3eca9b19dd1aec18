# SPDX-License-Identifier: MIT
"""The rules of an instance: every one of Composable Kernel for this struct, with its file, and what it forgets.

CK says "wrong!" at compile time, or answers false at run time. :func:`check` names the parameter, the rule, the file in
CK, and a value that would do. Some rules are ours: CK lets an instance through that no MI300X can launch, one that
loses elements, and one whose NXdlPerWave it silently replaces. Source: CK 1.2.0, include/ck, files as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cdna.arch import ARCHS
from rocm_guide.tune.ck.instance import BYTES, WAVE, CkError, GemmInstance, Problem, mfma_of
from rocm_guide.tune.ck.operations import OPERATIONS

__all__ = ["Refusal", "check", "require"]

# Files of CK 1.2.0, below include/ck.
GRID = "tensor_operation/gpu/grid/gridwise_gemm_multiple_d_xdl_cshuffle.hpp"
DEVICE = "tensor_operation/gpu/device/impl/device_gemm_multiple_d_xdl_cshuffle.hpp"
BASE = "tensor_operation/gpu/device/device_base.hpp"
COPY = "tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v4r1.hpp"
STORE = "tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v7.hpp"
THREAD = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer_v3r1.hpp"
THREAD_STORE = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer_v7.hpp"
READ = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer.hpp"
XDL = "tensor_operation/gpu/warp/xdlops_gemm.hpp"
BUFFER = "utility/amd_buffer_addressing_builtins.hpp"
PIPELINE = "tensor_operation/gpu/grid/gridwise_gemm_pipeline_selector.hpp"

VECTORS = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Refusal:
    """One rule that an instance, or a problem for it, does not obey.

    Attributes:
        parameter, value: what is wrong.
        rule: what it should be.
        file: where CK says so, below include/ck.
        fix: a value that obeys this rule, as text; "" if no change of this parameter alone helps.
        by_ck: whether CK itself refuses; False for a rule that only we check.
    """

    parameter: str
    value: Any
    rule: str
    file: str
    fix: str = ""
    by_ck: bool = True

    def __str__(self) -> str:
        own = "" if self.by_ck else ", not checked by CK"
        fix = f"; {self.fix} would do" if self.fix else ""
        return f"{self.parameter}={self.value}: {self.rule} ({self.file}{own}){fix}"


POWERS = tuple(2**n for n in range(11))


def _nearest(now: int, fitting: Sequence[int]) -> str:
    return str(min(fitting, key=lambda n: (abs(math.log2(n / max(now, 1))), n))) if fitting else ""


#: Threads of a workgroup that CK's kernels are compiled for; the chip could take 1,024.
#: Source: ck.hpp of CK 1.2.0; https://github.com/ROCm/composable_kernel/issues/1652 and 558 are launches of more.
MAX_THREADS = 256
#: Registers of a lane: the 2 of CK's __launch_bounds__(256, 2) is, in HIP, the waves that a SIMD must be able to hold
#: (https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html), of its 512.
MAX_REGISTERS = 512 // 2

_NAMES = tuple(f.name for f in fields(GemmInstance) if f.type in ("int", "Lengths3", "Lengths4"))
#: (parameter, rule, file) and, where there are such, a value that would do, and False: only we check it.
_Broken = Iterator[tuple[Any, ...]]


def _positive(i: GemmInstance) -> _Broken:
    for name in _NAMES:
        value = getattr(i, name)
        numbers = value if isinstance(value, tuple) else (value,)
        least = 0 if "Extra" in name or "Order" in name or "VectorDim" in name else 1
        if bad := [n for n in numbers if not isinstance(n, int) or not least <= n <= 1 << 20]:
            yield name, f"{bad[0]} is not from {least} to {1 << 20:,}", DEVICE, least or 1
        if "Order" in name and sorted(numbers) != [0, 1, 2]:
            yield name, "not an order of the dimensions 0, 1, 2", DEVICE, (1, 0, 2)


def _operation(i: GemmInstance) -> _Broken:
    for name in ("AElementwiseOperation", "BElementwiseOperation"):
        if getattr(i, name) != "PassThrough":
            yield name, "known here is PassThrough alone", DEVICE, "PassThrough", False
    if len(i.DsLayout) != len(i.DsDataType):
        yield "DsLayout", f"{len(i.DsDataType)} types of D need as many layouts", DEVICE
    known = OPERATIONS.get(i.CDEElementwiseOperation)
    if known is None:
        yield "CDEElementwiseOperation", f"known here are {', '.join(OPERATIONS)}", DEVICE, "", False
    elif known.ds != len(i.DsDataType):
        yield "CDEElementwiseOperation", f"takes {known.ds} D, and DsDataType has {len(i.DsDataType)}", DEVICE


def _matrix_instruction(i: GemmInstance) -> _Broken:
    for name in ("MPerXDL", "NPerXDL"):
        if getattr(i, name) not in (4, 8, 16, 32, 64):
            yield name, "4, 8, 16, 32 or 64", f"{XDL}:1842", 32
    if i.NPerXDL < i.MPerXDL:
        yield "NPerXDL", f"at least MPerXDL={i.MPerXDL}", f"{XDL}:1800", i.MPerXDL
    if mfma_of(i.compute_type, i.MPerXDL, i.NPerXDL) is None:
        rule = f"gfx942 has no {i.MPerXDL} x {i.NPerXDL} instruction for {i.compute_type} (ComputeDataType)"
        yield "MPerXDL", rule, f"{XDL}:1230", "32 for both"
    whole = i.compute_type == "I8"
    if (i.AccDataType == "I32") != whole or i.AccDataType not in ("I32", "F32"):
        need = "I32" if whole else "F32"
        yield "AccDataType", f"products of {i.compute_type} add up in {need}", XDL, need


def _tile(i: GemmInstance) -> _Broken:
    if i.BlockSize > MAX_THREADS:
        rule = f"CK compiles this kernel with __launch_bounds__({MAX_THREADS}, 2), so a launch of more threads fails"
        yield "BlockSize", rule, "ck.hpp, CK_MAX_THREAD_PER_BLOCK", MAX_THREADS, False
    if not i.MWaves:
        fix = _nearest(i.MXdlPerWave, [n for n in POWERS if i.MPerBlock // (n * i.MPerXDL) > 0])
        yield "MXdlPerWave", f"MPerBlock={i.MPerBlock} is less than MXdlPerWave x MPerXDL", f"{BASE}:60", fix
        return
    each = i.MPerXDL * i.MXdlPerWave
    if i.MPerBlock % each:
        yield "MPerBlock", f"a multiple of MPerXDL x MXdlPerWave = {each}", f"{GRID}:341", i.MWaves * each
    used = i.NXdlPerWave64
    if not used:
        waves = [WAVE * w for w in range(1, MAX_THREADS // WAVE + 1)]
        rule = (
            f"the waves that are left for N ({i.waves} // {i.MWaves} along M) do "
            f"not share NPerBlock={i.NPerBlock} in pieces of NPerXDL={i.NPerXDL}"
        )
        yield "BlockSize", rule, f"{BASE}:60", _nearest(i.BlockSize, [n for n in waves if i.NXdlPerWave_for(n) > 0])
        return
    if i.BlockSize != (threads := i.MWaves * i.NWaves * WAVE):
        rule = f"MWaves x NWaves x 64 = {i.MWaves} x {i.NWaves} x 64"
        yield "BlockSize", rule, "tensor_operation/gpu/block/blockwise_gemm_xdlops.hpp:175", threads
    if i.NXdlPerWave != used:
        rule = f"CK ignores it and takes {used}, which follows from BlockSize"
        yield "NXdlPerWave", rule, f"{BASE}:60", used, False


def _depth(i: GemmInstance) -> _Broken:
    for name, k1 in (("AK1", i.AK1), ("BK1", i.BK1)):
        if i.KPerBlock % k1:
            fix = _nearest(k1, [n for n in POWERS if i.KPerBlock % n == 0])
            yield name, f"KPerBlock={i.KPerBlock} is no multiple of it", f"{GRID}:345", fix
    if i.mfma is None or i.KPerBlock % i.AK1 or i.KPerBlock % i.BK1:
        return
    if i.KPack % (one := i.mfma.k_per_blk):
        lane = f"the {one} that a lane gives to one {i.mfma.name}"
        yield "AK1", f"KPack = lcm(AK1, BK1) = {i.KPack} is no multiple of {lane}", f"{XDL}:1850", one
    if i.KPerBlock % i.k_lanes or i.KPerThread % i.KPack:
        need = i.KPack * i.k_lanes
        fix = str(max(1, round(i.KPerBlock / need)) * need)
        yield "KPerBlock", f"a multiple of KPack x lanes along K = {i.KPack} x {i.k_lanes}", f"{READ}:1295", fix


def _transfer_rules(i: GemmInstance, x: str, dims: str, whole: tuple[int, int, int], layout: str) -> _Broken:
    cluster_name = f"{x}BlockTransferThreadClusterLengths_{dims}"
    cluster = getattr(i, cluster_name)
    dim_name, vector_name = f"{x}BlockTransferSrcVectorDim", f"{x}BlockTransferSrcScalarPerVector"
    write_name = f"{x}BlockTransferDstScalarPerVector_{x}K1"
    vector_dim, vector, write = (getattr(i, name) for name in (dim_name, vector_name, write_name))
    if vector_dim != (need := 2 if (layout == "Row") == (x == "A") else 1):
        rule = f"{x} by {'rows' if layout == 'Row' else 'columns'} is contiguous along dimension {need}"
        yield dim_name, rule, f"{DEVICE}, IsSupported", need
    if vector not in VECTORS:
        yield vector_name, "a load takes 1, 2, 4, 8 or 16 elements", f"{BUFFER}:244", _nearest(vector, VECTORS)
    bad = next((d for d in range(3) if whole[d] % cluster[d]), None)
    if bad is not None:
        good = _nearest(cluster[bad], [n for n in POWERS if whole[bad] % n == 0])
        rule = f"{whole[bad]} in dimension {bad} of the tile {whole} is no multiple of {cluster[bad]}"
        fix = str((*cluster[:bad], int(good), *cluster[bad + 1 :])) if good else ""
        yield cluster_name, rule, f"{COPY}:75", fix
    if math.prod(cluster) > i.BlockSize:
        yield cluster_name, f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}", f"{COPY}:79"
    if bad is not None or vector_dim not in (1, 2):
        return
    piece = tuple(w // c for w, c in zip(whole, cluster, strict=True))
    if piece[vector_dim] % vector:
        rule = f"a thread has {piece[vector_dim]} elements along dimension {vector_dim}, no multiple of it"
        fix = _nearest(vector, [n for n in VECTORS if piece[vector_dim] % n == 0])
        yield vector_name, rule, f"{THREAD}:137", fix
    if piece[2] % write:
        rule = f"a thread has {piece[2]} elements of K1, and the rest of the division is never written"
        yield write_name, rule, THREAD, _nearest(write, [n for n in VECTORS if piece[2] % n == 0]), False


def _epilogue_rules(i: GemmInstance) -> _Broken:
    m, n = "CShuffleMXdlPerWavePerShuffle", "CShuffleNXdlPerWavePerShuffle"
    for name, tiles in ((m, i.MXdlPerWave), (n, i.NXdlPerWave64)):
        if tiles % (now := getattr(i, name)):
            fix = _nearest(now, [n for n in POWERS if tiles % n == 0])
            yield name, f"{tiles} matrix tiles of a wave are no multiple of it", f"{GRID}:729", fix
    name = "CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock"
    vector_name = "CDEBlockTransferScalarPerVector_NPerBlock"
    cluster, vector, (rows, columns) = getattr(i, name), getattr(i, vector_name), i.shuffle_slice
    whole, each = (1, rows, 1, columns), columns // cluster[3]
    if any(w % c for w, c in zip(whole, cluster, strict=True)):
        fix = _store_cluster(i, rows, columns, vector)
        yield name, f"the slice {whole} of the epilogue is no multiple of it", f"{STORE}:80", fix
    elif each % vector:
        fix = _nearest(vector, [k for k in VECTORS if each % k == 0])
        yield vector_name, f"a thread has {each} columns of the slice, no multiple of it", f"{THREAD_STORE}:76", fix
    if math.prod(cluster) > i.BlockSize:
        fix = _store_cluster(i, rows, columns, vector)
        yield name, f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}", f"{STORE}:84", fix
    if vector not in VECTORS:
        yield vector_name, "a store takes 1, 2, 4, 8 or 16 elements", f"{BUFFER}:368", _nearest(vector, VECTORS)


def _store_cluster(i: GemmInstance, rows: int, columns: int, vector: int) -> str:
    across = next((c for c in (32, 16, 8, 4, 2, 1) if columns % (c * vector) == 0 and i.BlockSize % c == 0), 0)
    down = math.gcd(i.BlockSize // across, rows) if across else 0
    return str((1, down, 1, across)) if down else ""


def _lds_rules(i: GemmInstance) -> _Broken:
    limit = ARCHS["gfx942"].lds_bytes
    if i.lds_bytes > limit:
        fit = [n for n in POWERS if n % i.AK1 == 0 == n % i.BK1 and i.but(KPerBlock=n).lds_bytes <= limit]
        rule = f"{i.lds_bytes:,} bytes of LDS, and a workgroup has {limit:,}"
        fix = _nearest(i.KPerBlock, fit)
        yield "KPerBlock", rule, f"{GRID}, GetSharedMemoryNumberOfByte", fix, False


def _problem(i: GemmInstance, p: Problem) -> _Broken:
    where = f"{DEVICE}, IsSupported"
    store = "CDEBlockTransferScalarPerVector_NPerBlock"
    for name, parameter in (
        ("K" if i.ALayout == "Row" else "M", "ABlockTransferSrcScalarPerVector"),
        ("K" if i.BLayout == "Col" else "N", "BBlockTransferSrcScalarPerVector"),
        ("N", store),
    ):
        vector = getattr(i, parameter)
        if (size := getattr(p, name)) % vector:
            rule = f"no multiple of {parameter}={vector}; padding of the tile does not help"
            yield name, rule, where, -(-size // vector) * vector
    for name, layout in (("DsLayout", i.DsLayout), ("ELayout", (i.ELayout,))):
        if any(x != "Row" for x in layout):
            yield name, "only Row is supported", where, "Row"
    for name, size, tile in zip("MNK", i.padded(p), (i.MPerBlock, i.NPerBlock, i.KPerBlock), strict=True):
        if size % tile:
            rule = f"no multiple of {name}PerBlock={tile}, and GemmSpec={i.GemmSpec} does not pad it"
            yield name, rule, f"{GRID}, CheckValidity", f"{-(-size // tile) * tile}, or GemmSpec=MNKPadding"
    loops = i.padded(p)[2] // i.KPerBlock
    if (i.PipelineVer == "v2" or i.NumGemmKPrefetchStage == 2) and loops % 2:
        rule = f"{loops} turns of the loop, and this pipeline takes an even number"
        file = "tensor_operation/gpu/grid/gridwise_gemm_pipeline_v1.hpp:119"
        yield "K", rule, file, (loops + 1) * i.KPerBlock


def _extents(i: GemmInstance, p: Problem) -> Iterator[Refusal]:
    for name, elements, dtype in (
        ("A", _span(p.M, p.K, p.StrideA, i.ALayout), i.ADataType),
        ("B", _span(p.K, p.N, p.StrideB, i.BLayout), i.BDataType),
        ("E", _span(p.M, p.N, p.StrideE, i.ELayout), i.EDataType),
    ):
        if elements * BYTES[dtype] > 1 << 31 or elements >= 1 << 31:
            yield Refusal(name, f"{elements:,} elements", "a matrix has at most 2 GiB", f"{GRID}, CheckValidity")
    for name, stride, least in (
        ("StrideA", p.StrideA, p.K if i.ALayout == "Row" else p.M),
        ("StrideB", p.StrideB, p.N if i.BLayout == "Row" else p.K),
        ("StrideE", p.StrideE, p.N),
    ):
        if stride is not None and stride < least:
            yield Refusal(name, stride, f"less than {least}: rows would overlap", DEVICE, str(least), False)


def _span(rows: int, columns: int, stride: int | None, layout: str) -> int:
    lines, length = (rows, columns) if layout == "Row" else (columns, rows)
    return (lines - 1) * (stride or length) + length


def _pipeline(i: GemmInstance) -> _Broken:
    if i.NumGemmKPrefetchStage not in (1, 2) or (i.LoopSched == "Interwave" and i.NumGemmKPrefetchStage != 1):
        yield "NumGemmKPrefetchStage", "1 or 2, and 1 for Interwave", PIPELINE, 1


def check(instance: GemmInstance, problem: Problem | None = None) -> list[Refusal]:
    """Return every rule that ``instance``, or ``problem`` for it, breaks; an empty list when CK would accept it.

    Takes well below a millisecond. Rules that need numbers which are themselves impossible are left out.

    >>> print(check(GemmInstance(AK1=3))[0])  # doctest: +ELLIPSIS
    AK1=3: KPerBlock=32 is no multiple of it (tensor_operation/gpu/grid/...:345); 4 would do
    >>> [r.parameter for r in check(GemmInstance(), Problem(1000, 1020, 1020))]
    ['K', 'K', 'N']
    """
    i, found, more = instance, list(_positive(instance)), []
    if not found:
        found = [*_operation(i), *_matrix_instruction(i), *_tile(i), *_depth(i)]
        found += _transfer_rules(i, "A", "AK0_M_AK1", i.a_slice, i.ALayout)
        found += [*_transfer_rules(i, "B", "BK0_N_BK1", i.b_slice, i.BLayout), *_pipeline(i)]
        if i.MWaves and i.NXdlPerWave64:
            found += [*_epilogue_rules(i), *_lds_rules(i)]
        if problem is not None:
            found += _problem(i, problem)
            more = list(_extents(i, problem))
    refusals = []
    for name, rule, file, *rest in found:
        value = getattr(problem if hasattr(problem, name) else i, name)
        fix = str(rest[0]) if rest else ""
        refusals.append(Refusal(name, value, rule, file, fix, by_ck=len(rest) < 2))
    return [*refusals, *more]


def require(instance: GemmInstance, problem: Problem | None = None) -> None:
    """Raise the first refusal of :func:`check`, if there is one.

    Raises:
        CkError: its first refusal.
    """
    if refusals := check(instance, problem):
        more = f" (and {len(refusals) - 1} more; see check())" if len(refusals) > 1 else ""
        raise CkError(f"{refusals[0]}{more}")
