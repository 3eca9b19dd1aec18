# SPDX-License-Identifier: MIT
"""The judges of notebook 36: right answers pass, likely wrong ones get a hint of their own."""

import pytest

from rocm_guide.exercises.composable_kernel import check_instance, check_lds, check_loads
from rocm_guide.tune.ck.presets import PRESETS

GOOD = PRESETS["one_wave"].but(
    BlockSize=256,
    MPerBlock=32,
    NPerBlock=32,
    MXdlPerWave=1,
    NXdlPerWave=1,
    KPerBlock=64,
    ABlockTransferThreadClusterLengths_AK0_M_AK1=(8, 32, 1),
    BBlockTransferThreadClusterLengths_BK0_N_BK1=(8, 32, 1),
    CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 32, 1, 8),
    CDEBlockTransferScalarPerVector_NPerBlock=4,
)


@pytest.mark.parametrize(
    ("judge", "answer", "hint"),
    [
        (check_lds, 0, "planes"),
        (check_lds, 2 * 24672, "no extra row"),
        (check_lds, 49152, "extra row"),
        (check_lds, 24688, "two"),
        (check_lds, 24672, "KPerBlock=32"),
        (check_loads, 0, "workgroups x"),
        (check_loads, 65011712, "each matrix once"),
        (check_loads, 1509949440 // 2, "two"),
        (check_loads, 1509949440 + 3840 * 4096 * 2, "D is not"),
        (check_instance, PRESETS["document_prose"], "padding"),
        (check_instance, PRESETS["document_prose"].but(AK1=3), "AK1=3"),
        (check_instance, PRESETS["int8_small"], "fp16"),
        (check_instance, 5, "GemmInstance"),
        (check_instance, GOOD.but(ABlockTransferSrcScalarPerVector=4), "128 bits"),
    ],
)
def test_wrong_answers_get_a_hint(judge, answer, hint, capsys):
    assert judge(answer) is False
    assert hint in capsys.readouterr().out


def test_right_answers_pass(capsys):
    assert check_lds(49376) and check_loads(1509949440) and check_instance(GOOD)
    # Few workgroups: right in everything else.
    few = PRESETS["int8_small"].but(
        ADataType="F16",
        BDataType="F16",
        AccDataType="F32",
        CShuffleDataType="F16",
        DsDataType=("F16",),
        EDataType="F16",
        CDEElementwiseOperation="AddRelu",
        KPerBlock=32,
        AK1=8,
        BK1=8,
        ABlockTransferSrcScalarPerVector=8,
        ABlockTransferDstScalarPerVector_AK1=8,
        BBlockTransferSrcScalarPerVector=8,
        BBlockTransferDstScalarPerVector_BK1=8,
    )
    capsys.readouterr()
    assert not check_instance(few)
    assert "smaller tiles" in capsys.readouterr().out
