# SPDX-License-Identifier: MIT
"""The single checks behind `rocm-guide doctor`: each looks at one thing and says what to do about it.

Every check works on a machine that has nothing but Python: what is missing becomes a line, never a traceback.
"""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from cdna.checks import Check
from rocm_guide.common.base import GuideError, check_private, own_folder, shown, write_bytes
from rocm_guide.common.host import cores, gpu_possible, host_facts
from rocm_guide.common.installation import install_fix
from rocm_guide.observe.system.machine import Machine, SystemSettingError

__all__ = ["ask_torch", "gpu_nodes"]

GIB = 2**30
#: Releases of Triton that pyproject.toml allows; `make worlds` runs every notebook that compiles with each of them.
TRITON_RELEASES = ("3.6", "3.7", "3.8", "3.9")
# PyTorch's ROCm builds bring Triton under a project name of their own.
_PROJECTS = {"triton": ("triton", "triton-rocm", "pytorch-triton-rocm")}


def pins() -> dict[str, str]:
    """Return the exact versions that the course was tested with, by normalised project name.

    They are read from ``constraints.txt``, which ships inside the package. A copy of this helper has no such file
    beside it and gets an empty answer: nothing is pinned there.
    """
    try:
        text = resources.files("rocm_guide").joinpath("data", "constraints.txt").read_text()
    except (ModuleNotFoundError, FileNotFoundError):
        return {}
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", text, re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def check_python() -> Check:
    """Check for Python 3.11, 3.12 or 3.13: what the pinned libraries have wheels for."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("OK", "python", version)
    return Check("FAIL", "python", version, "use Python 3.11, 3.12 or 3.13")


def check_libraries(names: Iterable[str], pinned: dict[str, str]) -> list[Check]:
    """Compare installed versions with ``pinned``. The local part ("+cpu", "+rocm7.1") does not count.

    Another version than the pinned one is a warning: most will do, and a ROCm image brings its own torch. For Triton
    see :func:`check_triton`.

    >>> check_libraries(["no-such-library"], {})[0].status
    'FAIL'
    """
    checks = []
    for name in names:
        want = pinned.get(name)
        project, have = _installed(name)
        if not have:
            checks.append(Check("FAIL", name, "not installed", install_fix([name])))
        elif want is None or have.split("+")[0] == want.split("+")[0]:
            checks.append(Check("OK", name, have))
        elif name == "triton":
            checks.append(check_triton(have, want, named=_named_by_torch(f"{project}=={have}")))
        else:
            fix = f"if something fails: pip install {name}=={want}"
            checks.append(Check("WARN", name, f"{have}, tested with {want}", fix))
    return checks


def _installed(name: str) -> tuple[str, str]:
    """Return the project that brings a library, and its version; both empty if there is none."""
    for project in _PROJECTS.get(name, (name,)):
        try:
            return project, importlib.metadata.version(project)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "", ""


def check_triton(have: str, want: str, *, named: bool) -> Check:
    """Say what the course was checked with, for another Triton than the pinned one.

    Args:
        have, want: the version that is installed, and the pinned one, whose figures the texts and stored tables show.
        named: whether torch itself names this version: it is then the right one for that build, whatever is pinned.

    >>> print(check_triton("3.8.0", "3.9.0", named=False))
    [OK]   triton       3.8.0; notebooks ran with 3.6, 3.7, 3.8, 3.9, figures in the texts are 3.9.0's
    """
    found = f"{have}, which this build of torch names" if named else have
    if ".".join(have.split(".")[:2]) in TRITON_RELEASES:
        run = ", ".join(TRITON_RELEASES)
        return Check("OK", "triton", f"{found}; notebooks ran with {run}, figures in the texts are {want}'s")
    fix = "" if named else f"if something fails: pip install triton=={want}"
    return Check("WARN", "triton", f"{found}; the course was never run with this release, tested with {want}", fix)


def _named_by_torch(requirement: str) -> bool:
    try:
        required = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(r.split(";")[0].strip() == requirement for r in required)


def torch_facts() -> dict[str, Any]:
    """Return what torch sees, as plain data: version, ROCm or CUDA build, devices with their memory in bytes."""
    import torch

    devices = []
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            props = torch.cuda.get_device_properties(i)
            arch = getattr(props, "gcnArchName", f"sm_{props.major}{props.minor}")
            devices.append({"name": props.name, "arch": arch.split(":")[0], "memory": props.total_memory})
    builds = {"hip": getattr(torch.version, "hip", None), "cuda": torch.version.cuda}
    return {"version": torch.__version__, **builds, "devices": devices}


def check_accelerator(*, isolated: bool = True, timeout: float = 120) -> Check:
    """Check which GPU torch can use, and whether one is plugged in that it cannot.

    Args:
        isolated: ask torch in a process of its own, so that a driver that hangs or crashes costs us only the time-out.
        timeout: seconds to wait for that process.
    """
    name = "accelerator"
    amd, nvidia = Path("/dev/kfd").exists(), Path("/dev/nvidiactl").exists()
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Check("WARN", name, "unknown: torch is not installed", install_fix(["torch"]))
    try:
        if isolated and not gpu_possible():
            facts = torch_on_disk(timeout)
        else:
            facts = ask_torch(timeout) if isolated else torch_facts()
    except subprocess.TimeoutExpired:
        return Check("FAIL", name, f"no answer in {timeout:g} s", "the driver hangs: try rocminfo, then a reboot")
    except (ImportError, OSError, RuntimeError) as e:
        last = (str(e).strip().splitlines() or ["unknown error"])[-1]
        return Check("FAIL", name, f"torch cannot be used: {last[:120]}", "reinstall torch for this machine")
    devices = list(facts["devices"])
    if devices:
        first = devices[0]
        build = f"ROCm {facts['hip']}" if facts["hip"] else f"CUDA {facts['cuda']}"
        text = f"{len(devices)} x {first['name']} ({first['arch']}), {first['memory'] / GIB:.0f} GiB each, {build}"
        return Check("OK", name, text)
    if amd and not facts["hip"]:
        fix = "install the ROCm build of torch (environment-rocm10.yml or environment.yml)"
        return Check("WARN", name, f"an AMD GPU is here, torch {facts['version']} is not a ROCm build", fix)
    if amd or (nvidia and facts["cuda"]):
        fix = "add yourself to the groups video and render; in a container pass --device=/dev/kfd --device=/dev/dri"
        return Check("WARN", name, "a GPU is plugged in but torch cannot open it", fix if amd else "run nvidia-smi")
    return Check("OK", name, f"none, {cores()} CPU cores: every notebook runs at tiny scale")


def torch_on_disk(timeout: float) -> dict[str, Any]:
    """Return :func:`torch_facts` where there is no GPU, in a tenth of the time: torch's libraries load, none is asked.

    Where they do not load this simply, torch itself is asked what is wrong.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ask_torch(timeout)
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(\w+)(?:: [^=\n]+)? = ['\"]([^'\"]+)", text, re.M))
    # In a process of its own: a library for another CPU ends the process that loads it.
    libraries = [str(p) for n in ("c10", "torch_cpu") for p in folder.glob(f"lib/lib{n}.*")]
    # Without what the libraries do at an exit, which takes as long as half of the loading.
    code = "import ctypes, os, sys\nfor name in sys.argv[1:]: ctypes.CDLL(name)\nos._exit(0)"
    command = [sys.executable, "-S", "-c", code, *libraries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode or not libraries or "__version__" not in found:
        return ask_torch(timeout)
    return {"version": found["__version__"], "hip": found.get("hip"), "cuda": found.get("cuda"), "devices": []}


def gpu_nodes() -> list[Path]:
    """Return the device files that are here through which torch reaches a GPU: AMD, NVIDIA, either under Windows."""
    return [p for p in map(Path, ("/dev/kfd", "/dev/nvidiactl", "/dev/dxg")) if p.exists()]


def ask_torch(timeout: float) -> dict[str, Any]:
    """Return :func:`torch_facts` asked in another process of the same Python."""
    import inspect

    code = "from __future__ import annotations\n" + inspect.getsource(torch_facts)
    code += "\nimport json\nprint(json.dumps(torch_facts()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def check_rocm_tools(timeout: float = 20) -> list[Check]:
    """Run amd-smi (or the older rocm-smi) and rocminfo, each with a time-out.

    Without an AMD GPU they are not needed, and their absence is fine.
    """
    needed = Path("/dev/kfd").exists()
    machine, checks = Machine(), []
    for label, commands in (
        ("smi", (["amd-smi", "version"], ["rocm-smi", "--version"])),
        ("rocminfo", (["rocminfo"],)),
    ):
        command = next((c for c in commands if machine.find(c[0])), None)
        if command is None:
            names = " or ".join(c[0] for c in commands)
            fix = "install ROCm's command-line tools, or put /opt/rocm/bin on PATH" if needed else ""
            found = f"{names} not found" + ("" if needed else ", not needed without an AMD GPU")
            checks.append(Check("WARN" if needed else "OK", label, found, fix))
            continue
        fix = "check the amdgpu driver (dmesg | tail), /dev/kfd and the groups video and render"
        try:
            printed = machine.run(command, timeout=timeout).strip()
        except SystemSettingError as e:
            checks.append(Check("WARN", label, str(e), fix))
            continue
        gpus = re.findall(r"^\s*Name:\s+(gfx\w+)", printed, re.M)
        if label == "smi":
            first = printed.splitlines()[0][:90] if printed else "no output"
            checks.append(Check("OK", label, f"{command[0]}: {first}"))
        elif gpus:
            checks.append(Check("OK", label, f"{len(gpus)} GPU agent(s): {', '.join(sorted(set(gpus)))}"))
        else:
            checks.append(Check("WARN", label, "no GPU agent", fix))
    return checks


def check_memory(available: int, total: int) -> Check:
    """Check that there is memory for the largest notebook; at tiny scale every one of them stays within 4 GiB.

    >>> check_memory(1 * 2**30, 8 * 2**30).status
    'FAIL'
    """
    if not total:
        return Check("OK", "memory", "unknown on this system; 4 GiB are needed")
    text = f"{available / GIB:.1f} GiB free of {total / GIB:.1f}"
    if available >= 4 * GIB:
        return Check("OK", "memory", text)
    fix = "close other programs or kernels; 4 GiB are needed"
    return Check("WARN" if available >= 2 * GIB else "FAIL", "memory", text, fix)


def check_cache(folder: Path) -> Check:
    """Check that we can write to the cache folder, by writing there, since permissions alone do not tell (full disks).

    A folder that is only read (an image, a class's shared disk) will do if it holds the tiny model; one that other
    users can write to will not, whatever it holds.
    """
    name = shown(folder).replace(os.path.expanduser("~"), "~", 1)  # noqa: PTH111 - there may be no home
    try:
        check_private(folder)
    except GuideError as e:
        return Check("FAIL", "cache", str(e).partition(";")[0], "set ROCM_GUIDE_CACHE to a folder of your own")
    try:
        write_bytes(own_folder(folder) / f".probe-{os.getpid()}", b"x" * 4096).unlink()
    except GuideError as e:
        reason = str(e).split("(")[-1].split(")")[0]
        if reason in map(os.strerror, (errno.EROFS, errno.EACCES, errno.EPERM)):
            with suppress(OSError):
                if any(folder.glob("tiny-seed0-*/manifest.json")):
                    return Check("OK", "cache", f"{name} is read-only, and holds the tiny model")
        return Check("FAIL", "cache", f"{name}: {reason}", "set ROCM_GUIDE_CACHE to a folder you can write to")
    return Check("OK", "cache", f"{name} is writable")


def check_disk(folder: Path) -> Check:
    """Check the free space on the disk of ``folder`` (or of its nearest parent that exists)."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free"
    if free >= 5 * GIB:
        return Check("OK", "disk", text)
    fix = "free some space, or set ROCM_GUIDE_CACHE to another disk; 5 GiB are comfortable, 1 GiB is the least"
    return Check("WARN" if free >= GIB else "FAIL", "disk", text, fix)


def check_host() -> list[Check]:
    """Return the CPU with what it can compute, and the operating system with its C library, for a report."""
    facts = host_facts()
    features = ", ".join(facts["features"]) or "none of those that kernels ask for"
    cpu = f"{facts['cpu']} ({facts['arch']}), {facts['cores']} cores; {features}"
    return [Check("OK", "cpu", cpu), Check("OK", "system", f"{facts['os']}, {facts['libc']}")]
