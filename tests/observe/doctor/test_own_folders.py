# SPDX-License-Identifier: MIT
"""Libraries in folders of their own: one table that the doctor, the Makefile and the notebooks' processes read."""

import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_guide.observe.doctor.diagnosis import diagnose
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS, LibraryMissingError, main

ROOT = Path(__file__).parents[3]
BOTH = pytest.mark.parametrize("own", OWN_FOLDERS.values(), ids=list(OWN_FOLDERS))


def variable(own):
    return f"ROCM_GUIDE_{own.name.upper()}"


def test_the_makefile_installs_every_row_and_nothing_else():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^OWN_FOLDERS := (.+)$", text, re.M).group(1).split() == list(OWN_FOLDERS)
    assert not re.search(r"pip install.*--target|gptqmodel|bitsandbytes", text)


def test_the_doctor_has_a_line_for_every_row():
    assert set(OWN_FOLDERS) <= {check.name for check in diagnose()}


def test_what_belongs_to_one_environment_lies_where_make_keeps_its_state(monkeypatch, tmp_path):
    monkeypatch.delenv("ROCM_GUIDE_QUANTIZATION", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert OWN_FOLDERS["quantization"].path == ROOT / "build/own-environment/quantization"
    (tmp_path / "installed").mkdir()
    assert OWN_FOLDERS["quantization"].path == tmp_path / "installed/quantization"


@BOTH
def test_missing_incomplete_and_complete(own, monkeypatch, tmp_path):
    monkeypatch.setenv(variable(own), str(tmp_path / own.name))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert own.check().status == "WARN" and "not installed (only for notebook" in own.check().found
    for line in own.requirements[1:]:
        (own.path / (line.replace("-", "_").replace("==", "-") + ".dist-info")).mkdir(parents=True)
    first = own.requirements[0].replace("-", "_").replace("==", "-")
    assert own.check().found == f"its folder lacks {first}" and str(own.path) in own.check().fix
    (own.path / f"{first}.dist-info").mkdir()
    assert own.check().status == "OK" and own.check().found.endswith("in a folder of its own")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("it is complete"))
    assert not own.install() and main([own.name]) == 0


@BOTH
def test_a_failed_installation_is_one_line_and_leaves_nothing(own, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(variable(own), str(tmp_path / "own"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    own = replace(own, listed=f"{own.name} @ file://{tmp_path}/no.whl\n")
    monkeypatch.setitem(OWN_FOLDERS, own.name, own)
    with pytest.raises(LibraryMissingError, match="could not be installed") as e:
        own.install()
    assert "\n" not in str(e.value) and list(tmp_path.iterdir()) == []
    assert main([own.name, "--news", str(tmp_path / "news")]) == 2
    assert not (tmp_path / "news").exists() and "could not be installed" in capsys.readouterr().err


def test_a_wheel_of_ones_own_is_installed_and_reported_once(monkeypatch, tmp_path, capsys):
    """The whole way through pip, without a network: a package of one file, listed in place of the quantization ones."""
    own = OWN_FOLDERS["quantization"]
    wheel = tmp_path / "gptqmodel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("gptqmodel.py", "__version__ = '1.0'\n")
        z.writestr("gptqmodel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: gptqmodel\nVersion: 1.0\n")
        z.writestr("gptqmodel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("gptqmodel-1.0.dist-info/RECORD", "gptqmodel.py,,\n")
    monkeypatch.setenv("ROCM_GUIDE_QUANTIZATION", str(tmp_path / "own"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    # Another file under that name and version is refused by its hash, and nothing is left.
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for hashed in (digest[::-1], digest):
        changed = replace(own, listed=f"# one\ngptqmodel==1.0 \\\n    --hash=sha256:{hashed}\n")
        assert changed.requirements == ["gptqmodel==1.0"]
        monkeypatch.setitem(OWN_FOLDERS, "quantization", changed)
        if hashed != digest:
            assert main(["quantization"]) == 2 and "could not be installed" in capsys.readouterr().err
            assert not (tmp_path / "own").exists()
    assert main(["quantization", "--news", str(tmp_path / "news")]) == 0
    assert "installing quantization in a folder of its own" in capsys.readouterr().out
    assert (tmp_path / "own" / "gptqmodel.py").is_file() and (tmp_path / "news").is_file()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")) == []


def test_a_name_without_a_folder_is_refused(capsys):
    with pytest.raises(SystemExit) as e:
        main(["gptqmodel"])
    assert e.value.code == 2 and "choose from quantization, torchtune" in capsys.readouterr().err
