# SPDX-License-Identifier: MIT
"""The rules of an instance: every one of Composable Kernel for this struct, with its file, and what it forgets.

CK says "wrong!" at compile time, or answers false at run time. :func:`check` names the parameter, the rule, the file in
CK, and a value that would do. Some rules are ours: CK lets an instance through that no MI300X can launch, one that
loses elements, and one whose NXdlPerWave it silently replaces. Source: CK 1.2.0, include/ck, files as given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
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
        """Return one line."""
        own = "" if self.by_ck else ", not checked by CK"
        fix = f"; {self.fix} would do" if self.fix else ""
        return f"{self.parameter}={self.value}: {self.rule} ({self.file}{own}){fix}"


def _nearest(now: int, good: Callable[[int], bool], among: Sequence[int]) -> str:
    fitting = [n for n in among if good(n)]
    return str(min(fitting, key=lambda n: (abs(math.log2(n / max(now, 1))), n))) if fitting else ""


POWERS = tuple(2**n for n in range(11))
#: Threads of a workgroup that CK's kernels are compiled for; the chip could take 1,024.
#: Source: ck.hpp of CK 1.2.0; https://github.com/ROCm/composable_kernel/issues/1652 and 558 are launches of more.
MAX_THREADS = 256
#: Registers of a lane: the 2 of CK's __launch_bounds__(256, 2) is, in HIP, the waves that a SIMD must be able to hold
#: (https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html), of its 512.
MAX_REGISTERS = 512 // 2

_NAMES = tuple(f.name for f in fields(GemmInstance) if f.type in ("int", "Lengths3", "Lengths4"))


def _positive(i: GemmInstance) -> Iterator[Refusal]:
    for name in _NAMES:
        value = getattr(i, name)
        numbers = value if isinstance(value, tuple) else (value,)
        least = 0 if "Extra" in name or "Order" in name or "VectorDim" in name else 1
        if bad := [n for n in numbers if not isinstance(n, int) or not least <= n <= 1 << 20]:
            yield Refusal(name, value, f"{bad[0]} is not from {least} to {1 << 20:,}", DEVICE, str(least or 1))
        if "Order" in name and sorted(numbers) != [0, 1, 2]:
            yield Refusal(name, value, "not an order of the dimensions 0, 1, 2", DEVICE, "(1, 0, 2)")


def _operation(i: GemmInstance) -> Iterator[Refusal]:
    for name in ("AElementwiseOperation", "BElementwiseOperation"):
        if getattr(i, name) != "PassThrough":
            yield Refusal(name, getattr(i, name), "known here is PassThrough alone", DEVICE, "PassThrough", False)
    if len(i.DsLayout) != len(i.DsDataType):
        yield Refusal("DsLayout", i.DsLayout, f"{len(i.DsDataType)} types of D need as many layouts", DEVICE)
    known = OPERATIONS.get(i.CDEElementwiseOperation)
    if known is None:
        yield Refusal(
            "CDEElementwiseOperation",
            i.CDEElementwiseOperation,
            f"known here are {', '.join(OPERATIONS)}",
            DEVICE,
            "",
            False,
        )
    elif known.ds != len(i.DsDataType):
        yield Refusal(
            "CDEElementwiseOperation",
            i.CDEElementwiseOperation,
            f"takes {known.ds} D, and DsDataType has {len(i.DsDataType)}",
            DEVICE,
        )


def _matrix_instruction(i: GemmInstance) -> Iterator[Refusal]:
    for name in ("MPerXDL", "NPerXDL"):
        if getattr(i, name) not in (4, 8, 16, 32, 64):
            yield Refusal(name, getattr(i, name), "4, 8, 16, 32 or 64", f"{XDL}:1842", "32")
    if i.NPerXDL < i.MPerXDL:
        yield Refusal("NPerXDL", i.NPerXDL, f"at least MPerXDL={i.MPerXDL}", f"{XDL}:1800", str(i.MPerXDL))
    if mfma_of(i.compute_type, i.MPerXDL, i.NPerXDL) is None:
        yield Refusal(
            "MPerXDL",
            i.MPerXDL,
            f"gfx942 has no {i.MPerXDL} x {i.NPerXDL} instruction for {i.compute_type} (ComputeDataType)",
            f"{XDL}:1230",
            "32 for both",
        )
    whole = i.compute_type == "I8"
    if (i.AccDataType == "I32") != whole or i.AccDataType not in ("I32", "F32"):
        need = "I32" if whole else "F32"
        yield Refusal("AccDataType", i.AccDataType, f"products of {i.compute_type} add up in {need}", XDL, need)


def _tile(i: GemmInstance) -> Iterator[Refusal]:
    if i.BlockSize > MAX_THREADS:
        yield Refusal(
            "BlockSize",
            i.BlockSize,
            f"CK compiles this kernel with __launch_bounds__({MAX_THREADS}, 2), so a launch of more threads fails",
            "ck.hpp, CK_MAX_THREAD_PER_BLOCK",
            str(MAX_THREADS),
            False,
        )
    if not i.MWaves:
        yield Refusal(
            "MXdlPerWave",
            i.MXdlPerWave,
            f"MPerBlock={i.MPerBlock} is less than MXdlPerWave x MPerXDL",
            f"{BASE}:60",
            _nearest(i.MXdlPerWave, lambda n: i.MPerBlock // (n * i.MPerXDL) > 0, POWERS),
        )
        return
    if i.MPerBlock % (i.MPerXDL * i.MXdlPerWave):
        yield Refusal(
            "MPerBlock",
            i.MPerBlock,
            f"a multiple of MPerXDL x MXdlPerWave = {i.MPerXDL * i.MXdlPerWave}",
            f"{GRID}:341",
            str(i.MWaves * i.MPerXDL * i.MXdlPerWave),
        )
    used = i.NXdlPerWave64
    if not used:
        good = _nearest(
            i.BlockSize, lambda n: i.NXdlPerWave_for(n) > 0, [WAVE * w for w in range(1, MAX_THREADS // WAVE + 1)]
        )
        yield Refusal(
            "BlockSize",
            i.BlockSize,
            f"the waves that are left for N ({i.waves} // {i.MWaves} along M) do "
            f"not share NPerBlock={i.NPerBlock} in pieces of NPerXDL={i.NPerXDL}",
            f"{BASE}:60",
            good,
        )
        return
    if i.BlockSize != i.MWaves * i.NWaves * WAVE:
        yield Refusal(
            "BlockSize",
            i.BlockSize,
            f"MWaves x NWaves x 64 = {i.MWaves} x {i.NWaves} x 64",
            "tensor_operation/gpu/block/blockwise_gemm_xdlops.hpp:175",
            str(i.MWaves * i.NWaves * WAVE),
        )
    if i.NXdlPerWave != used:
        yield Refusal(
            "NXdlPerWave",
            i.NXdlPerWave,
            f"CK ignores it and takes {used}, which follows from BlockSize",
            f"{BASE}:60",
            str(used),
            False,
        )


def _depth(i: GemmInstance) -> Iterator[Refusal]:
    for name, k1 in (("AK1", i.AK1), ("BK1", i.BK1)):
        if i.KPerBlock % k1:
            yield Refusal(
                name,
                k1,
                f"KPerBlock={i.KPerBlock} is no multiple of it",
                f"{GRID}:345",
                _nearest(k1, lambda n: i.KPerBlock % n == 0, POWERS),
            )
    if i.mfma is None or i.KPerBlock % i.AK1 or i.KPerBlock % i.BK1:
        return
    if i.KPack % i.mfma.k_per_blk:
        yield Refusal(
            "AK1",
            i.AK1,
            f"KPack = lcm(AK1, BK1) = {i.KPack} is no multiple of the {i.mfma.k_per_blk} that "
            f"a lane gives to one {i.mfma.name}",
            f"{XDL}:1850",
            str(i.mfma.k_per_blk),
        )
    if i.KPerBlock % i.k_lanes or i.KPerThread % i.KPack:
        need = i.KPack * i.k_lanes
        yield Refusal(
            "KPerBlock",
            i.KPerBlock,
            f"a multiple of KPack x lanes along K = {i.KPack} x {i.k_lanes}",
            f"{READ}:1295",
            str(max(1, round(i.KPerBlock / need)) * need),
        )


def _transfer_rules(i: GemmInstance, x: str, dims: str, whole: tuple[int, int, int], layout: str) -> Iterator[Refusal]:
    cluster_name = f"{x}BlockTransferThreadClusterLengths_{dims}"
    cluster = getattr(i, cluster_name)
    vector_name, vector_dim = f"{x}BlockTransferSrcScalarPerVector", getattr(i, f"{x}BlockTransferSrcVectorDim")
    vector, write_name = getattr(i, vector_name), f"{x}BlockTransferDstScalarPerVector_{x}K1"
    write, k_by_rows = getattr(i, write_name), (layout == "Row") == (x == "A")
    if vector_dim != (need := 2 if k_by_rows else 1):
        yield Refusal(
            f"{x}BlockTransferSrcVectorDim",
            vector_dim,
            f"{x} by {'rows' if layout == 'Row' else 'columns'} is contiguous along dimension {need}",
            f"{DEVICE}, IsSupported",
            str(need),
        )
    if vector not in VECTORS:
        yield Refusal(
            vector_name,
            vector,
            "a load takes 1, 2, 4, 8 or 16 elements",
            f"{BUFFER}:244",
            _nearest(vector, lambda n: n <= 16, POWERS),
        )
    if bad := next((d for d in range(3) if whole[d] % cluster[d]), None) is not None:
        d = next(d for d in range(3) if whole[d] % cluster[d])
        good = _nearest(cluster[d], lambda n: whole[d] % n == 0, POWERS)
        fixed = (*cluster[:d], int(good), *cluster[d + 1 :]) if good else ""
        yield Refusal(
            cluster_name,
            cluster,
            f"{whole[d]} in dimension {d} of the tile {whole} is no multiple of {cluster[d]}",
            f"{COPY}:75",
            str(fixed),
        )
    if math.prod(cluster) > i.BlockSize:
        yield Refusal(cluster_name, cluster, f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}", f"{COPY}:79")
    if bad or vector_dim not in (1, 2):
        return
    piece = tuple(w // c for w, c in zip(whole, cluster, strict=True))
    if piece[vector_dim] % vector:
        yield Refusal(
            vector_name,
            vector,
            f"a thread has {piece[vector_dim]} elements along dimension {vector_dim}, no multiple of it",
            f"{THREAD}:137",
            _nearest(vector, lambda n: piece[vector_dim] % n == 0, VECTORS),
        )
    if piece[2] % write:
        yield Refusal(
            write_name,
            write,
            f"a thread has {piece[2]} elements of K1, and the rest of the division is never written",
            THREAD,
            _nearest(write, lambda n: piece[2] % n == 0, VECTORS),
            False,
        )


def _divides(whole: int, part: int) -> bool:
    return whole % part == 0


def _epilogue_rules(i: GemmInstance) -> Iterator[Refusal]:
    m, n = "CShuffleMXdlPerWavePerShuffle", "CShuffleNXdlPerWavePerShuffle"
    for name, all_of_them in ((m, i.MXdlPerWave), (n, i.NXdlPerWave64)):
        if all_of_them % (now := getattr(i, name)):
            yield Refusal(
                name,
                now,
                f"{all_of_them} matrix tiles of a wave are no multiple of it",
                f"{GRID}:729",
                _nearest(now, partial(_divides, all_of_them), POWERS),
            )
    name = "CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock"
    cluster, (rows, columns) = i.CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock, i.shuffle_slice
    vector = i.CDEBlockTransferScalarPerVector_NPerBlock
    whole = (1, rows, 1, columns)
    if any(w % c for w, c in zip(whole, cluster, strict=True)):
        yield Refusal(
            name,
            cluster,
            f"the slice {whole} of the epilogue is no multiple of it",
            f"{STORE}:80",
            _store_cluster(i, rows, columns, vector),
        )
    elif columns // cluster[3] % vector:
        yield Refusal(
            "CDEBlockTransferScalarPerVector_NPerBlock",
            vector,
            f"a thread has {columns // cluster[3]} columns of the slice, no multiple of it",
            f"{THREAD_STORE}:76",
            _nearest(vector, lambda k: columns // cluster[3] % k == 0, VECTORS),
        )
    if math.prod(cluster) > i.BlockSize:
        yield Refusal(
            name,
            cluster,
            f"{math.prod(cluster)} threads, and BlockSize={i.BlockSize}",
            f"{STORE}:84",
            _store_cluster(i, rows, columns, vector),
        )
    if vector not in VECTORS:
        yield Refusal(
            "CDEBlockTransferScalarPerVector_NPerBlock",
            vector,
            "a store takes 1, 2, 4, 8 or 16 elements",
            f"{BUFFER}:368",
            _nearest(vector, lambda k: k <= 16, POWERS),
        )


def _store_cluster(i: GemmInstance, rows: int, columns: int, vector: int) -> str:
    across = next((c for c in (32, 16, 8, 4, 2, 1) if columns % (c * vector) == 0 and i.BlockSize % c == 0), 0)
    down = math.gcd(i.BlockSize // across, rows) if across else 0
    return str((1, down, 1, across)) if down else ""


def _lds_rules(i: GemmInstance) -> Iterator[Refusal]:
    limit = ARCHS["gfx942"].lds_bytes
    if i.lds_bytes > limit:
        good = _nearest(
            i.KPerBlock, lambda n: i.but(KPerBlock=n).lds_bytes <= limit and n % i.AK1 == 0 == n % i.BK1, POWERS
        )
        yield Refusal(
            "KPerBlock",
            i.KPerBlock,
            f"{i.lds_bytes:,} bytes of LDS, and a workgroup has {limit:,}",
            f"{GRID}, GetSharedMemoryNumberOfByte",
            good,
            False,
        )


def _problem(i: GemmInstance, p: Problem) -> Iterator[Refusal]:
    where = f"{DEVICE}, IsSupported"
    vectors = [
        ("K" if i.ALayout == "Row" else "M", i.ABlockTransferSrcScalarPerVector, "ABlockTransferSrcScalarPerVector"),
        ("K" if i.BLayout == "Col" else "N", i.BBlockTransferSrcScalarPerVector, "BBlockTransferSrcScalarPerVector"),
        ("N", i.CDEBlockTransferScalarPerVector_NPerBlock, "CDEBlockTransferScalarPerVector_NPerBlock"),
    ]
    for name, vector, parameter in vectors:
        if (size := getattr(p, name)) % vector:
            yield Refusal(
                name,
                size,
                f"no multiple of {parameter}={vector}; padding of the tile does not help",
                where,
                str(-(-size // vector) * vector),
            )
    for name, layout in (("DsLayout", i.DsLayout), ("ELayout", (i.ELayout,))):
        if any(x != "Row" for x in layout):
            yield Refusal(name, getattr(i, name), "only Row is supported", where, "Row")
    for name, size, tile in zip("MNK", i.padded(p), (i.MPerBlock, i.NPerBlock, i.KPerBlock), strict=True):
        if size % tile:
            yield Refusal(
                name,
                size,
                f"no multiple of {name}PerBlock={tile}, and GemmSpec={i.GemmSpec} does not pad it",
                f"{GRID}, CheckValidity",
                f"{-(-size // tile) * tile}, or GemmSpec=MNKPadding",
            )
    loops = i.padded(p)[2] // i.KPerBlock
    if (i.PipelineVer == "v2" or i.NumGemmKPrefetchStage == 2) and loops % 2:
        yield Refusal(
            "K",
            p.K,
            f"{loops} turns of the loop, and this pipeline takes an even number",
            "tensor_operation/gpu/grid/gridwise_gemm_pipeline_v1.hpp:119",
            str((loops + 1) * i.KPerBlock),
        )
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


def _pipeline(i: GemmInstance) -> Iterator[Refusal]:
    if i.NumGemmKPrefetchStage not in (1, 2) or (i.LoopSched == "Interwave" and i.NumGemmKPrefetchStage != 1):
        yield Refusal("NumGemmKPrefetchStage", i.NumGemmKPrefetchStage, "1 or 2, and 1 for Interwave", PIPELINE, "1")


def check(instance: GemmInstance, problem: Problem | None = None) -> list[Refusal]:
    """Return every rule that ``instance``, or ``problem`` for it, breaks; an empty list when CK would accept it.

    Takes well below a millisecond. Rules that need numbers which are themselves impossible are left out.

    >>> print(check(GemmInstance(AK1=3))[0])  # doctest: +ELLIPSIS
    AK1=3: KPerBlock=32 is no multiple of it (tensor_operation/gpu/grid/...:345); 4 would do
    >>> [r.parameter for r in check(GemmInstance(), Problem(1000, 1020, 1020))]
    ['K', 'K', 'N']
    """
    found = [*_positive(instance)]
    if found:
        return found
    for rules in (_operation, _matrix_instruction, _tile):
        found += rules(instance)
    found += _depth(instance)
    a, b = ("A", "AK0_M_AK1", instance.a_slice), ("B", "BK0_N_BK1", instance.b_slice)
    for x, dims, whole in (a, b):
        found += _transfer_rules(instance, x, dims, whole, instance.ALayout if x == "A" else instance.BLayout)
    found += _pipeline(instance)
    if instance.MWaves and instance.NXdlPerWave64:
        found += _epilogue_rules(instance)
        found += _lds_rules(instance)
    return [*found, *_problem(instance, problem)] if problem is not None else found


def require(instance: GemmInstance, problem: Problem | None = None) -> None:
    """Raise the first refusal of :func:`check`, if there is one.

    Raises:
        CkError: its first refusal.
    """
    if refusals := check(instance, problem):
        more = f" (and {len(refusals) - 1} more; see check())" if len(refusals) > 1 else ""
        raise CkError(f"{refusals[0]}{more}")
