# SPDX-License-Identifier: MIT
"""The first commands on a new machine: their output if the tool is there, else a sample that is labelled as one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

from rocm_guide.common.base import GuideError
from rocm_guide.observe.system.machine import Machine, SystemSettingError

__all__ = ["fields_of", "tool_output", "torch_checks"]

#: What each tool prints for one MI300X, in the tool's shape, written by us: the specification's values, and "…" where
#: a live reading or a serial number stands. Sources: MI300X data sheet; ROCm documentation, pages "rocminfo",
#: "AMD SMI" and "ROCm SMI".
SAMPLES: dict[str, str] = {
    tool: files("rocm_guide").joinpath("data", f"sample_{tool}.txt").read_text(encoding="utf-8")
    for tool in ("amd-smi", "rocm-smi", "rocminfo")
}
_ARGUMENTS: dict[str, tuple[str, ...]] = {"amd-smi": ("static", "--asic", "--vram"), "rocm-smi": (), "rocminfo": ()}


@dataclass(frozen=True)
class ToolOutput:
    """The text that a tool printed here (``real``), or the sample for a machine without it; printing it says which."""

    command: str
    text: str
    real: bool

    def __str__(self) -> str:
        origin = "printed by this machine" if self.real else "SAMPLE of what an MI300X prints (no AMD GPU here)"
        return f"$ {self.command}    [{origin}]\n{self.text.rstrip()}"


def tool_output(tool: str, *, timeout: float = 20) -> ToolOutput:
    """Run ``amd-smi``, ``rocm-smi`` or ``rocminfo`` and give its output, or the labelled sample if that fails.

    Args:
        timeout: seconds to wait; a driver that hangs must not hang us.

    Raises:
        GuideError: not one of these tools.

    >>> print(tool_output("rocminfo").command)
    rocminfo
    """
    if tool not in SAMPLES:
        raise GuideError(f"tool={tool}: choose from {', '.join(SAMPLES)}")
    command = [tool, *_ARGUMENTS[tool]]
    try:
        printed = Machine().run(command, timeout=timeout)
    except SystemSettingError:
        printed = ""
    real = bool(printed.strip())
    return ToolOutput(" ".join(command), printed if real else SAMPLES[tool], real)


def fields_of(text: str, *, agent: str | None = None) -> dict[str, str]:
    """Return the ``name: value`` lines of a tool's output; a name that comes twice keeps its first value.

    Args:
        text: what rocminfo or amd-smi printed.
        agent: of rocminfo's output, only the first agent whose name starts with this ("gfx" for a GPU).

    Raises:
        GuideError: there is no such agent.

    >>> found = fields_of(SAMPLES["rocminfo"], agent="gfx")
    >>> int(found["Compute Unit"]) * int(found["SIMDs per CU"])
    1216
    """
    if agent is not None:
        parts = re.split(r"(?m)^\*+\s*\nAgent\b.*\n\*+\s*$", text)
        mine = [p for p in parts if re.search(rf"(?m)^\s*Name:\s+{re.escape(agent)}", p)]
        if not mine:
            raise GuideError(f"agent={agent}: rocminfo lists none; check /dev/kfd and the groups video and render")
        text = mine[0]
    found: dict[str, str] = {}
    for name, value in re.findall(r"(?m)^\s*([^:\n]+):[ \t]+(\S.*?)\s*$", text):
        found.setdefault(name.strip(), value)
    return found


def torch_checks() -> dict[str, str]:
    """Return the questions that show whether torch can use the GPU, each with this machine's answer."""
    import torch

    answers = {
        "torch.__version__": torch.__version__,
        "torch.version.hip": str(torch.version.hip),
        "torch.version.cuda": str(torch.version.cuda),
        "torch.cuda.is_available()": str(torch.cuda.is_available()),
        "torch.cuda.device_count()": str(torch.cuda.device_count()),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        answers["torch.cuda.get_device_name(0)"] = torch.cuda.get_device_name(0)
        answers["total memory"] = f"{properties.total_memory / 2**30:.1f} GiB"
        answers["multi_processor_count"] = str(properties.multi_processor_count)
    return answers
