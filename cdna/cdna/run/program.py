# SPDX-License-Identifier: MIT
"""From an assembly text, or a disassembly with its code object, to a :class:`~cdna.run.state.Program`.

``llvm-objdump -d`` prints the instructions of a code object and nothing else. Which registers are set at the start,
how much LDS there is and where the arguments lie stand in the object's kernel descriptor and its metadata.
Source: "User Guide for AMDGPU Backend", ".amdhsa_kernel" directives, "Initial Kernel Execution State", "Kernel
Descriptor", "Code Object V5 Metadata", LLVM, https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cdna.elf import CodeKernel, read_code_object
from cdna.isa.mnemonics import meaning
from cdna.isa.text import Function, Raw, Scan, scan_text
from cdna.run.errors import RunError
from cdna.run.state import Parameter, Program, Settings

__all__ = ["load_listing", "load_program"]

_NUMBER = re.compile(r"\d{1,9}$")


def _number_of(found: dict[str, str], key: str, default: int) -> int:
    """Return a whole number from directives or metadata, ``default`` if there is none."""
    text = found.get(key, "").strip()
    return int(text) if _NUMBER.match(text) else default


_ITEM = re.compile(r"  (- |  )(\.\w+):")
_ARG = re.compile(r"      (- |  )(\.\w+):\s*(\S.*)?$")


def _read_parameters(text: str, kernel: str) -> tuple[Parameter, ...]:
    """Return the ``.args`` of one kernel in the metadata at the end of the text."""
    _, found, note = text.partition(".amdgpu_metadata")
    if not found:
        return ()
    kernels: list[tuple[str, list[dict[str, str]]]] = []
    name, args = "", list[dict[str, str]]()
    for line in note.partition(".end_amdgpu_metadata")[0].split("\n"):
        if m := _ITEM.match(line):
            if m[1] == "- ":
                kernels.append((name, args))
                name, args = "", list[dict[str, str]]()
            if m[2] == ".name":
                name = line.partition(":")[2].strip().strip("'\"")
        elif m := _ARG.match(line):
            if m[1] == "- ":
                args.append({})
            if args:
                args[-1][m[2]] = (m[3] or "").strip("'\" ")
    kernels.append((name, args))
    for found_name, found_args in kernels:
        if found_name == kernel:
            sizes = [(_number_of(p, ".offset", 0), _number_of(p, ".size", 0)) for p in found_args]
            words = [(p.get(".value_kind", ""), p.get(".name", "")) for p in found_args]
            return tuple(Parameter(*size, *word) for size, word in zip(sizes, words, strict=True))
    return ()


# Scalar registers that the descriptor can ask for, in their order: name and number of registers.
_SIZES = (
    *(("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2)),
    *(("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1)),
)
_PRELOAD = "user_sgpr_kernarg_preload_"


def _settings_of(directives: dict[str, str], metadata: dict[str, str]) -> Settings:
    d = directives
    threads = _number_of(metadata, ".max_flat_workgroup_size", 0)
    if not d:
        return Settings(threads=threads)
    allocated = _number_of(d, "next_free_vgpr", 512)
    accum = min(256, _number_of(d, "accum_offset", 256))
    user = tuple((name, n) for name, n in _SIZES if _number_of(d, f"user_sgpr_{name}", 0))
    denorm = _number_of(d, "float_denorm_mode_32", 0) << 4 | _number_of(d, "float_denorm_mode_16_64", 3) << 6
    rounding = _number_of(d, "float_round_mode_32", 0) | _number_of(d, "float_round_mode_16_64", 0) << 2
    clamp_ieee = _number_of(d, "dx10_clamp", 1) << 8 | _number_of(d, "ieee_mode", 1) << 9
    return Settings(
        vgprs=min(256, accum, max(allocated, 1)),
        agprs=min(256, max(0, allocated - accum)),
        lds=_number_of(d, "group_segment_fixed_size", 0),
        scratch=_number_of(d, "private_segment_fixed_size", 0),
        kernarg=_number_of(d, "kernarg_size", 0),
        user=user,
        user_count=_number_of(d, "user_sgpr_count", sum(n for _, n in user)),
        preload=(_number_of(d, f"{_PRELOAD}length", 0), _number_of(d, f"{_PRELOAD}offset", 0)),
        ids=tuple(bool(_number_of(d, f"system_sgpr_workgroup_id_{x}", x == "x")) for x in "xyz"),  # type: ignore[arg-type]
        info=bool(_number_of(d, "system_sgpr_workgroup_info", 0)),
        id_dims=_number_of(d, "system_vgpr_workitem_id", 0) + 1,
        mode=rounding | denorm | clamp_ieee | _number_of(d, "fp16_overflow", 0) << 23,
        threads=threads,
    )


_SKIP = re.compile(
    r"(\.(loc|file|cfi_\w+|p2align|set|section|text|type|globl|protected|weak|size|hidden|ident)\b"
    r"|\.?[\w$.]+:|\"[^\"]+\":|;|//|$)"
)


def _all_known(text: list[str], function: Function) -> None:
    """Refuse a line between the first and last instruction that the reader did not understand."""
    known = {raw.line for raw in function.body}
    first = function.body[0].line
    while (
        first > 1
        and not text[first - 1].lstrip('"').startswith(function.name)
        and f"<{function.name}>:" not in text[first - 1]
    ):
        first -= 1
    for number in range(first + 1, function.body[-1].line):
        s = text[number - 1].strip()
        if number in known or _SKIP.match(s):
            continue
        raise RunError(f"line {number}: {s[:60]!r} is no instruction of gfx942", number, "unknown")


def _pick(scan: Scan, name: str | None) -> Function:
    entries = [f for f in scan.functions if not scan.entries or f.name in scan.entries]
    if not scan.functions or not entries:
        raise RunError(
            "no AMDGCN kernel in this text; give Triton's amdgcn, a .s of clang, or llvm-objdump -d's output"
        )
    if name is None:
        if len(entries) > 1:
            raise RunError(
                f"{len(entries)} kernels in this text: choose one by name of {', '.join(f.name for f in entries)[:200]}"
            )
        return entries[0]
    for f in entries:
        if f.name == name:
            return f
    raise RunError(f"no kernel {name!r} in this text; it has {', '.join(f.name for f in entries)[:200]}")


_WORD = re.compile(r"[\w.$]+")


def _mentioned(f: Function) -> Iterator[str | int]:
    """Yield what a function may jump to: names and labels in its operands; in a disassembly, addresses."""
    for i, raw in enumerate(f.body):
        yield from _WORD.findall(raw.args)
        if raw.op == "s_getpc_b64" and raw.address >= 0:
            for add in f.body[i + 1 : i + 4]:  # the distance is added to the address of the next instruction
                last = add.args.rpartition(",")[2].strip()
                if add.op == "s_add_u32" and re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", last):
                    yield (f.body[i].address + 4 + int(last, 0)) & 0xFFFFFFFF


def _reachable(main: Function, others: list[Function]) -> list[Function]:
    """Return a kernel and those functions of its text that it calls, directly or through others.

    Another kernel's function may name registers that this kernel does not have.
    """
    places: dict[str | int, int] = {}
    for i, f in enumerate(others):
        places |= dict.fromkeys((f.name, *f.labels, *(r.address & 0xFFFFFFFF for r in f.body if r.address >= 0)), i)
    found, left = set[int](), [main]
    while left:
        new = {places[m] for m in _mentioned(left.pop()) if m in places} - found
        found |= new
        left += [others[i] for i in new]
    return [main, *(f for i, f in enumerate(others) if i in found)]


@lru_cache(maxsize=16)
def load_program(
    text: str, name: str | None = None, kernels: tuple[str, ...] = (), hardware_sums: bool = False
) -> Program:
    """Read one kernel of an assembly text. The program is shared by all who run this text, and must not be changed.

    ``kernels`` are the names of the kernels in a text that does not say which of its functions are; others are called.

    Raises:
        RunError: no kernel, several and no name, another architecture, a line that is no instruction.
    """
    scan = scan_text(text)
    for kernel in {*kernels} & {f.name for f in scan.functions}:
        scan.metadata.setdefault(kernel, {})
    if scan.arch and scan.arch not in ("gfx942", "gfx940", "gfx941"):
        raise RunError(f"the text is for {scan.arch}; this interpreter runs gfx942")
    main = _pick(scan, name)
    directives, metadata = scan.directives.get(main.name, {}), scan.metadata.get(main.name, {})
    settings = _settings_of(directives, metadata)
    body: list[Raw] = []
    labels: dict[str, int] = {}
    lines = text.split("\n")
    for f in _reachable(main, [f for f in scan.functions if f is not main and f.name not in scan.entries]):
        _all_known(lines, f)
        labels.setdefault(f.name, len(body))
        for label, at in f.labels.items():
            labels.setdefault(label, len(body) + at)
        body += f.body
    if body[-1].op not in ("s_endpgm", "s_branch", "s_setpc_b64", "s_code_end", "s_nop", "s_trap"):
        raise RunError(
            f"line {body[-1].line}: the text ends in {body[-1].op}, not in s_endpgm; it is cut short", body[-1].line
        )
    addresses, at = [], 0
    for raw in body:
        at = raw.address if raw.address >= 0 else at
        addresses.append(at)
        at += 8
    program = Program(main.name, text, settings, _read_parameters(text, main.name), body, 0, labels, addresses)
    program.hardware_sums = hardware_sums
    program.by_address = {a: i for i, a in enumerate(addresses)}
    program.entry = _entry_of(program)
    _note_modes(program)
    return program


def _note_modes(p: Program) -> None:
    """Note what of MODE may differ from flushing nothing and rounding to nearest, which costs no time."""
    writes = [r.args for r in p.body if r.op.startswith("s_setreg")]
    p.flushes = p.settings.mode & 0x30 != 0x30 or bool(writes)
    offsets = [re.search(r",\s*(\d+)\s*,\s*\d+\s*\)", args) for args in writes]
    p.rounds = p.settings.mode & 15 != 0 or any(m is None or int(m[1]) < 4 for m in offsets)


def _entry_of(p: Program) -> int:
    """Return where a wave starts: with preloaded arguments behind the loads that stand in for it on older firmware."""
    if not p.settings.preload[0]:
        return 0
    for raw in p.body:
        if raw.op == "s_branch":
            return p.labels.get(raw.target, 0) if raw.address < 0 else resolve(p, p.body.index(raw))
        if meaning(raw.op)[0] not in ("smem", "waitcnt"):  # type: ignore[index]
            break
    return 0


def resolve(p: Program, i: int) -> int:
    """Return the index that the branch at ``i`` goes to.

    Raises:
        RunError: there is no such place.
    """
    raw = p.body[i]
    target = raw.target or raw.args.strip()
    found: Any = p.labels.get(target)
    if found is None and raw.address >= 0 and re.fullmatch(r"\d{1,5}", target):
        distance = int(target) & 0xFFFF
        found = p.by_address.get(raw.address + 4 + 4 * (distance - 0x10000 if distance >= 0x8000 else distance))
    if found is None or found >= len(p.body):
        raise RunError(f"line {raw.line}: {raw.op} {target[:60]} goes nowhere", raw.line)
    return int(found)


def _parameters(kernel: CodeKernel) -> tuple[Parameter, ...]:
    listed: Any = kernel.metadata.get(".args") or []
    try:
        return tuple(
            Parameter(int(a[".offset"]), int(a[".size"]), str(a[".value_kind"]), str(a.get(".name", "")))
            for a in listed
        )
    except (KeyError, TypeError, ValueError):
        raise RunError(
            f"the code object describes the arguments of {kernel.name} in a way that makes no sense; build it again",
            rule="arguments",
        ) from None


def load_listing(text: str, name: str | None, data: bytes, hardware_sums: bool = False) -> Program:
    """Load the program of a disassembly, with the descriptor and the metadata of its code object (``.hsaco``, bundle).

    Raises:
        RunError: see :func:`~cdna.run.program.load_program`; the object lacks the kernel.
        ElfError: it is no code object.
    """
    if not isinstance(data, bytes):
        raise RunError(f"code_object={data!r:.60}: give the bytes of the file", rule="arguments")
    found = {k.name: k for k in read_code_object(data, "gfx942").kernels}
    program = load_program(text, name, tuple(found), hardware_sums)
    kernel = found.get(program.name)
    if kernel is None or not kernel.directives:
        raise RunError(
            f"the code object has no kernel {program.name!r}; it has {', '.join(found)[:200] or 'none'}",
            rule="arguments",
        )
    directives = {name: str(value) for name, value in kernel.directives.items()}
    metadata = {str(k): str(v) for k, v in kernel.metadata.items()}
    settings = _settings_of(directives, metadata)
    made = replace(program, settings=settings, parameters=_parameters(kernel))
    _note_modes(made)
    made.entry = _entry_of(made)
    return made
