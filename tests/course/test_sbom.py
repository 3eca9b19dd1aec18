# SPDX-License-Identifier: MIT
"""The bill of materials: every pin of every list with a licence and its hashes, advisories offline."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course.sbom import LISTS, Pin, bill_of_materials, known_against, licence_of, pinned_set, read_licences, read_pins
from rocm_guide.common.base import GuideError

ROOT = Path(__file__).parents[2]
#: Their builds for CPU, CUDA and ROCm come from several places, under one version or with a part of its own.
WITHOUT_HASHES = {"torch", "triton"}


def test_every_list_of_pins_in_the_repository_is_in_the_bill():
    tracked = subprocess.run(["git", "ls-files", "*.txt"], cwd=ROOT, capture_output=True, text=True, check=True)
    lists = {f for f in tracked.stdout.split() if re.search(r"^[\w.-]+==\d", (ROOT / f).read_text(), re.M)}
    # constraints.txt is a link to the package's; a binder installs the course with a torch of its own.
    assert lists - {"constraints.txt", "binder/requirements.txt"} == set(LISTS)
    assert (ROOT / "constraints.txt").resolve() == ROOT / "rocm_guide/data/constraints.txt"


@pytest.mark.parametrize("file", LISTS)
def test_every_pin_has_its_hashes(file):
    text = (ROOT / file).read_text()
    pins = read_pins(ROOT / file)
    assert len(pins) == len(re.findall("^[^#\\s]", text, re.M)) >= 2, "each line is a pin"
    assert (
        sum(len(p.hashes) for p in pins)
        == text.count("--hash=")
        == len(re.findall(" --hash=sha256:[0-9a-f]{64}\\b", text))
    )
    assert {p.name for p in pins if not p.hashes} == WITHOUT_HASHES & {p.name for p in pins}
    assert not re.search(r"https?://(?!github\.com)", text), "no address of an index"


def test_every_pin_has_a_licence_that_lets_it_be_used():
    pins = pinned_set()
    assert len(pins) > 200 and read_licences().keys() == {(p.name, p.version) for p in pins}, (
        "run python -m course sbom --update"
    )
    unknown = [p.name for p in pins if not re.search("MIT|BSD|Apache|apache|PSF|MPL|ISC|CNRI|Unlicense|CC0", p.licence)]
    assert not unknown, "look at these licences"


def test_an_installed_distribution_states_the_licence_of_the_list():
    licences, seen = read_licences(), 0
    for one in importlib.metadata.distributions():
        listed = licences.get((one.metadata["Name"].lower().replace("_", "-"), one.version))
        stated = licence_of(dict(one.metadata.items()), one.metadata.get_all("Classifier") or [])
        if listed and stated and one.metadata.get("License-Expression"):
            seen += 1
            assert listed == stated, one.metadata["Name"]
    assert seen > 20


def test_the_document_names_each_pin_once_and_its_needs_among_them():
    pins = [
        Pin("a", "1", ("x.txt",), "MIT", ("b", "not-pinned")),
        Pin("b", "1", ("x.txt",)),
        Pin("b", "2", ("y.txt",), "BSD-3-Clause"),
    ]
    found = bill_of_materials(pins)
    assert found["bomFormat"] == "CycloneDX" and found == bill_of_materials(pins)
    assert [c["purl"] for c in found["components"]] == ["pkg:pypi/a@1", "pkg:pypi/b@1", "pkg:pypi/b@2"]
    needs = {d["ref"]: d["dependsOn"] for d in found["dependencies"]}
    assert needs["pkg:pypi/a@1"] == ["pkg:pypi/b@1"], "the one of its own list"
    assert "licenses" not in found["components"][1] and "externalReferences" not in found["components"][1]
    whole = bill_of_materials(pinned_set())
    refs = [c["bom-ref"] for c in whole["components"]]
    assert len(refs) == len(set(refs)) and re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", whole["serialNumber"])
    assert {r for d in whole["dependencies"] for r in d["dependsOn"]} <= set(refs)
    listed = {p.purl: p.hashes for p in read_pins(ROOT / "rocm_guide/data/constraints.txt")}
    for one in whole["components"]:
        files = {h["content"] for e in one.get("externalReferences", ()) for h in e["hashes"] if h["alg"] == "SHA-256"}
        assert bool(files) == (one["name"] not in WITHOUT_HASHES) and files >= set(listed.get(one["purl"], ()))
    assert "pkg:pypi/numpy" in str(next(d for d in whole["dependencies"] if "/matplotlib@" in d["ref"]))


ADVISORY = """
id: PYSEC-2026-1
aliases: [CVE-2026-1]
affected:
- package: {name: Some_Thing, ecosystem: PyPI}
  ranges:
  - type: GIT
    events: [{introduced: '0'}, {fixed: abc}]
  - type: ECOSYSTEM
    events: [{fixed: '2.1'}, {introduced: '2.0'}, {introduced: '0'}, {fixed: '1.5'}]
  versions: ['3.0.0']
"""


@pytest.fixture
def database(tmp_path):
    (tmp_path / "vulns/some-thing").mkdir(parents=True)
    (tmp_path / "vulns/some-thing/PYSEC-2026-1.yaml").write_text(ADVISORY)
    return tmp_path


def test_an_advisory_holds_for_its_ranges_and_versions(database):
    versions = {"1.4": True, "1.5": False, "1.9": False, "2.0": True, "2.0.9": True, "2.1": False, "3.0": True}
    for version, holds in versions.items():
        found, read = known_against([Pin("some-thing", version)], database)
        assert read == 1 and bool(found) == holds, version
    assert found[0][1:] == ("PYSEC-2026-1", "CVE-2026-1")
    assert known_against([Pin("other", "1.0")], database) == ([], 0)
    file = database / "vulns/some-thing/PYSEC-2026-1.yaml"
    file.write_text(ADVISORY + "withdrawn: '2026-01-01T00:00:00Z'\n")
    assert known_against([Pin("some-thing", "2.0")], database) == ([], 1)
    for damaged in ("[", "id: x\n", "affected: 3\n"):
        file.write_text(damaged)
        with pytest.raises(GuideError, match=r"PYSEC-2026-1\.yaml: no advisory"):
            known_against([Pin("some-thing", "2.0")], database)
    with pytest.raises(GuideError, match="has no folder vulns; git clone"):
        known_against([], database / "vulns")


def test_the_command(database, tmp_path):
    def course(*words):
        command = [sys.executable, "-m", "course", "sbom", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    torch, typer = (next(p for p in pinned_set() if p.name == name) for name in ("torch", "typer"))
    assert re.search(rf"^typer +{re.escape(typer.version)} +MIT +rocm_guide/data/constraints", course().stdout, re.M)
    assert course("--out", tmp_path / "b.json").returncode == 0
    assert json.loads((tmp_path / "b.json").read_text()) == json.loads(course("--json").stdout)
    done = course("--advisories", database)
    assert done.returncode == 0 and "0 advisories about them" in done.stdout and done.stdout.endswith("0 hold\n")
    (database / "vulns/torch").mkdir()
    (database / "vulns/torch/PYSEC-2026-1.yaml").write_text(
        ADVISORY.replace("Some_Thing", "torch").replace("3.0.0", torch.version)
    )
    done = course("--advisories", database)
    assert done.returncode == 1 and f"[FAIL] torch {torch.version}: PYSEC-2026-1 (CVE-2026-1)" in done.stdout
