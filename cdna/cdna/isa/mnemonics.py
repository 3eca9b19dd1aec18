# SPDX-License-Identifier: MIT
"""Meaning of an AMDGCN mnemonic: its kind, how many bits it moves per lane, and the matrix shape it multiplies.

The names follow LLVM's assembler for gfx90a, gfx942 and gfx950; the older spelling of the matrix instructions
(``v_mfma_f32_32x32x8f16``) is read as well.
Source: "User Guide for AMDGPU Backend", LLVM, https://llvm.org/docs/AMDGPUUsage.html, and "AMD Instinct MI300
Instruction Set Architecture", AMD.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["MatrixShape", "matrix_shape", "meaning", "wait_counts"]

# The order in which a report prints them.
KINDS = (
    "valu",
    "mfma",
    "salu",
    "global",
    "lds",
    "permute",
    "scratch",
    "smem",
    "barrier",
    "waitcnt",
    "branch",
    "other",
)

_PREFIX_KIND = {
    "v": "valu",
    "s": "salu",
    "ds": "lds",
    "global": "global",
    "flat": "global",
    "buffer": "global",
    "tbuffer": "global",
    "image": "global",
    "scratch": "scratch",
    "exp": "other",
}
_SCALAR_KIND = (
    (re.compile(r"s_(buffer_)?(load|store|atomic|scratch)_|s_dcache_|s_memtime|s_memrealtime|s_atc_"), "smem"),
    (re.compile(r"s_barrier"), "barrier"),
    (re.compile(r"s_wait"), "waitcnt"),
    (re.compile(r"s_(c?branch|setpc|swappc|endpgm|call|rfe|subvector_loop)"), "branch"),
    (re.compile(r"s_(nop|sleep|setprio|sethalt|trap|sendmsg|icache|inst_prefetch|code_end|ttrace|clause)"), "other"),
)
# ds_* instructions that use the LDS crossbar to move data between lanes and touch no LDS memory.
_PERMUTE = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_gws", "ds_nop", "ds_append", "ds_consume")
_ACCESS = re.compile(
    "_(load|store|read|write|atomic|add|sub|rsub|inc|dec|min|max|and|or|xor|cmpst|wrxchg|pk|mskor|condxchg|wrap)"
)
_COUNT_BITS = {"x2": 64, "x3": 96, "x4": 128, "x8": 256, "x16": 512}
_DWORD = re.compile(r"dword(x\d+)?")
_TYPED = re.compile(r"[_]([bufi])(8|16|32|64|96|128|256|512)(?=_|$)")
_BYTE = re.compile(r"_[us]?byte")
_SHORT = re.compile(r"_[us]?short")
_FORMAT = re.compile(r"_format_(d16_)?(xyzw|xyz|xy|x)")


class Meaning(NamedTuple):
    """Kind, access (``"load"``, ``"store"``, ``"atomic"`` or ``""``) and bits moved per lane (per wave for smem).

    ``pieces`` is how many separate addresses they come from: ``ds_read2_b64`` moves 2 pieces of 64 bits, not 128 bits
    at once, and takes the time of two.
    """

    kind: str
    access: str
    bits: int
    pieces: int = 1


class MatrixShape(NamedTuple):
    """One matrix instruction: ``blocks`` independent products of an MxK by a KxN tile, and what the wave computes."""

    m: int
    n: int
    k: int
    blocks: int
    out_type: str
    in_type: str
    sparse: bool

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations of one wave: 2 * M * N * K * blocks; K as named when sparse."""
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def name(self) -> str:
        """Short name, for example ``32x32x8 f16``."""
        many = f" ({self.blocks} blocks)" if self.blocks > 1 else ""
        return f"{self.m}x{self.n}x{self.k} {self.in_type}{' sparse' if self.sparse else ''}{many}"


_TWO_PIECES = re.compile(r"ds_(read|write|load|store|wrxchg)_?2")


def _width(op: str) -> int:
    if m := _DWORD.search(op):
        return _COUNT_BITS.get(m[1], 32) if m[1] else 32
    if _BYTE.search(op):
        return 8
    if _SHORT.search(op):
        return 16
    if m := _FORMAT.search(op):
        return len(m[2]) * (16 if m[1] else 32)
    if m := _TYPED.search(op):
        bits = int(m[2])
        return bits * 2 if _TWO_PIECES.match(op) else bits
    return 64 if op.endswith("_x2") else 32


@lru_cache(maxsize=8192)
def meaning(op: str) -> Meaning | None:
    """Return the meaning of a mnemonic (with or without an encoding suffix such as ``_e32``), or None if it is not one.

    >>> meaning("global_load_dwordx4")
    Meaning(kind='global', access='load', bits=128, pieces=1)
    >>> meaning("ds_read2st64_b64").bits, meaning("ds_read2st64_b64").pieces
    (128, 2)
    >>> meaning("ds_write2st64_b64").bits, meaning("buffer_load_ushort").bits, meaning("v_add_f32_e32").kind
    (128, 16, 'valu')
    >>> meaning("amdhsa") is None
    True
    """
    prefix, _, rest = op.partition("_")
    kind = _PREFIX_KIND.get(prefix)
    if kind is None or (not rest and op != "exp"):
        return None
    if kind == "valu":
        return Meaning("mfma" if rest.startswith(("mfma", "smfmac", "wmma", "swmmac")) else "valu", "", 0)
    if kind == "salu":
        kind = next((k for pattern, k in _SCALAR_KIND if pattern.match(op)), "salu")
        if kind != "smem" or not re.search("load|store|atomic", op):
            return Meaning(kind, "", 0)
        return Meaning("smem", "load" if "load" in op else "store" if "store" in op else "atomic", _width(op))
    if op.startswith(_PERMUTE):
        return Meaning("permute", "", 0)
    if kind == "other" or not _ACCESS.search(op):
        return Meaning("other", "", 0)  # buffer_wbl2, buffer_inv, global_wb: cache control
    access = "load" if re.search("_(load|read)", op) else "store" if re.search("_(store|write)", op) else "atomic"
    return Meaning(kind, access, _width(op), 2 if _TWO_PIECES.match(op) else 1)


_MATRIX = re.compile(
    r"v_(mfma|smfmac)_(?:scale_)?([a-z]+\d+)_(\d{1,3})x(\d{1,3})x(\d{1,3})(?:_?(\d{1,2})b_|_?)([a-z][a-z0-9_]*)"
)
# Elements of A that one lane holds in the older spelling, which does not name the number of blocks.
_OLD_ELEMENTS = {"f32": 1, "f16": 4, "bf16": 2, "bf16_1k": 4, "i8": 4, "f64": 1}


@lru_cache(maxsize=1024)
def matrix_shape(op: str) -> MatrixShape | None:
    """Return the shape of a matrix instruction, or None for every other mnemonic.

    In the older spelling the number of blocks is not in the name; it follows from what 64 lanes hold:
    ``blocks = 64 * elements of A per lane / (M * K)``.

    >>> matrix_shape("v_mfma_f32_32x32x8_f16").flops
    16384
    >>> matrix_shape("v_mfma_f32_32x32x1_2b_f32").blocks, matrix_shape("v_mfma_f32_32x32x1f32").blocks
    (2, 2)
    >>> matrix_shape("v_smfmac_f32_16x16x64_fp8_fp8").name
    '16x16x64 fp8_fp8 sparse'
    """
    m = _MATRIX.match(op)
    if m is None:
        return None
    rows, cols, depth = int(m[3]), int(m[4]), int(m[5])
    in_type = re.sub(r"_(e64|vi|gfx\d\w*)$", "", m[7])
    blocks = int(m[6] or 1)
    glued = op[m.end(5) : m.end(5) + 1] != "_"
    if glued and not m[6] and in_type in _OLD_ELEMENTS and rows * depth:
        blocks = max(1, 64 * _OLD_ELEMENTS[in_type] // (rows * depth))
    return MatrixShape(rows, cols, depth, blocks, m[2], in_type.removesuffix("_1k"), m[1] == "smfmac")


_WAIT = re.compile(r"(vmcnt|lgkmcnt|expcnt|vscnt)\((\d{1,4})\)")
_WAIT_MAX = {"vmcnt": 63, "expcnt": 7, "lgkmcnt": 15}


def wait_counts(args: str) -> dict[str, int]:
    """Return what ``s_waitcnt`` waits for: how many operations of each counter may still be under way when it lets go.

    ``vmcnt`` counts vector memory (global, buffer, flat, scratch); ``lgkmcnt`` counts LDS, GDS, constant (scalar)
    loads and messages. A counter that is not named does not wait. A bare number is gfx9's packed form.

    >>> wait_counts("vmcnt(3) lgkmcnt(0)")
    {'vmcnt': 3, 'lgkmcnt': 0}
    >>> wait_counts("0xc07f")
    {'lgkmcnt': 0}
    """
    found = {name: int(n) for name, n in _WAIT.findall(args)}
    if found:
        return found
    try:
        raw = int(args.strip()[:12], 0)
    except ValueError:
        return {}
    raw &= 0xFFFF
    packed = {"vmcnt": (raw & 15) | (raw >> 14) << 4, "expcnt": (raw >> 4) & 7, "lgkmcnt": (raw >> 8) & 15}
    return {name: n for name, n in packed.items() if n < _WAIT_MAX[name]}
