# SPDX-License-Identifier: MIT
"""The rules of an instance: presets obey them, refusals name a parameter and a value that does, LDS and waves."""

import dataclasses
import re

import pytest

from rocm_guide.tune.ck.build import archive_bytes, ck_headers
from rocm_guide.tune.ck.generate import HEADER
from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem, mfma_of
from rocm_guide.tune.ck.presets import PRESETS
from rocm_guide.tune.ck.rules import check, require

ROOMY = Problem(3840, 4096, 4096)


def test_the_dataclass_has_cks_46_parameters_in_cks_order():
    names = [f.name for f in dataclasses.fields(GemmInstance)]
    assert len(names) == 46
    text = (ck_headers() / HEADER).read_text()
    found = re.search(r"template\s*<([^{};]*?)>\s*struct\s+DeviceGemmMultipleD_Xdl_CShuffle\b", text)
    parts = re.sub(r"=\s*[^,<>]*(<[^<>]*>|\(\))?", "", found[1]).split(",")
    assert names == [part.split()[-1] for part in parts if part.strip()]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_obey_every_rule(name):
    assert check(PRESETS[name], ROOMY) == []


# LDS and accumulators as the compiled presets show them; see tests/tune/ck/test_compiled.py for the first.
@pytest.mark.parametrize(
    ("name", "waves", "lds", "accumulators", "kpack", "op"),
    [
        ("document_prose", (2, 2), 24672, 128, 8, "v_mfma_f32_32x32x8_f16"),
        ("document_run", (2, 2), 24624, 128, 8, "v_mfma_f32_32x32x8_f16"),
        ("example_today", (2, 2), 24624, 128, 8, "v_mfma_f32_16x16x16_f16"),
        ("int8_large", (2, 2), 24672, 128, 16, "v_mfma_i32_32x32x16_i8"),
        ("int8_small", (2, 2), 16384, 16, 16, "v_mfma_i32_32x32x16_i8"),
        ("one_wave", (1, 1), 4192, 16, 8, "v_mfma_f32_16x16x16_f16"),
    ],
)
def test_what_follows_from_the_parameters(name, waves, lds, accumulators, kpack, op):
    i = PRESETS[name]
    assert ((i.MWaves, i.NWaves), i.lds_bytes, i.accumulators, i.KPack) == (waves, lds, accumulators, kpack)
    assert i.mfma.name == op


# One change of a good instance -> the parameter that is blamed, a part of the file, whether CK refuses it too.
BROKEN = [
    ({"AK1": 3}, "AK1", "gridwise_gemm_multiple_d_xdl_cshuffle.hpp:345", True),
    ({"KPerBlock": 24}, "KPerBlock", "threadwise_tensor_slice_transfer.hpp", True),
    ({"MPerBlock": 192}, "MPerBlock", "cshuffle.hpp:341", True),
    ({"MXdlPerWave": 16}, "MXdlPerWave", "device_base.hpp", True),
    ({"NXdlPerWave": 4}, "NXdlPerWave", "device_base.hpp", False),
    ({"BlockSize": 320}, "BlockSize", "blockwise_gemm_xdlops.hpp:175", True),
    ({"BlockSize": 64}, "BlockSize", "device_base.hpp", True),
    ({"MPerXDL": 64, "MXdlPerWave": 2}, "NPerXDL", "xdlops_gemm.hpp:1800", True),
    ({"NPerXDL": 24}, "NPerXDL", "xdlops_gemm.hpp:1842", True),
    ({"AccDataType": "I32"}, "AccDataType", "xdlops_gemm.hpp", True),
    (
        {"ABlockTransferThreadClusterLengths_AK0_M_AK1": (4, 48, 1)},
        "ABlockTransferThreadClusterLengths_AK0_M_AK1",
        "v4r1.hpp:75",
        True,
    ),
    (
        {"BBlockTransferThreadClusterLengths_BK0_N_BK1": (4, 128, 1)},
        "BBlockTransferThreadClusterLengths_BK0_N_BK1",
        "v4r1.hpp:79",
        True,
    ),
    (
        {"ABlockTransferThreadClusterLengths_AK0_M_AK1": (4, 32, 2)},
        "ABlockTransferSrcScalarPerVector",
        "v3r1.hpp:137",
        True,
    ),
    ({"BBlockTransferSrcScalarPerVector": 3}, "BBlockTransferSrcScalarPerVector", "amd_buffer_addressing", True),
    ({"BBlockTransferDstScalarPerVector_BK1": 16}, "BBlockTransferDstScalarPerVector_BK1", "v3r1.hpp", False),
    ({"ABlockTransferSrcVectorDim": 1}, "ABlockTransferSrcVectorDim", "IsSupported", True),
    ({"ABlockTransferSrcAccessOrder": (1, 1, 2)}, "ABlockTransferSrcAccessOrder", "", True),
    ({"CShuffleMXdlPerWavePerShuffle": 3}, "CShuffleMXdlPerWavePerShuffle", "cshuffle.hpp:729", True),
    (
        {"CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock": (1, 24, 1, 8)},
        "CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock",
        "v7.hpp:80",
        True,
    ),
    ({"CDEBlockTransferScalarPerVector_NPerBlock": 16}, "CDEBlockTransferScalarPerVector_NPerBlock", "v7.hpp:76", True),
    ({"KPerBlock": 128, "AK1": 8}, "KPerBlock", "GetSharedMemoryNumberOfByte", False),
    ({"NumGemmKPrefetchStage": 3}, "NumGemmKPrefetchStage", "pipeline_selector", True),
    ({"DsDataType": ()}, "DsLayout", "", True),
    ({"CDEElementwiseOperation": "Gelu"}, "CDEElementwiseOperation", "", False),
    ({"BlockSize": 0}, "BlockSize", "", True),
    ({"BlockSize": 512}, "BlockSize", "ck.hpp, CK_MAX_THREAD_PER_BLOCK", False),
    ({"BlockSize": 320}, "BlockSize", "ck.hpp, CK_MAX_THREAD_PER_BLOCK", False),
]


@pytest.mark.parametrize(("change", "parameter", "file", "by_ck"), BROKEN, ids=[str(b[0])[:60] for b in BROKEN])
def test_a_broken_rule_names_parameter_file_and_a_value_that_does(change, parameter, file, by_ck):
    i = GemmInstance(**change)
    blamed = [r for r in check(i) if r.parameter == parameter and file in r.file]
    assert blamed, [str(r) for r in check(i)]
    r = blamed[0]
    assert r.by_ck is by_ck
    # An int or a tuple as the fix: with it this rule is obeyed.
    if re.fullmatch(r"[\d(), ]+", r.fix):
        mended = i.but(**{parameter: eval(r.fix, {"__builtins__": {}})})
        assert r.rule not in [q.rule for q in check(mended) if q.parameter == parameter and q.file == r.file]


@pytest.mark.parametrize(
    ("problem", "parameters"),
    [
        (Problem(13, 4096, 4096), []),  # padding of the tile
        (Problem(256, 1020, 4096), ["N"]),  # no padding helps a vector
        (Problem(256, 4096, 1020), ["K", "K"]),
        (Problem(65536, 32768, 512), ["E"]),
        (Problem(256, 128, 64, StrideA=32), ["StrideA"]),
    ],
)
def test_what_a_problem_must_obey(problem, parameters):
    assert [r.parameter for r in check(GemmInstance(), problem)] == parameters


def test_without_padding_each_size_is_a_multiple_of_the_tile_and_pipelines_want_even_turns():
    bare = GemmInstance(GemmSpec="Default")
    assert [r.parameter for r in check(bare, Problem(257, 136, 40))] == ["M", "N", "K"]
    assert check(bare.but(PipelineVer="v2"), Problem(256, 128, 96))[0].fix == "128"


def test_a_workgroup_of_512_threads_breaks_this_rule_alone():
    """All of CK's own rules hold; its launch bounds do not (composable_kernel issues 1652 and 558)."""
    wide = GemmInstance(
        BlockSize=512,
        MPerBlock=256,
        NPerBlock=256,
        ABlockTransferThreadClusterLengths_AK0_M_AK1=(4, 128, 1),
        BBlockTransferThreadClusterLengths_BK0_N_BK1=(4, 128, 1),
        CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, 32, 1, 16),
    )
    assert [(r.parameter, r.fix) for r in check(wide)] == [("BlockSize", "256")]


def test_require_raises_one_line_and_bad_values_are_named():
    with pytest.raises(CkError, match=r"AK1=3: KPerBlock=32 is no multiple of it .*; 4 would do"):
        require(GemmInstance(AK1=3))
    with pytest.raises(CkError, match="M=0"):
        Problem(0, 1, 1)
    with pytest.raises(CkError, match="TilePerBlock: no template parameter"):
        GemmInstance().but(TilePerBlock=3)
    with pytest.raises(CkError, match="StrideDs"):
        Problem(1, 1, 1, StrideDs=(-1,))
    assert mfma_of("I8", 64, 64) is None


def test_the_archive_carries_the_licence_and_says_where_it_is_from():
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(archive_bytes()), mode="r:xz") as packed:
        names = packed.getnames()
        text = {n: packed.extractfile(n).read().decode() for n in ("LICENSE", "ORIGIN")}
    assert (
        "Permission is hereby granted, free of charge" in text["LICENSE"]
        and "Advanced Micro Devices" in text["LICENSE"]
    )
    assert "Composable Kernel 1.2.0" in text["ORIGIN"]
    assert len([n for n in names if n.endswith(".hpp")]) == 88


def test_without_the_archive_the_fix_is_named(monkeypatch):
    from rocm_guide.tune.ck import build

    monkeypatch.setattr(build, "_HEADERS", "nowhere.tar.xz")
    build.archive_bytes.cache_clear()
    with pytest.raises(CkError, match="it comes with the package rocm_guide"):
        build.archive_bytes()
    build.archive_bytes.cache_clear()
