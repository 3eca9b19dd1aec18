# SPDX-License-Identifier: MIT
"""Instances with a name: what the ROCm guide describes, what it ran, what CK's example has today, AMD's INT8 tiles.

Where the original is another struct (``DeviceGemm_Xdl_CShuffle`` has no D, ``DeviceBatchedGemmMultiD_Xdl`` a batch),
the preset has the same parameters in ``DeviceGemmMultipleD_Xdl_CShuffle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rocm_guide.tune.ck.instance import GemmInstance

__all__ = ["PRESETS", "b_by_rows"]


def transfer(x: str, along_k: bool, tile: int, threads: int, k: int, k1: int, vector: int) -> dict[str, Any]:
    """Return the cluster, orders, widths and extra rows that copy a tile of A or B to LDS, under CK's names.

    Args:
        along_k: a load of ``vector`` elements is a part of a row of K; otherwise it takes neighbours along M or N.
        tile, threads, k, k1: MPerBlock or NPerBlock, BlockSize, KPerBlock, AK1 or BK1.
    """
    names = "AK0_M_AK1" if x == "A" else "BK0_N_BK1"
    k0 = k // k1
    if along_k:
        lengths, order, dim = (min(k0, threads), max(1, threads // k0), 1), (1, 0, 2), 2
    else:
        across = max(1, min(tile // vector, threads))
        lengths, order, dim = (max(1, threads // across), across, 1), (0, 2, 1), 1
    return {
        f"{x}BlockTransferThreadClusterLengths_{names}": lengths,
        f"{x}BlockTransferThreadClusterArrangeOrder": order,
        f"{x}BlockTransferSrcAccessOrder": order,
        f"{x}BlockTransferSrcVectorDim": dim,
        f"{x}BlockTransferSrcScalarPerVector": vector,
        f"{x}BlockTransferDstScalarPerVector_{x}K1": k1,
        f"{x}BlockLdsExtra{'M' if x == 'A' else 'N'}": 1 if along_k else 0,
    }


def b_by_rows(instance: GemmInstance) -> GemmInstance:
    """Return ``instance`` with B by rows, contiguous along N: four columns a load, two rows of K together in LDS.

    >>> b_by_rows(GemmInstance()).BBlockTransferThreadClusterLengths_BK0_N_BK1
    (8, 32, 1)
    """
    i = instance
    return i.but(BLayout="Row", BK1=2, **transfer("B", False, i.NPerBlock, i.BlockSize, i.KPerBlock, 2, 4))


NO_D: dict[str, Any] = {"DsLayout": (), "DsDataType": (), "CDEElementwiseOperation": "PassThrough"}

#: "Kernel fusion using Composable Kernel": MultipleD, D in fp16, AddRelu, B by columns. It gives no tile; this is the
#: tile of the run that it shows, with the transfers of B that a B by columns needs.
DOCUMENT_PROSE = GemmInstance()

#: The run that it shows: DeviceGemm_Xdl_CShuffle<Default, 256, 256, 128, 32, 8, 2, 32, 32, 4, 2, 8, 4, 1, 2>, with
#: B by rows. CK's gemm_xdl_fp16.cpp of October 2024 has what the printed line leaves out.
DOCUMENT_RUN = b_by_rows(
    GemmInstance(
        **NO_D,
        GemmSpec="Default",
        CShuffleNXdlPerWavePerShuffle=2,
        CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 16, 1, 16),
        LoopSched="Interwave",
    )
)

#: CK's example/01_gemm/gemm_xdl_fp16.cpp of November 2025: 16 x 16 matrix instructions, 8 x 4 of them for each wave.
EXAMPLE_TODAY = DOCUMENT_RUN.but(
    MPerXDL=16, NPerXDL=16, MXdlPerWave=8, NXdlPerWave=4, CDEBlockTransferScalarPerVector_NPerBlock=4
)

_INT8: dict[str, Any] = {
    "ADataType": "I8",
    "BDataType": "I8",
    "AccDataType": "I32",
    "CShuffleDataType": "I32",
    "DsDataType": ("I8",),
    "EDataType": "I8",
    "CDEElementwiseOperation": "ScaleScaleAddRelu",
    "KPerBlock": 64,
    "AK1": 16,
    "BK1": 16,
    "ABlockTransferSrcScalarPerVector": 16,
    "ABlockTransferDstScalarPerVector_AK1": 16,
    "BBlockTransferSrcScalarPerVector": 16,
    "BBlockTransferDstScalarPerVector_BK1": 16,
}

#: The large INT8 tile of CK's library, with the operation and types of SmoothQuant's linear layer with ReLU.
INT8_LARGE = GemmInstance(**_INT8)

#: A small INT8 tile for few rows: one matrix instruction's tile for each of four waves.
INT8_SMALL = INT8_LARGE.but(
    MPerBlock=64,
    NPerBlock=64,
    MXdlPerWave=1,
    NXdlPerWave=1,
    CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 32, 1, 8),
)

#: One wave, 32 x 32 of C: small enough to follow by eye and to execute in a blink.
ONE_WAVE = GemmInstance(
    BlockSize=64,
    MPerBlock=32,
    NPerBlock=32,
    MPerXDL=16,
    NPerXDL=16,
    MXdlPerWave=2,
    NXdlPerWave=2,
    ABlockTransferThreadClusterLengths_AK0_M_AK1=(4, 16, 1),
    BBlockTransferThreadClusterLengths_BK0_N_BK1=(4, 16, 1),
    CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 8, 1, 8),
    CDEBlockTransferScalarPerVector_NPerBlock=2,
)

#: name -> instance.
PRESETS: Mapping[str, GemmInstance] = MappingProxyType(
    {
        "document_prose": DOCUMENT_PROSE,
        "document_run": DOCUMENT_RUN,
        "example_today": EXAMPLE_TODAY,
        "int8_large": INT8_LARGE,
        "int8_small": INT8_SMALL,
        "one_wave": ONE_WAVE,
    }
)
