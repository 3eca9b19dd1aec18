# SPDX-License-Identifier: MIT
"""The pinned set installs on every supported Python, the first patch release of each included."""

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from course.sbom import read_pins
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0")


def pinned(file):
    """Name -> version, for every NAME==VERSION of a list of requirements."""
    return {p.name: p.version for p in read_pins(ROOT / "rocm_guide" / "data" / file)}


PINS = pinned("constraints.txt")
PROJECT, CDNA = (
    tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
    for file in ("pyproject.toml", "cdna/pyproject.toml")
)


def refused(distribution):
    """Supported Pythons that a distribution does not take."""
    wanted = distribution.metadata["Requires-Python"]
    return [p for p in PYTHONS if wanted and not SpecifierSet(wanted).contains(p)]


def test_every_pinned_distribution_takes_every_supported_python():
    checked, wrong = set(), []
    for one in importlib.metadata.distributions():
        name = canonicalize_name(one.metadata["Name"])
        if name in PINS and name not in checked:
            checked.add(name)
            # A ROCm build says 2.13.0+rocm7.2 for the pinned 2.13.0.
            if Version(one.version).public != PINS[name] and name != "pip":
                wrong.append(f"{name}: {one.version} is installed, {PINS[name]} is pinned; run make install")
            if where := refused(one):
                wrong.append(f"{name} {one.version} does not take Python {', '.join(where)}; pin an older version")
    assert len(checked) > 100
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("own", OWN_FOLDERS.values(), ids=list(OWN_FOLDERS))
def test_the_folders_of_their_own_take_every_supported_python(own):
    found = list(importlib.metadata.distributions(path=[str(own.path)]))
    if not found:
        pytest.skip(f"{own.name}'s libraries are not installed; make install puts them there")
    assert len(found) >= len(pinned(f"{own.name}.txt"))
    wrong = {one.metadata["Name"]: refused(one) for one in found}
    assert not any(wrong.values()), {n: w for n, w in wrong.items() if w}


def environment(python):
    return {"python_version": python.rsplit(".", 1)[0], "python_full_version": python, "extra": ""}


def test_what_a_pinned_distribution_requires_on_any_supported_python_is_pinned():
    """A requirement with a marker that holds on one Python only must not be left open there, nor contradict a pin."""
    wrong = set()
    for one in importlib.metadata.distributions():
        if canonicalize_name(one.metadata["Name"]) not in PINS:
            continue
        for line in one.requires or ():
            wanted = Requirement(line)
            name = canonicalize_name(wanted.name)
            held = [p for p in PYTHONS if wanted.marker is None or wanted.marker.evaluate(environment(p))]
            if held and name not in PINS and not name.startswith(("nvidia-", "cuda-", "triton-rocm")):
                wrong.add(f"{one.metadata['Name']} needs {name} on Python {', '.join(held)}: pin it")
            elif held and not wanted.specifier.contains(PINS.get(name, ""), prereleases=True):
                wrong.add(f"{one.metadata['Name']} needs {line} on Python {', '.join(held)}; {PINS[name]} is pinned")
    assert not wrong, "\n".join(sorted(wrong))


def test_the_project_itself_says_which_pythons():
    wanted = SpecifierSet(PROJECT["requires-python"])
    assert all(wanted.contains(p) for p in PYTHONS) and not wanted.contains("3.10.9") and not wanted.contains("3.14.0")


def test_every_direct_requirement_is_pinned_within_its_bounds():
    extras = [*PROJECT["optional-dependencies"].values(), *CDNA["optional-dependencies"].values()]
    for line in [*PROJECT["dependencies"], *CDNA["dependencies"], *(r for group in extras for r in group)]:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        assert name in ("rocm-guide", "cdna") or wanted.specifier.contains(PINS.get(name, "0")), (
            f"{line}: {PINS.get(name)}"
        )


def test_the_course_takes_the_cdna_beside_it_and_no_index_can_have_another():
    """A package index takes no version with a "+"; both projects ask for the same Pythons and libraries."""
    assert f"cdna=={CDNA['version']}" in PROJECT["dependencies"] and "+" in CDNA["version"]
    assert CDNA["requires-python"] == PROJECT["requires-python"]
    of_both = {Requirement(r).name: r for r in PROJECT["optional-dependencies"]["course"]}
    assert all(of_both.get(Requirement(r).name, r) == r for g in CDNA["optional-dependencies"].values() for r in g)


def test_conda_gets_the_same_versions():
    files = [(ROOT / f"environment{which}.yml").read_text(encoding="utf-8") for which in ("", "-rocm10")]
    for lines in files:
        same = {canonicalize_name(n): v for n, v in re.findall(r"^ +- ([\w-]+)(?:\[.*\])?==([\w.]+)", lines, re.M)}
        assert len(same) > 15 and "torch" in same and {n: PINS[n] for n in same} == same


def test_the_two_environments_differ_in_torch_alone():
    """PyTorch's own build for ROCm 7.2, and AMD's for ROCm 10 with the kernels of gfx942, each from its own index."""
    seven, ten = (
        [line.strip() for line in (ROOT / f"environment{which}.yml").read_text(encoding="utf-8").splitlines()]
        for which in ("", "-rocm10")
    )
    seven, ten = ([line for line in lines if not line.startswith("#")] for lines in (seven, ten))
    assert [(a, b) for a, b in zip(seven, ten, strict=True) if a != b] == [
        (
            "- --extra-index-url https://download.pytorch.org/whl/rocm7.2",
            "- --extra-index-url https://stable.repo.amd.com/rocm/whl-next/",
        ),
        (f"- torch=={PINS['torch']}+rocm7.2", f"- torch[device-gfx942]=={PINS['torch']}+rocm10.1.0"),
    ]


def test_the_makefile_brings_its_own_pip_and_setuptools():
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    sed = re.search(r"sed -n '(.+?)' rocm_guide/data/constraints.txt", made)[1].replace("$$", "$")
    command = ["sed", "-n", sed, str(ROOT / "rocm_guide/data/constraints.txt")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^(\S+)==", lines, re.M) == ["pip", "setuptools"] and lines.count("--hash=") >= 4
    assert not lines.rstrip().endswith("\\")


def pinned_for_pip(state, *without, pip="26.3", torch_needs="", root=ROOT):
    """What the Makefile gives to pip as constraints, in an environment with this pip and this torch."""
    for name, version, needs in (("torch", "9", torch_needs), ("pip", pip, "")):
        (state / f"{name}-{version}.dist-info").mkdir()
        line = f"Requires-Dist: {needs}\n" * bool(needs)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{line}"
        (state / f"{name}-{version}.dist-info/METADATA").write_text(metadata, encoding="utf-8")
    code = re.search(r"define PINNED\n(.+?)\nendef", (ROOT / "Makefile").read_text(encoding="utf-8"), re.S)[1]
    run = [sys.executable, "-c", code.replace("\\\n", ""), *without]
    return subprocess.run(
        run, cwd=root, env={"PYTHONPATH": str(state)}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "required, pinned",
    [("", True), ("triton==3.7.1; platform_system == 'Linux'", False), ("triton-rocm==3.7.1", False)],
)
def test_a_torch_that_names_its_triton_keeps_it(tmp_path, required, pinned):
    """The builds of the package index want another triton than the pinned one: pip found no set at all."""
    everything = (ROOT / "rocm_guide/data/constraints.txt").read_text(encoding="utf-8").splitlines()
    wanted = [x for x in everything if pinned or not x.startswith("triton==")]
    assert pinned_for_pip(tmp_path, torch_needs=required).splitlines() == ["--no-require-hashes", *wanted]


@pytest.mark.parametrize(
    "pip, hashed", [("26.3", True), ("26.10.1", True), ("27.0.dev0", True), ("26.2", False), ("9.0", False)]
)
def test_a_pip_that_would_ask_for_every_hash_gets_versions_alone(tmp_path, pip, hashed):
    given = pinned_for_pip(tmp_path, "torch", "triton", pip=pip)
    (tmp_path / "given.txt").write_text(given)
    pins = read_pins(tmp_path / "given.txt")
    assert {p.name: p.version for p in pins} == {n: v for n, v in PINS.items() if n not in ("torch", "triton")}
    assert all(bool(p.hashes) == hashed for p in pins)
    assert ("--hash=" in given) == ("\\\n" in given) == given.startswith("--no-require-hashes\n") == hashed


def test_pip_takes_no_file_whose_hash_is_not_in_the_list(tmp_path):
    """The list's hashes hold for what a library needs, too, and what has none (torch, this folder) is let through."""
    state, files, data = (tmp_path / name for name in ("state", "files", "rocm_guide/data"))
    for new in (state, files, data):
        new.mkdir(parents=True)
    hashes = {}
    for name, needs in (("has_hash", ""), ("needs_it", "has-hash"), ("without", "")):
        with zipfile.ZipFile(files / f"{name}-1-py3-none-any.whl", "w") as wheel:
            line = f"Requires-Dist: {needs}\n" * bool(needs)
            wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{line}")
            wheel.writestr(
                f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{name}-1.dist-info/RECORD", "")
        hashes[name] = hashlib.sha256((files / f"{name}-1-py3-none-any.whl").read_bytes()).hexdigest()

    def install(hash_of):
        listed = (("has_hash", hash_of), ("needs_it", hashes["needs_it"]))
        lines = [f"{name}==1 \\\n    --hash=sha256:{one}\n" for name, one in listed]
        (data / "constraints.txt").write_text("".join([*lines, "without==1\n"]))
        shutil.rmtree(state)
        state.mkdir()
        (tmp_path / "given.txt").write_text(pinned_for_pip(state, root=tmp_path))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--isolated",
            "--dry-run",
            "--no-index",
            "--find-links",
            str(files),
        ]
        command += ["--disable-pip-version-check", "--ignore-installed", "-c", str(tmp_path / "given.txt")]
        return subprocess.run([*command, "needs_it", "without"], capture_output=True, text=True)

    done = install(hashes["has_hash"])
    assert done.returncode == 0 and "Would install has_hash-1 needs_it-1 without-1" in done.stdout.replace(
        "-hash", "_hash"
    ), done.stderr
    done = install(hashes["without"])
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stderr
