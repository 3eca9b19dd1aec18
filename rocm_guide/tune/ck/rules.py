# SPDX-License-Identifier: MIT
"""The rules of an instance: every one of Composable Kernel for this struct, with its file, and what it forgets.

CK says "wrong!" at compile time, or answers false at run time. :func:`check` names the parameter, the rule, the file in
CK, and a value that would do. Some rules are ours: CK lets an instance through that no MI300X can launch, one that
loses elements, and one whose NXdlPerWave it silently replaces. Source: CK 1.2.0, include/ck, files as given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from rocm_guide.tune.ck.instance import BYTES, WAVE, CkError, GemmInstance, Problem
from rocm_guide.tune.ck.matrix import mfma_of
from rocm_guide.tune.ck.memory_rules import epilogue_rules, lds_rules, transfer_rules
from rocm_guide.tune.ck.operations import OPERATIONS
from rocm_guide.tune.ck.refusal import BASE, DEVICE, GRID, PIPELINE, POWERS, READ, XDL, Refusal, nearest

__all__ = ["Refusal", "check", "require"]

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
            nearest(i.MXdlPerWave, lambda n: i.MPerBlock // (n * i.MPerXDL) > 0, POWERS),
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
        good = nearest(
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
                nearest(k1, lambda n: i.KPerBlock % n == 0, POWERS),
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
        found += transfer_rules(instance, x, dims, whole, instance.ALayout if x == "A" else instance.BLayout)
    found += _pipeline(instance)
    if instance.MWaves and instance.NXdlPerWave64:
        found += epilogue_rules(instance)
        found += lds_rules(instance)
    return [*found, *_problem(instance, problem)] if problem is not None else found


def require(instance: GemmInstance, problem: Problem | None = None) -> None:
    """Raise the first refusal of :func:`check`, if there is one.

    Raises:
        CkError: its first refusal.
    """
    if refusals := check(instance, problem):
        more = f" (and {len(refusals) - 1} more; see check())" if len(refusals) > 1 else ""
        raise CkError(f"{refusals[0]}{more}")
