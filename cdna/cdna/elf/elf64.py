# SPDX-License-Identifier: MIT
"""The little of ELF64 that a code object needs: sections, symbols, notes, bytes at an address. Every read is bounded.

Source: "System V ABI, Object Files", https://refspecs.linuxfoundation.org/elf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ElfFormatError"]

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
    cdna.elf.elf64.ElfFormatError: no ELF header
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
