# SPDX-License-Identifier: MIT
"""Random instances with small tiles, about half of them impossible, each with a problem: the same for a seed."""

import itertools
import random

from rocm_guide.tune.ck.instance import GemmInstance, Problem
from rocm_guide.tune.ck.presets import PRESETS, b_by_rows

ONE = PRESETS["one_wave"]
BASES = (
    ONE,
    ONE.but(MPerXDL=32, NPerXDL=32, MXdlPerWave=1, NXdlPerWave=1),
    ONE.but(
        ADataType="I8",
        BDataType="I8",
        AccDataType="I32",
        CShuffleDataType="I32",
        DsDataType=("I8",),
        EDataType="I8",
        CDEElementwiseOperation="ScaleScaleAddRelu",
        KPerBlock=64,
        AK1=16,
        BK1=16,
        ABlockTransferSrcScalarPerVector=16,
        ABlockTransferDstScalarPerVector_AK1=16,
        BBlockTransferSrcScalarPerVector=16,
        BBlockTransferDstScalarPerVector_BK1=16,
        CDEBlockTransferScalarPerVector_NPerBlock=2,
    ),
    ONE.but(DsLayout=(), DsDataType=(), CDEElementwiseOperation="PassThrough", GemmSpec="Default"),
    # B by rows, four columns at a time.
    b_by_rows(ONE),
)
CLUSTER_A, CLUSTER_B = "ABlockTransferThreadClusterLengths_AK0_M_AK1", "BBlockTransferThreadClusterLengths_BK0_N_BK1"
STORE = "CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock"
CHANGES = {
    "MPerBlock": (16, 32, 48, 64),
    "NPerBlock": (16, 32, 48, 64),
    "KPerBlock": (16, 24, 32, 64),
    "AK1": (4, 8, 12, 16),
    "BK1": (2, 4, 8, 16),
    "MPerXDL": (8, 16, 32),
    "NPerXDL": (16, 32, 64),
    "MXdlPerWave": (1, 2, 3, 4),
    "BlockSize": (64, 96, 128),
    "GemmSpec": ("Default", "MNPadding", "MNKPadding"),
    CLUSTER_A: ((4, 16, 1), (2, 32, 1), (4, 12, 1), (8, 16, 1), (4, 8, 2)),
    CLUSTER_B: ((4, 16, 1), (2, 32, 1), (4, 32, 1), (8, 8, 1)),
    "ABlockTransferSrcVectorDim": (1, 2),
    "ABlockTransferSrcScalarPerVector": (1, 2, 4, 8, 16),
    "BBlockTransferSrcScalarPerVector": (1, 2, 4, 8, 16),
    "ABlockLdsExtraM": (0, 1, 4),
    "CShuffleMXdlPerWavePerShuffle": (1, 2, 3),
    "CShuffleNXdlPerWavePerShuffle": (1, 2),
    STORE: ((1, 8, 1, 8), (1, 16, 1, 4), (1, 16, 1, 8), (1, 4, 1, 16), (1, 12, 1, 4)),
    "CDEBlockTransferScalarPerVector_NPerBlock": (1, 2, 4, 8),
    "AccDataType": ("F32", "I32"),
}
SIZES = (32, 48, 64, 96, 100, 128, 130)


def random_instances(seed=0):
    """Endless pairs of an instance and a problem."""
    rng = random.Random(seed)
    for _ in itertools.count():
        names = rng.sample(sorted(CHANGES), rng.choice((0, 1, 1, 2, 3)))
        one: GemmInstance = rng.choice(BASES).but(**{n: rng.choice(CHANGES[n]) for n in names})
        if one.NXdlPerWave64:
            one = one.but(NXdlPerWave=one.NXdlPerWave64)  # as CK does, silently
        sizes = [rng.choice(SIZES) if rng.random() < 0.3 else rng.choice((64, 96, 128)) for _ in range(3)]
        yield one, Problem(*sizes)
