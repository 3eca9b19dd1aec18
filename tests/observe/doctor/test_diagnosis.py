# SPDX-License-Identifier: MIT
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from packaging.requirements import Requirement

from cdna.checks import Check
from rocm_guide.cli.doctor import report
from rocm_guide.common.base import cache_folder
from rocm_guide.observe.doctor import diagnosis as doctor
from rocm_guide.observe.doctor import software as doctor_machine
from rocm_guide.observe.doctor import software as doctor_probes
from rocm_guide.observe.doctor.diagnosis import PreflightError, diagnose, libraries, preflight
from rocm_guide.observe.doctor.software import (
    check_accelerator,
    check_cache,
    check_disk,
    check_libraries,
    check_memory,
    check_rocm_tools,
    pins,
)

ROOT = Path(__file__).parents[3]
GIB = 2**30


def test_preflight_is_brief_and_quiet_when_all_is_well(capsys):
    preflight()
    lines = capsys.readouterr().out.splitlines()
    assert 6 <= len(lines) <= 10
    assert all(re.match(r"\[(OK|WARN)\] +\w", line) for line in lines)


def test_preflight_stops_with_the_fix_when_a_needed_library_is_missing(capsys):
    with pytest.raises(PreflightError, match="missing: surely-not-there -> pip install"):
        preflight("surely-not-there")
    assert "[FAIL] libraries" in capsys.readouterr().out


def test_preflight_only_warns_about_other_missing_libraries(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "libraries", lambda: ["torch", "not-needed-here"])
    preflight()
    assert "[WARN] libraries    missing: not-needed-here" in capsys.readouterr().out


def test_preflight_names_another_triton_without_its_remark(capsys, monkeypatch):
    """Cut at its first comma the remark read "notebooks ran with 3.6", beside a newer one."""
    remark = doctor_machine.check_triton("3.8.0", "3.9.0", named=False)
    monkeypatch.setattr(doctor, "check_libraries", lambda wanted, pinned: [remark])
    preflight()
    assert "[OK]   libraries    triton 3.8.0, as tested" in capsys.readouterr().out


def test_preflight_stops_when_the_cache_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PreflightError, match="set ROCM_GUIDE_CACHE"):
        preflight(cache=tmp_path / "file" / "cache")


def test_versions_are_compared_without_their_local_part(monkeypatch):
    monkeypatch.setattr(doctor_probes.importlib.metadata, "version", lambda name: "2.13.0+rocm7.2")
    assert check_libraries(["torch"], {"torch": "2.13.0"})[0].status == "OK"
    other = check_libraries(["torch"], {"torch": "2.12.0"})[0]
    assert other.status == "WARN" and "tested with 2.12.0" in other.found and "pip install torch==2.12.0" in other.fix


def test_the_triton_that_torch_names_is_right(monkeypatch):
    """Advice to install the pinned one would break the CUDA builds of torch, which want another."""
    monkeypatch.setattr(doctor_probes.importlib.metadata, "version", lambda name: "3.7.1")
    required = ["filelock", "triton==3.7.1; python_version < '3.15'"]
    monkeypatch.setattr(doctor_probes.importlib.metadata, "requires", lambda name: required)
    [triton] = check_libraries(["triton"], {"triton": "3.9.0"})
    assert triton.status == "OK" and triton.fix == "" and "names" in triton.found
    assert "figures in the texts are 3.9.0's" in triton.found
    monkeypatch.setattr(doctor_probes.importlib.metadata, "requires", lambda name: None)
    [triton] = check_libraries(["triton"], {"triton": "3.9.0"})
    assert triton.status == "OK" and "names" not in triton.found


def test_the_triton_of_a_rocm_build_is_found_under_its_own_name(monkeypatch):
    have = {"triton-rocm": "3.7.1", "torch": "2.13.0+rocm7.2"}

    def version(name):
        if name not in have:
            raise doctor_probes.importlib.metadata.PackageNotFoundError(name)
        return have[name]

    monkeypatch.setattr(doctor_probes.importlib.metadata, "version", version)
    monkeypatch.setattr(doctor_probes.importlib.metadata, "requires", lambda name: ["triton-rocm==3.7.1"])
    [triton] = check_libraries(["triton"], {"triton": "3.9.0"})
    assert triton.status == "OK" and triton.found.startswith("3.7.1, which this build of torch names")


def test_the_doctor_knows_the_tritons_that_pyproject_allows():
    (line,) = (x for x in importlib.metadata.requires("rocm-guide") if x.startswith("triton"))
    allowed = Requirement(line.split(";")[0]).specifier
    assert [f"3.{n}" for n in range(40) if allowed.contains(f"3.{n}.0")] == list(doctor_probes.TRITON_RELEASES)
    for version in ("3.5.1", "3.10.0", "4.0.0"):
        check = doctor_probes.check_triton(version, "3.9.0", named=False)
        assert check.status == "WARN" and version in check.found and "never run" in check.found


@pytest.mark.parametrize(("free", "status"), [(8, "OK"), (4, "OK"), (3, "WARN"), (1, "FAIL")])
def test_memory_bounds(free, status):
    check = check_memory(free * GIB, 16 * GIB)
    assert check.status == status and bool(check.fix) == (status != "OK")


@pytest.mark.parametrize(("free", "status"), [(9, "OK"), (2, "WARN"), (0.5, "FAIL")])
def test_disk_bounds(tmp_path, monkeypatch, free, status):
    usage = doctor_machine.shutil.disk_usage(tmp_path)._replace(free=int(free * GIB))
    monkeypatch.setattr(doctor_machine.shutil, "disk_usage", lambda path: usage)
    assert check_disk(tmp_path / "not" / "made" / "yet").status == status


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ROCM_GUIDE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "rocm-guide"


def test_cache_check_leaves_nothing(tmp_path):
    assert check_cache(tmp_path / "new").status == "OK"
    assert list((tmp_path / "new").iterdir()) == []


def fake_tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_rocm_tools_are_read(tmp_path, monkeypatch):
    fake_tool(tmp_path, "rocm-smi", "echo ROCM-SMI version: 3.0.0")
    fake_tool(tmp_path, "rocminfo", "printf '  Name:                    gfx942\\n  Name:                    gfx942\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    smi, info = check_rocm_tools()
    assert (smi.status, smi.found) == ("OK", "rocm-smi: ROCM-SMI version: 3.0.0")
    assert (info.status, info.found) == ("OK", "2 GPU agent(s): gfx942")


def test_a_tool_that_hangs_is_given_up(tmp_path, monkeypatch):
    fake_tool(tmp_path, "amd-smi", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    smi = check_rocm_tools(timeout=0.3)[0]
    assert smi.status == "WARN" and "no answer in 0.3 s" in smi.found and smi.fix


def test_a_broken_tool_is_a_warning(tmp_path, monkeypatch):
    fake_tool(tmp_path, "rocminfo", "echo 'Unable to open /dev/kfd' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert check_rocm_tools()[1].status == "WARN"


@pytest.mark.parametrize("error", [ImportError("libamdhip64.so.7: cannot open"), RuntimeError("driver"), OSError("x")])
def test_a_torch_that_does_not_load_is_a_failure_with_its_reason(monkeypatch, error):
    def broken():
        raise error

    monkeypatch.setattr(doctor_probes, "torch_facts", broken)
    check = check_accelerator(isolated=False)
    assert check.status == "FAIL" and str(error) in check.found


def test_a_rocm_gpu_is_named(monkeypatch):
    device = {"name": "AMD Instinct MI300X", "arch": "gfx942", "memory": 192 * GIB}
    facts = {"version": "2.13.0", "hip": "7.2.1", "cuda": None, "devices": [device] * 8}
    monkeypatch.setattr(doctor_probes, "torch_facts", lambda: facts)
    check = check_accelerator(isolated=False)
    assert check.found == "8 x AMD Instinct MI300X (gfx942), 192 GiB each, ROCm 7.2.1"


def test_an_amd_gpu_without_a_rocm_torch_is_a_warning(monkeypatch):
    facts = {"version": "2.13.0+cpu", "hip": None, "cuda": None, "devices": []}
    monkeypatch.setattr(doctor_probes, "torch_facts", lambda: facts)
    monkeypatch.setattr(doctor_probes.Path, "exists", lambda self: str(self) == "/dev/kfd")
    check = check_accelerator(isolated=False)
    assert check.status == "WARN" and "not a ROCm build" in check.found and "environment.yml" in check.fix


def test_the_isolated_question_agrees():
    assert check_accelerator(isolated=True) == check_accelerator(isolated=False)


@pytest.mark.parametrize(("count", "worst", "code"), [(1, "OK", 0), (2, "WARN", 0), (3, "FAIL", 1)])
def test_report_carries_the_worst(capsys, count, worst, code):
    checks = [Check("OK", "a", "b"), Check("WARN", "f", "g", "e"), Check("FAIL", "c", "d")][:count]
    with pytest.raises(typer.Exit) as left:
        report(checks, True)
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], left.value.exit_code, len(found["checks"])) == (worst, code, count)
    assert count < 2 or found["checks"][1] == {"status": "WARN", "name": "f", "found": "g", "fix": "e"}


def test_every_library_of_the_course_is_pinned():
    pinned = pins()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in ("course", "lab", "test", "dev"):
        for requirement in extras[extra]:
            name = re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
            assert name == "rocm-guide" or name in pinned, f"{name} ({extra}) has no pin in constraints.txt"
    assert len(libraries()) > 15 and set(libraries()) <= set(pinned)
    assert not [n for n in pinned if n.startswith(("nvidia", "cuda"))]
    assert "+" not in pinned["torch"]


def test_environment_yml_names_the_pinned_versions():
    listed = dict(re.findall(r"^ +- ([\w.-]+)==([\w.]+)", (ROOT / "environment.yml").read_text(), re.M))
    pinned = pins()
    assert {n: v for n, v in listed.items() if pinned[n.lower()] != v} == {}
    # pip would put the package index's triton beside the ROCm build's for liger-kernel: the Makefile installs it alone.
    wanted = set(libraries()) - {"triton", "liger-kernel"}
    assert wanted <= set(listed), "every library of the course belongs into environment.yml"


def test_works_where_nothing_is_installed(tmp_path):
    """The sources of both packages alone, in a Python that has no site-packages at all."""
    code = "from rocm_guide.observe.doctor.diagnosis import diagnose\nfor c in diagnose(): print(c)"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'cdna')]}\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[FAIL\] torch +not installed -> pip install", done.stdout)
    assert re.search(r"\[WARN\] accelerator +unknown: torch is not installed", done.stdout)


def test_diagnose_looks_at_everything():
    names = [c.name for c in diagnose()]
    for name in ("python", "torch", "accelerator", "smi", "rocminfo", "memory", "disk", "cache", "numa"):
        assert name in names


def test_torchs_libraries_are_loaded_where_no_gpu_is(monkeypatch, tmp_path):
    """Torch itself is asked only if they do not load."""
    asked = []
    monkeypatch.setattr(doctor_probes, "ask_torch", lambda timeout: asked.append(timeout) or {"devices": []})
    version = doctor_probes.importlib.metadata.version("torch")
    assert doctor_probes.torch_on_disk(60)["version"].split("+")[0] == version.split("+")[0] and not asked
    (tmp_path / "lib").mkdir()
    (tmp_path / "version.py").write_text("__version__ = '9.9'\n")
    for name in ("c10", "torch_cpu"):
        (tmp_path / f"lib/lib{name}.so").write_text("no library")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(doctor_probes.importlib.util, "find_spec", lambda name: spec)
    assert doctor_probes.torch_on_disk(60) == {"devices": []} and asked == [60]
