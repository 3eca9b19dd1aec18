# SPDX-License-Identifier: MIT
"""One instance of Composable Kernel's ``DeviceGemmMultipleD_Xdl_CShuffle``: its template parameters, under CK's names.

E = CDEElementwiseOperation(A x B, D0, D1, …). What follows from the parameters (waves, LDS, accumulators, the matrix
instruction) is computed here with CK's own formulas; which values are allowed is in ``rules.py``.
Source: CK 1.2.0, include/ck/tensor_operation/gpu/device/impl/device_gemm_multiple_d_xdl_cshuffle.hpp and
grid/gridwise_gemm_multiple_d_xdl_cshuffle.hpp; the instruction: warp/xdlops_gemm.hpp, MfmaSelector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from rocm_guide.common.base import GuideError

__all__ = ["BYTES", "CkError", "DataType", "GemmInstance", "Mfma", "Problem", "mfma_of"]

Layout = Literal["Row", "Col"]
DataType = Literal["F16", "BF16", "F32", "F8", "I8", "I32"]
GemmSpecialization = Literal[
    "Default", "MPadding", "NPadding", "KPadding", "MNPadding", "MKPadding", "NKPadding", "MNKPadding"
]
Lengths3 = tuple[int, int, int]
Lengths4 = tuple[int, int, int, int]

BYTES: dict[str, int] = {"F16": 2, "BF16": 2, "F32": 4, "F8": 1, "I8": 1, "I32": 4}
WAVE = 64


class CkError(GuideError):
    """An instance that CK refuses, a problem that it cannot take, or headers and compilers that do not fit."""


class Mfma(NamedTuple):
    """A matrix instruction of gfx942: its name, the rows, columns and depth of one, and the depth that a lane holds.

    ``blocks`` lie side by side in one instruction; for more than one the depth is not shared out among the lanes.
    """

    name: str
    m: int
    n: int
    k: int
    k_per_blk: int
    blocks: int = 1


_MFMA: dict[tuple[str, int, int], Mfma] = {
    ("F16", 32, 32): Mfma("v_mfma_f32_32x32x8_f16", 32, 32, 8, 4),
    ("F16", 16, 16): Mfma("v_mfma_f32_16x16x16_f16", 16, 16, 16, 4),
    ("F16", 64, 64): Mfma("v_mfma_f32_32x32x4_2b_f16", 32, 32, 4, 4, 2),
    ("F16", 32, 64): Mfma("v_mfma_f32_32x32x4_2b_f16", 32, 32, 4, 4, 2),
    ("F16", 16, 64): Mfma("v_mfma_f32_16x16x4_4b_f16", 16, 16, 4, 4, 4),
    ("F16", 8, 64): Mfma("v_mfma_f32_4x4x4_16b_f16", 4, 4, 4, 4, 16),
    ("F16", 4, 64): Mfma("v_mfma_f32_4x4x4_16b_f16", 4, 4, 4, 4, 16),
    ("BF16", 32, 32): Mfma("v_mfma_f32_32x32x8_bf16", 32, 32, 8, 4),
    ("BF16", 16, 16): Mfma("v_mfma_f32_16x16x16_bf16", 16, 16, 16, 4),
    ("F32", 32, 32): Mfma("v_mfma_f32_32x32x2_f32", 32, 32, 2, 1),
    ("F32", 16, 16): Mfma("v_mfma_f32_16x16x4_f32", 16, 16, 4, 1),
    ("F8", 32, 32): Mfma("v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16, 8),
    ("F8", 16, 16): Mfma("v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32, 8),
    ("I8", 32, 32): Mfma("v_mfma_i32_32x32x16_i8", 32, 32, 16, 8),
    ("I8", 16, 16): Mfma("v_mfma_i32_16x16x32_i8", 16, 16, 32, 8),
}


def mfma_of(dtype: str, rows: int, columns: int) -> Mfma | None:
    """Return the instruction that CK's ``MfmaSelector`` takes on gfx942, or None where it knows none.

    Source: CK, tensor_operation/gpu/warp/xdlops_gemm.hpp.

    >>> mfma_of("F16", 32, 32).name, mfma_of("I8", 16, 16).k, mfma_of("I8", 8, 64)
    ('v_mfma_f32_32x32x8_f16', 32, None)
    """
    return _MFMA.get((dtype, rows, columns))


@dataclass(frozen=True)
class Problem:
    """A matrix product: A is M x K, B is K x N, E and every D are M x N.

    ``StrideA`` and so on count elements from one row (Row) or column (Col) to the next; None means packed. A D whose
    stride is 0 is one row that all rows of E share: a bias without a copy.
    """

    M: int
    N: int
    K: int
    StrideA: int | None = None
    StrideB: int | None = None
    StrideDs: tuple[int | None, ...] = ()
    StrideE: int | None = None

    def __post_init__(self) -> None:
        for name in ("M", "N", "K"):
            if not isinstance(value := getattr(self, name), int) or not 0 < value < 2**31:
                raise CkError(f"{name}={value!r}: a size of a matrix is an integer from 1 to 2147483647")
        for name, value in (("StrideA", self.StrideA), ("StrideB", self.StrideB), ("StrideE", self.StrideE)):
            if value is not None and (not isinstance(value, int) or not 0 < value < 2**31):
                raise CkError(f"{name}={value!r}: a positive integer, or None for a packed matrix")
        if any(s is not None and (not isinstance(s, int) or not 0 <= s < 2**31) for s in self.StrideDs):
            known = "None for packed, 0 for one row that all rows share, or a stride"
            raise CkError(f"StrideDs={self.StrideDs!r}: {known}")

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product alone."""
        return 2 * self.M * self.N * self.K


_CHOICES = (
    (("ALayout", "BLayout", "DsLayout", "ELayout"), get_args(Layout)),
    (
        ("ADataType", "BDataType", "AccDataType", "CShuffleDataType", "DsDataType", "EDataType", "ComputeDataType"),
        get_args(DataType),
    ),
    (("GemmSpec",), get_args(GemmSpecialization)),
    (("LoopSched",), ("Default", "Interwave")),
    (("PipelineVer",), ("v1", "v2")),
)


@dataclass(frozen=True)
class GemmInstance:
    """The 46 template parameters of ``DeviceGemmMultipleD_Xdl_CShuffle``, in CK's order and under CK's names.

    A cluster or order in three dimensions is (K0, M or N, K1); the last cluster is (MBlock, M, NBlock, N).
    ``ComputeDataType`` None means EDataType, which is CK's default. Nothing is checked here: see
    :func:`rocm_guide.tune.ck.rules.check`.

    Raises:
        CkError: a layout, type or name that is none of CK's.
    """

    ALayout: Layout = "Row"
    BLayout: Layout = "Col"
    DsLayout: tuple[Layout, ...] = ("Row",)
    ELayout: Layout = "Row"
    ADataType: DataType = "F16"
    BDataType: DataType = "F16"
    AccDataType: DataType = "F32"
    CShuffleDataType: DataType = "F16"
    DsDataType: tuple[DataType, ...] = ("F16",)
    EDataType: DataType = "F16"
    AElementwiseOperation: str = "PassThrough"
    BElementwiseOperation: str = "PassThrough"
    CDEElementwiseOperation: str = "AddRelu"
    GemmSpec: GemmSpecialization = "MNKPadding"
    NumGemmKPrefetchStage: int = 1
    BlockSize: int = 256
    MPerBlock: int = 256
    NPerBlock: int = 128
    KPerBlock: int = 32
    AK1: int = 8
    BK1: int = 8
    MPerXDL: int = 32
    NPerXDL: int = 32
    MXdlPerWave: int = 4
    NXdlPerWave: int = 2
    ABlockTransferThreadClusterLengths_AK0_M_AK1: Lengths3 = (4, 64, 1)
    ABlockTransferThreadClusterArrangeOrder: Lengths3 = (1, 0, 2)
    ABlockTransferSrcAccessOrder: Lengths3 = (1, 0, 2)
    ABlockTransferSrcVectorDim: int = 2
    ABlockTransferSrcScalarPerVector: int = 8
    ABlockTransferDstScalarPerVector_AK1: int = 8
    ABlockLdsExtraM: int = 1
    BBlockTransferThreadClusterLengths_BK0_N_BK1: Lengths3 = (4, 64, 1)
    BBlockTransferThreadClusterArrangeOrder: Lengths3 = (1, 0, 2)
    BBlockTransferSrcAccessOrder: Lengths3 = (1, 0, 2)
    BBlockTransferSrcVectorDim: int = 2
    BBlockTransferSrcScalarPerVector: int = 8
    BBlockTransferDstScalarPerVector_BK1: int = 8
    BBlockLdsExtraN: int = 1
    CShuffleMXdlPerWavePerShuffle: int = 1
    CShuffleNXdlPerWavePerShuffle: int = 1
    CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock: Lengths4 = (1, 32, 1, 8)
    CDEBlockTransferScalarPerVector_NPerBlock: int = 8
    LoopSched: Literal["Default", "Interwave"] = "Default"
    PipelineVer: Literal["v1", "v2"] = "v1"
    ComputeDataType: DataType | None = None

    def __post_init__(self) -> None:
        for names, allowed in _CHOICES:
            for name in names:
                value = getattr(self, name)
                for one in value if isinstance(value, tuple) else (value,):
                    if one not in allowed and not (one is None and name == "ComputeDataType"):
                        raise CkError(f"{name}={one!r}: choose from {', '.join(allowed)}")

    def but(self, **changes: Any) -> GemmInstance:
        """Return this instance with some parameters changed.

        >>> GemmInstance().but(KPerBlock=64).KPerBlock
        64

        Raises:
            CkError: no such parameter.
        """
        names = [f.name for f in fields(self)]
        if unknown := [n for n in changes if n not in names]:
            raise CkError(f"{unknown[0]}: no template parameter of DeviceGemmMultipleD_Xdl_CShuffle; see docs of it")
        return replace(self, **changes)

    @property
    def compute_type(self) -> DataType:
        """The type in LDS and in the matrix instruction: CK's default is EDataType, not ADataType."""
        return self.ComputeDataType or self.EDataType

    @cached_property
    def MWaves(self) -> int:
        """Waves of a workgroup along M."""
        return self.MPerBlock // (self.MXdlPerWave * self.MPerXDL)

    @property
    def NWaves(self) -> int:
        """Waves of a workgroup along N."""
        return self.NPerBlock // (self.NXdlPerWave64 * self.NPerXDL) if self.NXdlPerWave64 else 0

    @cached_property
    def NXdlPerWave64(self) -> int:
        """Return what CK uses instead of NXdlPerWave: it follows from the other parameters; 0 where there is none.

        Source: CK, device/device_base.hpp, GetNXdlPerWave2.
        """
        return self.NXdlPerWave_for(self.BlockSize)

    def NXdlPerWave_for(self, threads: int) -> int:
        """Return what CK would use instead of NXdlPerWave if BlockSize were ``threads``."""
        waves = threads // WAVE // self.MWaves if self.MWaves else 0
        if not waves or self.NPerBlock % (self.NPerXDL * waves):
            return 0
        return self.NPerBlock // (self.NPerXDL * waves)

    @property
    def waves(self) -> int:
        return self.BlockSize // WAVE

    @cached_property
    def mfma(self) -> Mfma | None:
        """The matrix instruction, if gfx942 has one for these types and sizes."""
        return mfma_of(self.compute_type, self.MPerXDL, self.NPerXDL)

    @property
    def KPack(self) -> int:
        """Elements of K that a lane reads from LDS in one piece: the lcm of AK1 and BK1, or the instruction's depth."""
        return max(math.lcm(self.AK1, self.BK1), self.mfma.k_per_blk if self.mfma else 0)

    @property
    def k_lanes(self) -> int:
        """Return how many lanes share the depth of one matrix instruction (CK's K0PerXdlops)."""
        return self.mfma.k // self.mfma.k_per_blk if self.mfma else 1

    @property
    def KPerThread(self) -> int:
        """Elements of KPerBlock that fall to one lane."""
        return self.KPerBlock // self.k_lanes

    @property
    def accumulators(self) -> int:
        """Registers of a lane that hold the workgroup's part of C: MXdlPerWave x NXdlPerWave x XDL^2 / 64."""
        return self.MXdlPerWave * self.NXdlPerWave64 * self.MPerXDL * self.NPerXDL // WAVE

    @property
    def a_slice(self) -> Lengths3:
        """Elements (K0, M, K1) of A's tile."""
        return self.KPerBlock // self.AK1, self.MPerBlock, self.AK1

    @property
    def b_slice(self) -> Lengths3:
        """Elements (K0, N, K1) of B's tile."""
        return self.KPerBlock // self.BK1, self.NPerBlock, self.BK1

    @cached_property
    def shuffle_slice(self) -> tuple[int, int]:
        """Rows and columns of C that pass through LDS at a time in the epilogue."""
        return (
            self.CShuffleMXdlPerWavePerShuffle * self.MWaves * self.MPerXDL,
            self.CShuffleNXdlPerWavePerShuffle * self.NWaves * self.NPerXDL,
        )

    @property
    def shuffles(self) -> int:
        rows, columns = self.shuffle_slice
        return self.MPerBlock * self.NPerBlock // (rows * columns)

    @property
    def lds_a(self) -> int:
        """Elements of LDS for A's tile: K0 planes of (M + extra) rows of K1, without the extra of the last plane."""
        k0, m, k1 = self.a_slice
        return _aligned((k0 - 1) * (m + self.ABlockLdsExtraM) * k1 + m * k1, math.lcm(self.AK1, self.BK1))

    @property
    def lds_b(self) -> int:
        """Elements of LDS for B's tile."""
        k0, n, k1 = self.b_slice
        return _aligned((k0 - 1) * (n + self.BBlockLdsExtraN) * k1 + n * k1, math.lcm(self.AK1, self.BK1))

    @property
    def lds_bytes(self) -> int:
        """Bytes of LDS of a workgroup: the two tiles, or the slice of the epilogue that takes their place.

        Source: CK, GetSharedMemoryNumberOfByte.

        >>> GemmInstance().lds_bytes
        24672
        """
        rows, columns = self.shuffle_slice
        tiles = (self.lds_a + self.lds_b) * BYTES[self.compute_type]
        return max(tiles, rows * columns * BYTES[self.CShuffleDataType])

    def pads(self, dimension: str) -> bool:
        """Return whether GemmSpec pads this dimension to a multiple of the tile."""
        return dimension in self.GemmSpec.removesuffix("Padding") if self.GemmSpec != "Default" else False

    def padded(self, problem: Problem) -> tuple[int, int, int]:
        """Return M, N and K as the kernel sees them."""
        tile = {"M": self.MPerBlock, "N": self.NPerBlock, "K": self.KPerBlock}
        m, n, k = (
            -(-size // tile[d]) * tile[d] if self.pads(d) else size
            for d, size in (("M", problem.M), ("N", problem.N), ("K", problem.K))
        )
        return m, n, k


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to
