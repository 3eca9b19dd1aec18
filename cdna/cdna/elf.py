# SPDX-License-Identifier: MIT
"""Read AMD GPU code objects (``.hsaco``, ``.co``): what the loader and the hardware are told about each kernel.

The metadata note says what the code uses; the 64-byte kernel descriptor says what the hardware allocates. Offload
bundles (clang's ``__CLANG_OFFLOAD_BUNDLE__``, also inside a host program) are opened. Of ELF64 it knows sections,
symbols, notes and bytes at an address. Every read is bounded: a damaged file cannot ask for much memory.
Source: "User Guide for AMDGPU Backend", sections "Code Object", "Kernel Descriptor", "Code Object V5 Metadata", LLVM,
https://llvm.org/docs/AMDGPUUsage.html; "Clang Offload Bundler", https://clang.llvm.org/docs/ClangOffloadBundler.html;
"System V ABI, Object Files", https://refspecs.linuxfoundation.org/elf; "MessagePack specification",
https://github.com/msgpack/msgpack.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from cdna.base import InputError
from cdna.resources import METADATA_FIELDS, Resources

__all__ = [
    "CodeKernel",
    "ElfError",
    "ElfFile",
    "ElfFormatError",
    "MsgpackError",
    "decode_msgpack",
    "read_code_object",
    "read_code_objects",
]

_MAX_DEPTH = 16
# A list is made at its stated length before its items are read, and lists nest: this bounds what a few bytes can claim.
_MAX_ITEMS = 1 << 16


class MsgpackError(ValueError):
    """The bytes are not msgpack, are cut short, or nest too deeply."""


def _refuse(code: int, data: bytes) -> Any:
    raise MsgpackError(f"extension type {code} has no place in a metadata note")


def decode_msgpack(data: bytes) -> Any:
    """Decode one msgpack value; bytes after it are ignored (notes are padded).

    Raises:
        MsgpackError: cut short, nested deeper than 16, a list or map longer than 65,536 or longer than the bytes that
            are there, or a type that metadata does not use.

    >>> decode_msgpack(bytes([0x81, 0xA1, 0x61, 0x93, 0x01, 0xFF, 0xC3]))
    {'a': [1, -1, True]}
    """
    unpacker = msgpack.Unpacker(
        raw=False,
        unicode_errors="replace",
        strict_map_key=False,
        max_buffer_size=len(data) + 1,
        max_array_len=min(_MAX_ITEMS, len(data)),
        max_map_len=min(_MAX_ITEMS, len(data) // 2),
        max_ext_len=0,
        ext_hook=_refuse,
    )
    unpacker.feed(data)
    try:
        value = unpacker.unpack()
    except msgpack.OutOfData as e:
        raise MsgpackError(f"cut short after {len(data)} bytes") from e
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise MsgpackError(str(e) or f"damaged ({type(e).__name__})") from e
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [x for v in level if isinstance(v, (list, dict)) for x in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return value
    raise MsgpackError(f"nested deeper than {_MAX_DEPTH}")


_EM_AMDGPU = 224
_SHT_SYMTAB, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 2, 7, 8, 11
_PT_NOTE = 4
_MAX_SYMBOLS = 1_000_000


class ElfFormatError(ValueError):
    """The bytes are not a readable ELF64 file."""


class Section(NamedTuple):
    """A section header: type, virtual address, offset and size in the file, linked section."""

    kind: int
    address: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """A symbol: name, address, size, section index."""

    name: str
    value: int
    size: int
    section: int
    is_function: bool


class ElfFile:
    """A read-only view of an ELF64 file in memory.

    >>> ElfFile(b"#!/bin/sh")
    Traceback (most recent call last):
        ...
    cdna.elf.ElfFormatError: no ELF header
    """

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or len(data) < 64:
            raise ElfFormatError("no ELF header")
        if data[4:6] != b"\x02\x01":
            raise ElfFormatError("not a little-endian 64-bit ELF file")
        self.data = data
        head = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.type, self.machine, self.flags = head[0], head[1], head[6]
        self.program_offset, section_offset = head[4], head[5]
        self.program_size, self.program_count, section_size, count = head[8:12]
        if section_offset and (section_size < 64 or section_offset + section_size * count > len(data)):
            raise ElfFormatError("the section table lies outside the file")
        self.sections: list[Section] = []
        for i in range(count if section_offset else 0):
            f = struct.unpack_from("<IIQQQQIIQQ", data, section_offset + i * section_size)
            self.sections.append(Section(f[1], f[3], f[4], f[5], f[6]))

    @property
    def is_host(self) -> bool:
        """Return whether this is a program for another processor (a host program with GPU code inside)."""
        return bool(self.machine != _EM_AMDGPU)

    def features(self) -> tuple[str, ...]:
        """Return the XNACK and SRAM-ECC settings from e_flags (code object version 4 and later)."""
        state = {1: "any", 2: "-", 3: "+"}
        pairs = (("xnack", (self.flags >> 8) & 3), ("sramecc", (self.flags >> 10) & 3))
        return tuple(f"{name}{state[value]}" for name, value in pairs if value in (2, 3))

    def part(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, or raise an error when they are not all there."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise ElfFormatError(f"{size} bytes at {offset} wanted of a file of {len(self.data)}; it is cut short")
        return self.data[offset : offset + size]

    def at(self, address: int, size: int) -> bytes:
        """Return bytes at a virtual address (in a relocatable object: none have one)."""
        for s in self.sections:
            if s.kind != _SHT_NOBITS and s.address and s.address <= address and address + size <= s.address + s.size:
                return self.part(s.offset + address - s.address, size)
        raise ElfFormatError(f"no section holds address {address:#x}; link the object into a code object first")

    def symbols(self) -> list[Symbol]:
        """Return the symbols of ``.symtab``, or of ``.dynsym`` in a stripped file."""
        for wanted in (_SHT_SYMTAB, _SHT_DYNSYM):
            tables = [s for s in self.sections if s.kind == wanted and s.link < len(self.sections)]
            if tables:
                return list(self._table(tables[0]))
        return []

    def _table(self, table: Section) -> Iterator[Symbol]:
        names = self.sections[table.link]
        text = self.part(names.offset, names.size)
        raw = self.part(table.offset, table.size)
        if len(raw) // 24 > _MAX_SYMBOLS:
            raise ElfFormatError(f"{len(raw) // 24} symbols")
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", raw[: len(raw) // 24 * 24]):
            # A symbol name longer than this is damage; the bound keeps a table of long names linear.
            end = text.find(b"\0", name, name + 4096)
            label = text[name:end].decode("utf-8", "replace") if end >= 0 else ""
            yield Symbol(label, value, size, section, info & 15 == 2)

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """Return the name, type and content of every note, from sections or, without them, from program headers."""
        areas = [(s.offset, s.size) for s in self.sections if s.kind == _SHT_NOTE]
        if not areas and self.program_size >= 56:
            for i in range(self.program_count):
                kind, _, offset, _, _, size = struct.unpack("<IIQQQQ", self.part(self.program_offset + i * 56, 40))
                if kind == _PT_NOTE:
                    areas.append((offset, size))
        for offset, size in areas:
            area, at = self.part(offset, size), 0
            while at + 12 <= len(area):
                name_size, data_size, kind = struct.unpack_from("<III", area, at)
                start = at + 12 + (name_size + 3 & ~3)
                if start + data_size > len(area):
                    raise ElfFormatError("a note is cut short")
                name = area[at + 12 : at + 12 + name_size].rstrip(b"\0").decode("utf-8", "replace")
                yield name, kind, area[start : start + data_size]
                at = start + (data_size + 3 & ~3)


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
    cdna.elf.ElfError: not a readable AMD GPU code object: no ELF header; give a .hsaco or \
.co file
    """
    found = read_code_objects(data)
    chosen = [c for c in found if not arch or c.arch == arch]
    if not chosen:
        raise ElfError(f"arch={arch}: the file holds code for {', '.join(sorted({c.arch for c in found}))}")
    return chosen[0]
