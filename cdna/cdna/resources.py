# SPDX-License-Identifier: MIT
"""Resources that a kernel asks for: registers, LDS, scratch, as the assembly or the code object states it.

Source: "User Guide for AMDGPU Backend", sections "Code Object Metadata" and "Kernel Descriptor", LLVM,
https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["METADATA_FIELDS", "Resources", "resources_from_text"]

_GRANULE_8 = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one kernel; None where the input does not say.

    ``vgprs`` is the total of the unified file (vector plus accumulation registers) that the code uses,
    ``vgprs_allocated`` what each wave gets by the kernel descriptor: rounded up to the granule, and more when
    ``waves_per_eu`` pads it. ``lds_static`` is in bytes and does not know Triton's dynamic LDS: that is
    ``kernel.metadata.shared``. ``scratch`` is in bytes per lane. ``llvm_occupancy`` is the comment that LLVM writes.
    """

    vgprs: int | None = None
    arch_vgprs: int | None = None
    agprs: int | None = None
    accum_offset: int | None = None
    vgprs_allocated: int | None = None
    sgprs: int | None = None
    sgprs_allocated: int | None = None
    lds_static: int | None = None
    scratch: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    max_workgroup_size: int | None = None
    wavefront_size: int | None = None
    kernarg_bytes: int | None = None
    code_bytes: int | None = None
    llvm_occupancy: int | None = None


def allocated_vgprs(count: int, arch: str = "gfx942") -> int:
    """Return the VGPRs that a wave is given when its code uses ``count`` of them: a multiple of the granule, at least
    one granule.

    The granule is 8 on gfx90a, gfx942 and gfx950 (one file for vector and accumulation registers), 4 on older gfx9.

    >>> [allocated_vgprs(n) for n in (0, 8, 65, 164)]
    [8, 8, 72, 168]
    """
    granule = 8 if arch.split(":")[0] in _GRANULE_8 else 4
    return max(1, -(-count // granule)) * granule


# Metadata note, written as YAML in assembly and as msgpack in a code object: same keys.
METADATA_FIELDS = {
    ".vgpr_count": "vgprs",
    ".agpr_count": "agprs",
    ".sgpr_count": "sgprs",
    ".group_segment_fixed_size": "lds_static",
    ".private_segment_fixed_size": "scratch",
    ".vgpr_spill_count": "vgpr_spills",
    ".sgpr_spill_count": "sgpr_spills",
    ".max_flat_workgroup_size": "max_workgroup_size",
    ".wavefront_size": "wavefront_size",
    ".kernarg_segment_size": "kernarg_bytes",
}
_COMMENT_FIELDS = {
    "NumVgprs": "arch_vgprs",
    "codeLenInByte": "code_bytes",
    "Occupancy": "llvm_occupancy",
}
_COMMENT = re.compile(r";\s*(\w+)\s*[:=]\s*(\d{1,9})\b")


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def resources_from_text(
    arch: str, directives: dict[str, str], comments: list[str], metadata: dict[str, str]
) -> Resources:
    """Put together what three parts of an assembly file say about one kernel; the metadata note wins over comments.

    Args:
        arch: for example ``gfx942``.
        directives: ``.amdhsa_…`` lines by name, without the prefix.
        comments: LLVM's comment lines after the function (``; NumVgprs: 140``).
        metadata: the kernel's own lines of the metadata note.

    >>> r = resources_from_text("gfx942", {"next_free_vgpr": "169"}, ["; NumVgprs: 66"], {".vgpr_count": "66"})
    >>> r.vgprs, r.vgprs_allocated
    (66, 176)
    """
    found: dict[str, int] = {}
    for line in comments:
        if (m := _COMMENT.match(line)) and m[1] in _COMMENT_FIELDS:
            found[_COMMENT_FIELDS[m[1]]] = int(m[2])
    for key, name in METADATA_FIELDS.items():
        if (value := _number(metadata.get(key, ""))) is not None:
            found[name] = value
    values = {key: _number(value) for key, value in directives.items()}
    pairs = (
        ("accum_offset", "accum_offset"),
        ("group_segment_fixed_size", "lds_static"),
        ("private_segment_fixed_size", "scratch"),
        ("kernarg_size", "kernarg_bytes"),
    )
    for key, name in pairs:
        if (value := values.get(key)) is not None:
            found.setdefault(name, value)
    # Newer LLVM may print an expression over symbols there; then what the note says is used is the best known.
    free = values.get("next_free_vgpr")
    if free is None and "next_free_vgpr" in directives:
        free = found.get("vgprs")
    if free is not None:
        found["vgprs_allocated"] = allocated_vgprs(free, arch)
    if (free := values.get("next_free_sgpr")) is not None and arch.startswith("gfx9"):
        # VCC takes two more scalar registers, XNACK and flat scratch four more; gfx9 allocates sixteen at a time.
        extra = 6 if values.get("reserve_xnack_mask") or "gfx94" in arch else 2 if values.get("reserve_vcc", 1) else 0
        found["sgprs_allocated"] = max(1, -(-(free + extra) // 16)) * 16
    if "vgprs" in found and "arch_vgprs" not in found and not found.get("agprs"):
        found["arch_vgprs"] = found["vgprs"]
    return Resources(**found)
