# SPDX-License-Identifier: MIT
"""The slow model against the machine code: values and every byte; what is shipped; what the compiler is asked."""

import itertools
import tarfile

import numpy as np
import pytest

from cdna.hip.toolchain import HipError
from cdna.inspection import inspect_assembly
from cdna.run.session import prepare
from rocm_guide.tune.ck.build import SHIPPED, assemble, assemble_source, ck_headers, ck_refuses, source_key
from rocm_guide.tune.ck.generate import HEADER, extension_source, instance_source, kernel_source
from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem
from rocm_guide.tune.ck.operations import operation
from rocm_guide.tune.ck.pipeline import run_slowly, traffic
from rocm_guide.tune.ck.presets import PRESETS
from rocm_guide.tune.ck.rules import check
from tests.tune.ck.random_instances import random_instances


def inputs(instance, problem, seed=0):
    """A, B, each D, and the scalars."""
    rng, p = np.random.default_rng(seed), problem
    strides = [*p.StrideDs, *[None] * len(instance.DsDataType)]
    d_shapes = [(p.N,) if strides[n] == 0 else (p.M, p.N) for n in range(len(instance.DsDataType))]
    if instance.ADataType == "I8":
        make = [rng.integers(-40, 41, s).astype(np.int8) for s in ((p.M, p.K), (p.K, p.N), *d_shapes)]
    else:
        make = [rng.standard_normal(s).astype(np.float16) for s in ((p.M, p.K), (p.K, p.N), *d_shapes)]
    scalars = dict(zip(operation(instance.CDEElementwiseOperation).scalars, (0.003, 0.4), strict=False))
    return make, scalars


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setenv("CDNA_CLANG", "/nowhere/clang")


def test_the_headers_unpack_with_the_tarfile_of_debian_12(tmp_path, monkeypatch):
    """Python 3.11.2 has neither filters nor the argument; 3.14 warns where none is chosen."""

    def extractall(self, path=".", members=None, *, numeric_owner=False):
        real(self, path, members, numeric_owner=numeric_owner)

    real = tarfile.TarFile.extractall
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path))
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    assert (ck_headers() / HEADER).is_file()


@pytest.mark.parametrize("name", ["one_wave", "int8_small", "int8_rounded"])
def test_the_machine_code_moves_and_computes_what_the_model_does(name, no_compiler):
    instance, problem = SHIPPED[name]
    (a, b, *ds), scalars = inputs(instance, problem)
    wanted, counted = run_slowly(instance, problem, a, b, *ds, **scalars)
    assert counted == traffic(instance, problem)
    m, n, _ = instance.padded(problem)
    done = np.full_like(wanted, 77)
    arguments = [a, np.ascontiguousarray(b.T), *ds, done, *scalars.values()]
    session = prepare(assemble(instance, problem), m // instance.MPerBlock * (n // instance.NPerBlock), arguments)
    moved = {}

    def watch(kind, addresses, size, write):
        moved[kind, write] = moved.get((kind, write), 0) + len(addresses) * size

    session.machine.counters.watch = watch
    session.machine.run("alone")
    result = session.finish()
    assert moved == {
        ("global", False): counted.global_loads,
        ("global", True): counted.global_stores,
        ("lds", False): counted.lds_reads,
        ("lds", True): counted.lds_writes,
    }
    assert result.counters.instructions["mfma"] == counted.mfma
    if instance.EDataType == "I8":
        assert np.array_equal(done, wanted)
    else:  # the order of a sum inside one instruction
        assert np.abs(done.astype(float) - wanted).max() <= 2.0**-6


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_belongs_to_the_source_of_today_and_to_the_formulas(name, no_compiler):
    instance, problem = SHIPPED[name]
    found = inspect_assembly(assemble(instance, problem))[0]
    assert found.arch == "gfx942" and found.resources.lds_static == instance.lds_bytes
    assert found.threads == instance.BlockSize
    assert not found.resources.vgpr_spills and not found.resources.scratch
    assert {use.op.replace("_1k", "") for use in found.kernel.matrix_uses()} == {instance.mfma.name}


@pytest.mark.parametrize("name", PRESETS)
def test_the_model_computes_the_product(name):
    import torch

    instance = PRESETS[name]
    problem = Problem(instance.MPerBlock, instance.NPerBlock, 2 * instance.KPerBlock)
    (a, b, *ds), scalars = inputs(instance, problem, seed=1)
    e, counted = run_slowly(instance, problem, a, b, *ds, **scalars)
    assert counted == traffic(instance, problem)
    if instance.ADataType == "I8":
        # One fused multiply-add, as the compiler makes of it: the first product is not rounded.
        alpha, beta = (torch.tensor(s, dtype=torch.float32) for s in scalars.values())
        # In 32 bits: torch._int_mm saturates on a CPU without VNNI.
        c = (torch.from_numpy(a).int() @ torch.from_numpy(b).int()).double() * alpha.double()
        wanted = (c + (torch.from_numpy(ds[0]).float() * beta).double()).float().clamp(0, 127).trunc()
        assert np.array_equal(e, wanted.to(torch.int8).numpy())
    else:
        c = torch.matmul(torch.from_numpy(a).double(), torch.from_numpy(b).double())
        wanted = torch.relu(c + torch.from_numpy(ds[0]).double()) if ds else c
        # A unit in the last place of C, and one of E: the bound that the notebook states.
        bound = 2.0**-10 * (c.abs() + wanted.abs()) + 2.0**-14
        assert bool(((torch.from_numpy(e).double() - wanted).abs() <= bound).all())


def test_the_model_sees_a_wrong_cluster_order():
    """Threads that copy other elements than the cluster says leave holes in LDS: the values show it."""
    from rocm_guide.tune.ck import pipeline

    instance, problem = PRESETS["one_wave"], Problem(32, 32, 32)
    (a, b, d), _ = inputs(instance, problem)
    right, _ = run_slowly(instance, problem, a, b, d)
    whole, original = instance.a_slice, pipeline.cluster_places
    try:
        pipeline.cluster_places = lambda w, c, o: original(w, c, o)[: 60 if w == whole else None]
        wrong, _ = run_slowly(instance, problem, a, b, d)
    finally:
        pipeline.cluster_places = original
    assert not np.array_equal(right, wrong)


def test_bad_input_to_the_model_is_one_line():
    one, p = PRESETS["one_wave"], Problem(32, 32, 32)
    (a, b, d), _ = inputs(one, p)
    for arguments, message in [
        ((one, p, a[:5], b, d), r"A: shape \(5, 32\)"),
        ((one, p, a, b), "AddRelu takes 1 D"),
        ((one.but(ADataType="BF16", BDataType="BF16", EDataType="BF16"), p, a, b, d), "BF16"),
        ((one.but(AK1=3), p, a, b, d), "AK1=3"),
    ]:
        with pytest.raises(CkError, match=message):
            run_slowly(*arguments)
    with pytest.raises(CkError, match="choose from Row, Col"):
        GemmInstance(ALayout="row")


def test_a_key_changes_with_the_source_and_a_missing_compiler_is_one_line(no_compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path))
    instance, problem = SHIPPED["one_wave"]
    other = kernel_source(instance, Problem(51, 64, 96))
    assert source_key(other) != source_key(kernel_source(instance, problem))
    with pytest.raises(HipError, match="is not clang 19 or newer: pip install ziglang"):
        assemble_source(other)
    with pytest.raises(HipError, match="is not clang"):
        ck_refuses(instance, problem)


def test_the_source_names_every_parameter_and_the_extension_asks_ck_first():
    text = instance_source(PRESETS["document_run"])
    assert text.count("// ") == 46 and "ck::LoopScheduler::Interwave," in text and "ck::Tuple<>," in text
    strided = kernel_source(PRESETS["int8_small"], Problem(64, 64, 64, StrideA=128, StrideDs=(0,)))
    assert "ck::make_tuple(128, 1)" in strided and "ck::make_tuple(0, 1)" in strided
    extension = extension_source(PRESETS["int8_small"])
    assert extension.index("IsSupportedArgument") < extension.index("MakeInvoker().Run")
    assert "untested on hardware" in extension and "{{" not in extension.replace("static_cast", "")
    with pytest.raises(CkError, match="its struct is written for C and D of I32 and I8"):
        instance_source(PRESETS["document_prose"].but(CDEElementwiseOperation="ScaleScaleAdd"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
def test_our_rules_and_cks_static_assert_agree(number):
    """Asked live; tests/tune/ck/test_agreement.py holds the rules to 200 stored verdicts."""
    instance, problem = next(itertools.islice(random_instances(0), number, None))
    ours = [r for r in check(instance, problem) if r.by_ck]
    assert bool(ours) == bool(ck_refuses(instance, problem)), (ours, instance, problem)


@pytest.mark.slow
def test_a_generated_instance_compiles_and_ck_accepts_what_search_proposes(tmp_path, monkeypatch):
    from rocm_guide.tune.ck.search import base_for, search

    best = search(base_for("F16"), Problem(16, 32, 64), top=1)[0].instance
    assert ck_refuses(best, Problem(16, 32, 64)) == ""
