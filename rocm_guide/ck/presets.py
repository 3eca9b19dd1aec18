# SPDX-License-Identifier: MIT
"""Instances with a name: what the ROCm guide describes, what it ran, what CK's example has today, AMD's INT8 tiles.

Where the original is another struct (``DeviceGemm_Xdl_CShuffle`` has no D, ``DeviceBatchedGemmMultiD_Xdl`` a batch),
the preset has the same parameters in ``DeviceGemmMultipleD_Xdl_CShuffle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rocm_guide.ck.instance import GemmInstance

__all__ = ["PRESETS"]

_NO_D = {"DsLayout": (), "DsDataType": (), "CDEElementwiseOperation": "PassThrough"}

#: "Kernel fusion using Composable Kernel": MultipleD, D in fp16, AddRelu, B by columns. It gives no tile; this is the
#: tile of the run that it shows, with the transfers of B that a B by columns needs.
DOCUMENT_PROSE = GemmInstance()

#: The run that it shows: DeviceGemm_Xdl_CShuffle<Default, 256, 256, 128, 32, 8, 2, 32, 32, 4, 2, 8, 4, 1, 2>, with
#: B by rows. CK's gemm_xdl_fp16.cpp of October 2024 has what the printed line leaves out.
DOCUMENT_RUN = GemmInstance(
    **_NO_D,  # type: ignore[arg-type]
    BLayout="Row",
    GemmSpec="Default",
    BK1=2,
    BBlockTransferThreadClusterLengths_BK0_N_BK1=(8, 32, 1),
    BBlockTransferThreadClusterArrangeOrder=(0, 2, 1),
    BBlockTransferSrcAccessOrder=(0, 2, 1),
    BBlockTransferSrcVectorDim=1,
    BBlockTransferSrcScalarPerVector=4,
    BBlockTransferDstScalarPerVector_BK1=2,
    BBlockLdsExtraN=0,
    CShuffleNXdlPerWavePerShuffle=2,
    CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 16, 1, 16),
    LoopSched="Interwave",
)

#: CK's example/01_gemm/gemm_xdl_fp16.cpp of November 2025: 16 x 16 matrix instructions, 8 x 4 of them for each wave.
EXAMPLE_TODAY = DOCUMENT_RUN.but(
    MPerXDL=16,
    NPerXDL=16,
    MXdlPerWave=8,
    NXdlPerWave=4,
    CDEBlockTransferScalarPerVector_NPerBlock=4,
)

_INT8 = {
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
INT8_LARGE = GemmInstance(**_INT8)  # type: ignore[arg-type]

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
