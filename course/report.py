# SPDX-License-Identifier: MIT
"""The record of a run: `report.json` for programs and for `--resume`, `report.html` for people."""

from __future__ import annotations

import hashlib
import html
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from course.cpu_time import CpuTime, busy_note
from rocm_guide.common.base import package_folder, write_text
from rocm_guide.common.host import describe_cpu
from rocm_guide.observe.doctor.diagnosis import libraries
from rocm_guide.observe.doctor.software import ask_torch, gpu_nodes

__all__ = ["times_of"]

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.45rem .7rem;border-bottom:1px solid #ddd}
th{font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}th.n{text-align:right}
.bar{background:#c9d7e8;height:.5rem;border-radius:2px;min-width:1px}.ok{color:#17692a}.failed,.refused{color:#a3171b}
.stopped,.missing{color:#7a5200}pre{background:#f5f5f5;padding:.8rem;overflow-x:auto;font-size:13px;line-height:1.35}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}dt{color:#555}dd{margin:0}a{color:#1f4e8c}
.wide{overflow-x:auto}summary,dd{overflow-wrap:anywhere}
@media(max-width:40rem){body{margin:.75rem auto;padding:0 .6rem}th,td{padding:.4rem .3rem}dl{grid-template-columns:1fr}
dd{margin-bottom:.5rem}th.more,td.more{display:none}pre{white-space:pre-wrap;overflow-wrap:anywhere}}
"""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the course's libraries as installed here.

    >>> "python" in versions()
    True
    """
    found = {"python": platform.python_version()}
    for name in libraries():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware(*, cpu_only: bool = False) -> str:
    """Return what the notebooks run on, in words:
    ``CPU, AMD EPYC 9654 Processor, 2 cores`` or ``1 x AMD Instinct MI300X``.

    >>> hardware(cpu_only=True).startswith("CPU, ")
    True
    """
    devices: list[dict[str, Any]] = []
    if not cpu_only and gpu_nodes():
        try:
            devices = ask_torch(120)["devices"]
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            devices = []  # the doctor explains why; the run goes on, on the CPU
    if devices:
        return f"{len(devices)} x {devices[0]['name']} ({devices[0]['arch']})"
    return describe_cpu()


def package_digest(folder: Path | None = None) -> str:
    """Return a digest of the helper library's own source: a result made by another version of it is stale."""
    digest = hashlib.sha256()
    folder = folder or package_folder()
    for path in sorted(p for p in folder.rglob("*.py") if "cli" not in p.relative_to(folder).parts):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def load_report(out: Path) -> dict[str, Any]:
    """Read the report of an earlier run in ``out``; an empty one if there is none or it cannot be read."""
    try:
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        return report if isinstance(report.get("notebooks"), dict) else {"notebooks": {}}
    except (OSError, ValueError, AttributeError):
        return {"notebooks": {}}


def is_current(entry: dict[str, Any] | None, wanted: dict[str, Any], out: Path) -> bool:
    """Return whether an earlier result still stands:
    it succeeded, its files are there, and nothing it came from changed.
    """
    if not entry or entry.get("status") != "ok":
        return False
    files = [out / entry[key] for key in ("notebook", "html")]
    return all(entry.get(k) == v for k, v in wanted.items()) and all(f.is_file() for f in files)


def _failure(entry: dict[str, Any]) -> str:
    failure = entry.get("failure")
    if not failure:
        return ""
    where = f"cell {failure['cell']} (“{failure['heading']}”): " if failure.get("cell") else ""
    text = f"{failure.get('source', '')}\n\n{failure.get('traceback', '')}".strip()
    summary = html.escape(f"{where}{failure['error']}: {failure['message']}")
    # The line says all about bad input; a defect is looked for in the traceback.
    state = " open" if entry["status"] == "failed" else ""
    opened = f"<details{state}><summary>{summary}</summary><pre>{html.escape(text)}</pre></details>"
    return f'<tr><td></td><td colspan="6">{opened if text else summary}</td></tr>'


def _row(entry: dict[str, Any], longest: float) -> str:
    title = html.escape(entry["title"])
    if entry.get("html"):
        title = f'<a href="{html.escape(entry["html"])}">{title}</a>'
    seconds, peak = entry.get("seconds") or 0, entry.get("peak_mib") or 0
    bar = f'<div class="bar" style="width:{100 * seconds / longest:.1f}%"></div>' if seconds else ""
    return (
        f'<tr><td>{entry["number"]}</td><td>{title}{bar}</td><td class="{entry["status"]}">{entry["status"]}</td>'
        f'<td class="n">{f"{seconds:.1f}" if seconds else "–"}</td>'
        f'<td class="n more">{_tenth(entry, "cpu_seconds")}</td>'
        f'<td class="n more">{_tenth(entry, "waited_seconds")}</td>'
        f'<td class="n">{f"{peak:,}" if peak else "–"}</td></tr>'
    )


def render(report: dict[str, Any]) -> str:
    """Render the report as one HTML page that needs nothing else."""
    entries = [report["notebooks"][n] for n in sorted(report["notebooks"])]
    longest = max((e.get("seconds") or 0 for e in entries), default=0) or 1
    counts = _count(e["status"] for e in entries)
    rows = "".join(_row(e, longest) + _failure(e) for e in entries)
    facts: Sequence[tuple[str, str]] = [
        ("Result", counts),
        ("Hardware", report["hardware"]),
        ("Machine", _machine(report.get("host", {}))),
        ("Parameters", ", ".join(f"{k}={v}" for k, v in report["parameters"]) or "as in the notebooks"),
        ("At a time", str(report["jobs"])),
        ("Time", times_of(report)),
        ("Versions", ", ".join(f"{k} {v}" for k, v in report["versions"].items())),
    ]
    listed = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>ROCm LLM Guide: run</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><h1>ROCm LLM Guide: run</h1><dl>{listed}</dl>"
        "<div class='wide'><table><thead><tr><th>No.</th><th>Notebook (bar: share of the longest)</th><th>Status</th>"
        '<th class="n">Seconds</th><th class="n more">on a core</th><th class="n more">waiting for one</th>'
        f'<th class="n">Peak MiB</th></tr></thead><tbody>{rows}</tbody></table></div></html>\n'
    )


def _machine(host: dict[str, Any]) -> str:
    """Return the CPU, operating system and C library in words; a report of an earlier release has none."""
    words = [host.get(k) for k in ("cpu", "os", "libc")]
    return ", ".join(str(w) for w in (*words, *host.get("features", [])) if w)


def _tenth(entry: dict[str, Any], key: str) -> str:
    return f"{entry[key]:.1f}" if entry.get(key) is not None else "–"


def times_of(report: dict[str, Any]) -> str:
    """Say in words where the time of a run went, with a note if the machine was busy with other things.

    >>> entry = {"cpu_seconds": 50.0, "waited_seconds": 10.0}
    >>> times_of({"installed_in": 95.0, "ran_in": 61.0, "notebooks": {"01": entry}})
    'installed in 95 s, ran in 61 s; the notebooks were 50 s on a core and waited 10 s for one'
    """
    parts = [
        f"{word} in {report[key]:.0f} s"
        for word, key in (("installed", "installed_in"), ("ran", "ran_in"))
        if report.get(key) is not None
    ]
    told = [e for e in report["notebooks"].values() if e.get("cpu_seconds")]
    total = sum((CpuTime(e["cpu_seconds"], e["waited_seconds"]) for e in told), CpuTime())
    if told:
        parts = [", ".join(parts)] if parts else []
        parts.append(f"the notebooks were {total.ran:.0f} s on a core and waited {total.waited:.0f} s for one")
    return "; ".join(filter(None, [*parts, busy_note(total)])) if told else ", ".join(parts)


def _count(statuses: Iterable[str]) -> str:
    found = list(statuses)
    return ", ".join(f"{found.count(s)} {s}" for s in dict.fromkeys(sorted(found))) or "nothing was run"


def save_report(report: dict[str, Any], out: Path) -> None:
    """Write both forms, each whole or not at all.

    Raises:
        GuideError: the folder cannot be written.
    """
    write_text(out / "report.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    write_text(out / "report.html", render(report))
