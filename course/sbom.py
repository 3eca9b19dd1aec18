# SPDX-License-Identifier: MIT
"""`python -m course sbom`: everything that the course's lists pin, with licences, and what is known against it.

The bill of materials is CycloneDX (https://cyclonedx.org/docs/1.6/json/). Licences stand in ``licences.txt``, as each
distribution states its own; ``--update`` asks the package index for those of new pins. Advisories come from a clone of
https://github.com/pypa/advisory-database, so that the check needs no network: pip-audit asks a server, and no package
of the index has these data as they are today.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cdna.cli.options import JSON, OutFile, existing_folder
from rocm_guide.common.base import GuideError, shown, write_text

__all__ = ["LISTS", "Pin", "bill_of_materials", "known_against", "pinned_set", "read_licences", "read_pins", "sbom"]

ROOT = Path(__file__).resolve().parents[1]
LICENCES = Path(__file__).with_name("licences.txt")
NOT_STATED = "not stated"
#: The lists of pins, and what installs each.
LISTS = {
    "rocm_guide/data/constraints.txt": "make course, test, lab",
    "rocm_guide/data/quantization.txt": "notebooks 10 to 14",
    "rocm_guide/data/torchtune.txt": "notebook 06",
    "rocm_guide/data/evaluation.txt": "notebook 08",
    "rocm_guide/data/smollm2.txt": "MODEL=smollm2 without a hub",
    "benchmarks/kernels/peers_mi300x.txt": "benchmarks.kernels.peers_mi300x",
    "hub/requirements.txt": "make hub",
    "docs/site/requirements.txt": "make site",
    "docs/site/browser-requirements.txt": "make site-check",
}
#: Trove classifiers that name one licence exactly -> its SPDX identifier. "BSD License" may be one of several.
_SPDX = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


@dataclass(frozen=True)
class Pin:
    """A distribution of one version in the lists.

    Attributes:
        name, version: as pinned; the name in the index's spelling (lower case, hyphens).
        lists: the files that pin it.
        licence: an SPDX expression, else its own words; empty for one that is not in ``licences.txt``.
        needs: names of the distributions that it requires, where it is installed.
        hashes: SHA-256 of its files on the package index, of every platform; none for torch and triton, whose builds
            come from several places.
    """

    name: str
    version: str
    lists: tuple[str, ...] = ()
    licence: str = ""
    needs: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """Return its package URL, which names it in bills of materials."""
        return f"pkg:pypi/{self.name}@{self.version}"


def _index_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(file: Path) -> list[Pin]:
    """Return each NAME==VERSION of a list of requirements, with the hashes that follow it.

    Raises:
        GuideError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise GuideError(f"{file}: cannot be read ({e.strerror}); restore it with git checkout") from e
    found = re.findall(r"^([\w.-]+)==([\w.+!-]+)((?: \\\n)?(?: +--hash=sha256:[0-9a-f]{64}(?: \\\n)?)*)", text, re.M)
    return [Pin(_index_name(n), v, hashes=tuple(re.findall(r"[0-9a-f]{64}", rest))) for n, v, rest in found]


def licence_of(metadata: Mapping[str, str], classifiers: Sequence[str]) -> str:
    """Return the licence that a distribution states: its SPDX expression, else its classifiers, else its own words.

    >>> licence_of({}, ["License :: OSI Approved :: MIT License", "Topic :: Software Development"])
    'MIT'
    """
    if expression := metadata.get("License-Expression"):
        return expression
    named = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ") and not c.endswith("Approved")]
    if named:  # several may be a choice, or hold for parts
        return ", ".join(_SPDX.get(name, name) for name in named)
    words = (metadata.get("License") or "").strip().partition("\n")[0]  # some state the whole text, title first
    return words if len(words) < 80 else ""


def read_licences() -> dict[tuple[str, str], str]:
    """Return (name, version) -> licence, as ``licences.txt`` has them.

    >>> read_licences()["typer", dict((p.name, p.version) for p in pinned_set())["typer"]]
    'MIT'
    """
    lines = LICENCES.read_text(encoding="utf-8").splitlines()
    return {(n, v): words for n, v, words in (line.split(" ", 2) for line in lines if not line.startswith("#"))}


def update_licences(pins: Sequence[Pin]) -> list[Pin]:
    """Write ``licences.txt`` anew: what is not in it is asked of the package index, with pip. Returns what states none.

    Raises:
        GuideError: pip could not get their metadata.
    """
    known = read_licences()
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    for file in LISTS:  # one after the other: two lists may pin two versions of one name
        new = [
            f"{p.name}=={p.version}"
            for p in pins
            if file in p.lists and known.get((p.name, p.version), NOT_STATED) == NOT_STATED
        ]
        if not new:
            continue
        done = subprocess.run([*command, "--report", "-", *new], capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise GuideError(f"{file}: pip could not read the metadata ({shown(last, 200)}); is there a network?")
        for one in json.loads(done.stdout)["install"]:
            about = one["metadata"]
            told = {"License-Expression": about.get("license_expression", ""), "License": about.get("license", "")}
            licence = licence_of(told, about.get("classifier", ()))
            known[_index_name(about["name"]), about["version"].partition("+")[0]] = licence or NOT_STATED
    head = [line for line in LICENCES.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    lines = [f"{p.name} {p.version} {known.get((p.name, p.version), NOT_STATED)}" for p in pins]
    write_text(LICENCES, "\n".join([*head, *lines]) + "\n")
    return [p for p, line in zip(pins, lines, strict=True) if line.endswith(NOT_STATED)]


def pinned_set(files: Iterable[str] = LISTS) -> list[Pin]:
    """Return what the lists pin, by name, with their licences, and with the needs of those that are installed here.

    Args:
        files: the lists, below the repository.
    """
    pins: dict[tuple[str, str], Pin] = {}
    for file in files:
        for pin in read_pins(ROOT / file):
            known = pins.setdefault((pin.name, pin.version), pin)
            hashes = tuple(sorted({*known.hashes, *pin.hashes}))
            pins[pin.name, pin.version] = replace(known, lists=(*known.lists, file), hashes=hashes)
    needs: dict[str, tuple[str, ...]] = {}
    for one in importlib.metadata.distributions():
        # What only an extra asks for is not needed.
        named = (re.match(r"[\w.-]+", r) for r in one.requires or () if "extra ==" not in r)
        needs.setdefault(_index_name(one.metadata["Name"]), tuple(sorted({_index_name(m[0]) for m in named if m})))
    licences = read_licences()
    return [
        replace(pin, licence=licences.get((pin.name, pin.version), ""), needs=needs.get(pin.name, ()))
        for pin in sorted(pins.values(), key=lambda p: (p.name, p.version))
    ]


def bill_of_materials(pins: Sequence[Pin]) -> dict[str, Any]:
    """Return the CycloneDX 1.6 document of these pins; the same ones give the same document.

    >>> found = bill_of_materials([Pin("numpy", "2.3.1", ("constraints.txt",), "BSD-3-Clause")])
    >>> found["components"][0]["purl"], found["components"][0]["licenses"]
    ('pkg:pypi/numpy@2.3.1', [{'license': {'name': 'BSD-3-Clause'}}])
    """
    from rocm_guide import __version__

    course = f"pkg:pypi/rocm-guide@{__version__}"
    by_name: dict[str, list[Pin]] = {}
    for pin in pins:
        by_name.setdefault(pin.name, []).append(pin)
    components: list[dict[str, Any]] = []
    graph: list[dict[str, Any]] = [{"ref": course, "dependsOn": [pin.purl for pin in pins]}]
    for pin in pins:
        entry: dict[str, Any] = {"type": "library", "bom-ref": pin.purl, "name": pin.name, "version": pin.version}
        entry["purl"] = pin.purl
        if pin.licence:
            entry["licenses"] = [{"license": {"name": pin.licence}}]
        if pin.hashes:  # of its files, of which one is installed: not of the component itself
            files = [{"alg": "SHA-256", "content": one} for one in pin.hashes]
            entry["externalReferences"] = [{"type": "distribution", "url": pin.purl, "hashes": files}]
        entry["properties"] = [{"name": "rocm-guide:list", "value": file} for file in pin.lists]
        components.append(entry)
        # Two lists may pin two versions of one name, for two environments: the one of its own list is meant.
        needed = [
            other.purl
            for name in pin.needs
            for other in by_name.get(name, ())
            if len(by_name[name]) == 1 or set(other.lists) & set(pin.lists)
        ]
        graph.append({"ref": pin.purl, "dependsOn": needed})
    digest = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([components, graph], sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{digest}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": course,
                "name": "rocm-guide",
                "version": __version__,
                "purl": course,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": components,
        "dependencies": graph,
    }


def _is_affected(version: str, entry: Mapping[str, Any]) -> bool:
    """Return whether one ``affected`` entry of an advisory (OSV schema) holds for a version."""
    from packaging.version import InvalidVersion, Version

    here = Version(version)
    for listed in entry.get("versions") or ():
        try:
            if Version(str(listed)) == here:
                return True
        except InvalidVersion:
            continue  # a version of before the index had rules; ours is none of these
    for span in entry.get("ranges") or ():
        if span.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in sorted(span["events"], key=lambda e: Version(str(next(iter(e.values()))))):
            (kind, at), *_ = event.items()
            if kind == "introduced" and here >= Version(str(at)):
                inside = True
            elif (kind == "fixed" and here >= Version(str(at))) or (
                kind == "last_affected" and here > Version(str(at))
            ):
                inside = False
        if inside:
            return True
    return False


def known_against(pins: Sequence[Pin], database: Path) -> tuple[list[tuple[Pin, str, str]], int]:
    """Return the advisories that hold for these pins, as (pin, its id, aliases), and how many were read.

    Args:
        pins: what to look for.
        database: a clone of https://github.com/pypa/advisory-database.

    Raises:
        GuideError: the folder is no such clone, or one of its files is no advisory.
    """
    import yaml

    vulns = database / "vulns"
    if not vulns.is_dir():
        raise GuideError(f"{database}: has no folder vulns; git clone https://github.com/pypa/advisory-database")
    found, read = [], 0
    for pin in pins:
        for file in sorted((vulns / pin.name).glob("*.yaml")):
            try:
                advisory = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
                entries = [e for e in advisory["affected"] if _index_name(e["package"]["name"]) == pin.name]
                holds = not advisory.get("withdrawn") and any(_is_affected(pin.version, e) for e in entries)
            except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as e:
                raise GuideError(f"{file}: no advisory ({type(e).__name__}: {e!s:.80}); git pull in its clone") from e
            read += 1
            if holds:
                found.append((pin, str(advisory["id"]), ", ".join(map(str, advisory.get("aliases") or ()))))
    return found, read


def sbom(
    out: OutFile = None,
    as_json: JSON = False,
    advisories: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Look into a clone of github.com/pypa/advisory-database; exit code 1 if one holds.",
            callback=existing_folder,
        ),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Ask the package index for licences of new pins.")] = False,
) -> None:
    """List everything that is pinned, with its licence; with --json or --out the bill of materials (CycloneDX 1.6)."""
    from cdna.cli.output import print_table, say, write_or_print

    pins = pinned_set()
    if update:
        silent = update_licences(pins)
        by_hand = ", ".join(p.name for p in silent) or "none"
        say(f"{len(pins)} licences in {LICENCES.name}; to be looked up by hand: {by_hand}")
        return
    if advisories is not None:
        found, read = known_against(pins, advisories)
        for pin, name, aliases in found:
            say(f"[FAIL] {pin.name} {pin.version}: {name} ({aliases or 'no other name'}), in {', '.join(pin.lists)}")
        say(f"{len(pins)} pins, {read} advisories about them in {shown(advisories)}, {len(found)} hold")
        raise typer.Exit(1 if found else 0)
    if as_json or out is not None:
        write_or_print(json.dumps(bill_of_materials(pins), indent=1) + "\n", out)
        return
    rows = [(p.name, p.version, p.licence or "unknown: --update", p.lists[0]) for p in pins]
    print_table([("distribution", "version", "licence", "list"), *rows], folded=(2,))
