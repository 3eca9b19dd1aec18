# SPDX-License-Identifier: MIT
"""Read AMD GPU code objects (``.hsaco``, ``.co``): what the loader and the hardware are told about each kernel.

The metadata note says what the code uses; the 64-byte kernel descriptor says what the hardware allocates. Offload
bundles (clang's ``__CLANG_OFFLOAD_BUNDLE__``, also inside a host program) are opened.
Source: "User Guide for AMDGPU Backend", sections "Code Object", "Kernel Descriptor", "Code Object V5 Metadata", LLVM,
https://llvm.org/docs/AMDGPUUsage.html; "Clang Offload Bundler", https://clang.llvm.org/docs/ClangOffloadBundler.html.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from cdna.base import InputError
from cdna.elf.elf64 import ElfFile, ElfFormatError
from cdna.elf.msgpack import MsgpackError, decode_msgpack
from cdna.resources import METADATA_FIELDS, Resources

__all__ = ["CodeKernel", "ElfError", "read_code_object", "read_code_objects"]

_NT_AMDGPU_METADATA = 32
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_MAX_BUNDLE = 1 << 28


class ElfError(InputError):
    """The bytes are no AMD GPU code object, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The kernel descriptor, decoded: what the hardware gives each wave (registers) and workgroup (LDS, bytes)."""

    vgprs_allocated: int
    sgprs_allocated: int | None
    accum_offset: int | None
    lds_static: int
    scratch: int
    kernarg_bytes: int
    uses_scratch: bool


@dataclass(frozen=True, slots=True)
class CodeKernel:
    """One kernel of a code object: its descriptor, its metadata as written, and both merged into ``resources``.

    ``directives`` is the descriptor once more, in the words of the assembler's ``.amdhsa_`` directives for gfx942.
    """

    name: str
    descriptor: Descriptor | None
    metadata: dict[str, Any]
    resources: Resources
    directives: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object for one architecture; ``target`` is the full target name, ``features`` such as ``xnack+``."""

    arch: str
    target: str
    kernels: tuple[CodeKernel, ...]
    metadata_version: tuple[int, ...] = ()
    features: tuple[str, ...] = field(default=())


# Low byte of e_flags ("EF_AMDGPU_MACH"), for objects whose metadata names no target.
_MACH = {0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941"}
_MACH |= {0x4C: "gfx942", 0x4F: "gfx950", 0x36: "gfx1030", 0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102"}


def _descriptor(raw: bytes, arch: str) -> Descriptor:
    lds, scratch, kernarg = struct.unpack_from("<III", raw, 0)
    rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", raw, 44)
    granules = (rsrc1 & 0x3F) + 1
    unified = arch in ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")
    gfx9 = arch.startswith("gfx9")
    return Descriptor(
        vgprs_allocated=granules * (8 if unified or not gfx9 else 4),
        # gfx10 and later give every wave the same number of scalar registers and leave the field 0.
        sgprs_allocated=(((rsrc1 >> 6) & 0xF) // 2 + 1) * 16 if gfx9 else None,
        accum_offset=((rsrc3 & 0x3F) + 1) * 4 if unified else None,
        lds_static=lds,
        scratch=scratch,
        kernarg_bytes=kernarg,
        uses_scratch=bool(rsrc2 & 1),
    )


# Directive, word of the descriptor (byte offset), lowest bit, bits.
_FIELDS = (
    ("group_segment_fixed_size", 0, 0, 32),
    ("private_segment_fixed_size", 4, 0, 32),
    ("kernarg_size", 8, 0, 32),
    ("float_round_mode_32", 48, 12, 2),
    ("float_round_mode_16_64", 48, 14, 2),
    ("float_denorm_mode_32", 48, 16, 2),
    ("float_denorm_mode_16_64", 48, 18, 2),
    ("dx10_clamp", 48, 21, 1),
    ("ieee_mode", 48, 23, 1),
    ("fp16_overflow", 48, 26, 1),
    ("user_sgpr_count", 52, 1, 5),
    ("system_sgpr_workgroup_id_x", 52, 7, 1),
    ("system_sgpr_workgroup_id_y", 52, 8, 1),
    ("system_sgpr_workgroup_id_z", 52, 9, 1),
    ("system_sgpr_workgroup_info", 52, 10, 1),
    ("system_vgpr_workitem_id", 52, 11, 2),
    ("user_sgpr_private_segment_buffer", 56, 0, 1),
    ("user_sgpr_dispatch_ptr", 56, 1, 1),
    ("user_sgpr_queue_ptr", 56, 2, 1),
    ("user_sgpr_kernarg_segment_ptr", 56, 3, 1),
    ("user_sgpr_dispatch_id", 56, 4, 1),
    ("user_sgpr_flat_scratch_init", 56, 5, 1),
    ("user_sgpr_private_segment_size", 56, 6, 1),
    ("user_sgpr_kernarg_preload_length", 56, 16, 7),
    ("user_sgpr_kernarg_preload_offset", 56, 23, 9),
)


def _directives(raw: bytes) -> dict[str, int]:
    found = {name: struct.unpack_from("<I", raw, word)[0] >> low & (1 << bits) - 1 for name, word, low, bits in _FIELDS}
    rsrc3, rsrc1 = struct.unpack_from("<II", raw, 44)
    return found | {"next_free_vgpr": ((rsrc1 & 0x3F) + 1) * 8, "accum_offset": ((rsrc3 & 0x3F) + 1) * 4}


def _resources(descriptor: Descriptor | None, metadata: dict[str, Any], code_bytes: int | None) -> Resources:
    found: dict[str, int] = {}
    for key, name in METADATA_FIELDS.items():
        value = metadata.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
            found[name] = value
    if descriptor is not None:
        found["vgprs_allocated"] = descriptor.vgprs_allocated
        for name in ("sgprs_allocated", "accum_offset"):
            if (value := getattr(descriptor, name)) is not None:
                found[name] = value
        for name in ("lds_static", "scratch", "kernarg_bytes"):
            found.setdefault(name, getattr(descriptor, name))
    if "vgprs" in found:
        # With accumulation registers in use, they start at accum_offset; the note does not give the split exactly.
        found["arch_vgprs"] = found["vgprs"] if not found.get("agprs") else found.get("accum_offset", found["vgprs"])
    return Resources(**found, code_bytes=code_bytes)


def _metadata(elf: ElfFile) -> dict[str, Any]:
    for name, kind, data in elf.notes():
        if kind == _NT_AMDGPU_METADATA and name == "AMDGPU":
            found = decode_msgpack(data)
            return found if isinstance(found, dict) else {}
    return {}


def _one(data: bytes) -> CodeObject:
    elf = ElfFile(data)
    note = _metadata(elf)
    target = note.get("amdhsa.target")
    target = target if isinstance(target, str) else ""
    found = re.search(r"gfx[0-9a-f]{3,5}", target)
    arch = found[0] if found else _MACH.get(elf.flags & 0xFF, "")
    symbols = elf.symbols()
    sizes = {s.name: s.size for s in symbols if s.is_function}
    descriptors = {s.name[:-3]: elf.at(s.value, 64) for s in symbols if s.name.endswith(".kd")}
    listed = note.get("amdhsa.kernels")
    entries = [k for k in listed if isinstance(k, dict)] if isinstance(listed, list) else []
    by_name = {str(k.get(".symbol", "")).removesuffix(".kd") or str(k.get(".name", "")): k for k in entries}
    kernels = []
    for name in dict.fromkeys([*by_name, *descriptors]):
        raw = descriptors.get(name)
        descriptor = _descriptor(raw, arch) if raw else None
        entry = by_name.get(name, {})
        resources = _resources(descriptor, entry, sizes.get(name))
        kernels.append(CodeKernel(name, descriptor, entry, resources, _directives(raw) if raw else {}))
    version = note.get("amdhsa.version")
    numbers = tuple(v for v in version if isinstance(v, int)) if isinstance(version, list) else ()
    return CodeObject(arch, target, tuple(kernels), numbers, elf.features())


def _bundle_entries(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<Q", data, len(_BUNDLE))
    at = len(_BUNDLE) + 8
    parts = []
    if count > len(data) // 24:
        raise ElfError(f"an offload bundle of {count} entries in {len(data)} bytes is damaged; build it again")
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        if length > len(data) or offset + size > len(data):
            raise ElfError(f"an offload bundle points {offset + size} bytes into {len(data)}; the file is cut short")
        name = data[at + 24 : at + 24 + length]
        at += 24 + length
        if b"amdgcn" in name or b"amdgpu" in name:
            parts.append(data[offset : offset + size])
    return parts


def _inflate(data: bytes) -> bytes:
    """Open a compressed bundle (``CCOB``): version, method (0 zlib, 1 zstd), then sizes and a hash by version."""
    version, method = struct.unpack_from("<HH", data, 4)
    header = {1: 20, 2: 24, 3: 32}.get(version)
    if header is None or method != 0:
        raise ElfError("a compressed offload bundle of a kind this reader lacks; build with --no-offload-compress")
    stream = zlib.decompressobj()
    try:
        return stream.decompress(data[header:], _MAX_BUNDLE)
    except zlib.error as e:
        raise ElfError(f"the compressed offload bundle is damaged ({e}); build it again") from e


def read_code_objects(data: bytes) -> list[CodeObject]:
    """Return every code object in ``data``: one for a ``.hsaco``, one per architecture for an offload bundle or a
    program.

    Raises:
        ElfError: no code object in it, or a damaged one.
    """
    try:
        if data[:4] == b"CCOB":
            data = _inflate(data)
        start = data.find(_BUNDLE)
        if start >= 0 and (start == 0 or ElfFile(data).is_host):
            found = [_one(part) for part in _bundle_entries(data[start:]) if part]
        else:
            found = [_one(data)]
    except (ElfFormatError, MsgpackError, struct.error) as e:
        raise ElfError(f"not a readable AMD GPU code object: {e}; give a .hsaco or .co file") from e
    if not found:
        raise ElfError("the offload bundle holds no AMD GPU code; build it with --offload-arch=gfx942")
    return found


def read_code_object(data: bytes, arch: str = "") -> CodeObject:
    """Return the code object in ``data``; of a bundle the one for ``arch``, or the first.

    Raises:
        ElfError: no code object in it, a damaged one, or none for ``arch``.

    >>> read_code_object(b"MZ")
    Traceback (most recent call last):
        ...
    cdna.elf.code_object.ElfError: not a readable AMD GPU code object: no ELF header; give a .hsaco or \
.co file
    """
    found = read_code_objects(data)
    chosen = [c for c in found if not arch or c.arch == arch]
    if not chosen:
        raise ElfError(f"arch={arch}: the file holds code for {', '.join(sorted({c.arch for c in found}))}")
    return chosen[0]
