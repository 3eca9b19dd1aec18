# SPDX-License-Identifier: MIT
"""From the URI in a fault report to the machine code: find the code object, disassemble it, mark the instruction.

A kernel that came with a program lives in a file (``file:///path#offset=…&size=…``, the offset into the executable);
one that was compiled while the program ran (Triton, hipBLASLt, torch.compile) only in memory (``memory://PID#…``), and
survives the crash only if the agent was told to save it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from cdna.isa.text import scan_text
from rocm_guide.common.base import open_regular, read_regular
from rocm_guide.observe.debugging.faults.agent_log import CodeLine, FaultError

__all__ = ["disassemble", "extract_code", "find_objdump", "printed_listing", "saved_name"]

#: Bytes of a listing; that of a code object of 30 MB has about as many.
LARGEST_LISTING = 200_000_000
#: Larger than any code object; a size beyond it is damage.
LARGEST_CODE = 1 << 31


@dataclass(frozen=True)
class CodeUri:
    """A code object's address: ``scheme`` "file" or "memory"; ``path`` a file, or a process id; size 0 = to the end."""

    scheme: str
    path: str
    offset: int
    size: int


def parse_uri(uri: str) -> CodeUri:
    """Split a code object URI as the ROCm runtime writes it.

    Raises:
        FaultError: another scheme, a number that is none, or a memory URI without offset and size.

    Source: "Loaded Code Object Path Uniform Resource Identifier (URI)", LLVM AMDGPU user guide,
    https://llvm.org/docs/AMDGPUUsage.html.

    >>> parse_uri("file:///opt/app/test#offset=14309&size=31336")
    CodeUri(scheme='file', path='/opt/app/test', offset=14309, size=31336)
    >>> parse_uri("memory://4242#offset=0x7f00&size=64").offset
    32512
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.lower() not in ("file", "memory"):
        raise FaultError(f"uri={uri[:80]!r}: begins with neither file:// nor memory://; copy the line 'code object:'")
    path, *queries = re.split("[#?]", rest, maxsplit=1)
    query = queries[0] if queries else ""
    values = {"offset": 0, "size": 0}
    for token in query.split("&") if query else []:
        key, _, text = token.partition("=")
        if key in values:
            try:
                values[key] = int(text, 0)
            except ValueError as e:
                raise FaultError(f"uri={uri[:80]!r}: {key} is {text[:20]!r}, not a number") from e
    if not 0 <= values["offset"] < 1 << 64 or not 0 <= values["size"] <= LARGEST_CODE:
        raise FaultError(f"uri={uri[:80]!r}: offset or size is out of range; copy the whole line")
    if scheme.lower() == "memory" and not (values["offset"] and values["size"]):
        raise FaultError(f"uri={uri[:80]!r}: a memory URI needs offset and size; copy the whole line")
    decoded = unquote_to_bytes(path.encode(errors="replace")).decode("utf-8", "replace")
    if "\0" in decoded:
        raise FaultError(f"uri={uri[:80]!r}: a path cannot hold a zero byte")
    return CodeUri(scheme.lower(), decoded, **values)


def saved_name(uri: str) -> str:
    """Return the file name under which ``--save-code-objects`` stores a URI.

    >>> saved_name("file:///rocm-debug-agent/rocm-debug-agent-test#offset=14309&size=31336")
    'file____rocm-debug-agent_rocm-debug-agent-test_offset_14309_size_31336'
    """
    return re.sub(r"[:/#?&=]", "_", uri)


def extract_code(
    uri: str, *, folder: str | os.PathLike[str] | None = None, proc: str = "/proc", only_below: bool = False
) -> bytes:
    """Return the bytes of a code object: from the folder where the agent saved it, else from where the URI points.

    Args:
        uri: the line behind "code object:".
        folder: where ``--save-code-objects=DIR`` wrote.
        proc: where process memory is found; a memory URI is read from a process that is still there.
        only_below: open nothing outside ``folder``. For a URI that comes out of a report and that nobody has looked at.

    Raises:
        FaultError: not saved, not there any more, shorter than its URI says, or not an ELF file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     program = Path(folder) / "program"
    ...     _ = program.write_bytes(b"host code" + b"\\x7fELF device code")
    ...     extract_code(f"file://{program}#offset=9&size=16")
    b'\\x7fELF device code'
    """
    where = parse_uri(uri)
    if folder is not None:
        saved = Path(folder) / saved_name(uri)
        if len(saved.name) <= 255 and saved.is_file():
            return _elf(saved, 0, 0)
        if where.scheme == "memory":
            raise FaultError(f"{folder}: no file {saved.name[:80]}; run again with --save-code-objects={folder}")
    source = Path(where.path) if where.scheme == "file" else Path(proc) / Path(where.path).name / "mem"
    if only_below and not (folder and Path(os.path.realpath(source)).is_relative_to(os.path.realpath(folder))):
        if where.scheme == "memory":
            raise FaultError(f"{uri}: only process {where.path} had it; run again with --save-code-objects=DIR")
        named = f"is not below {folder}" if folder else "you named no folder that it lies in"
        raise FaultError(f"{source}: not opened, because it {named}; name its folder with --code")
    return _elf(source, where.offset, where.size, memory=where.scheme == "memory")


def _elf(source: Path, offset: int, size: int, memory: bool = False) -> bytes:
    """Return the bytes there, read only when an ELF file begins there; of another file nothing is kept or shown."""
    try:
        with open_regular(source) as f:
            f.seek(offset)
            head = f.read(4)
            data = head + f.read((size or LARGEST_CODE) - 4) if head == b"\x7fELF" else b""
    except (OSError, ValueError, OverflowError) as e:
        fix = "pass its copy from --save-code-objects as folder" if memory else "check the path"
        raise FaultError(f"{source}: cannot be read ({getattr(e, 'strerror', None) or e}); {fix}") from e
    if len(head) == 4 and not data:
        raise FaultError(f"{source}: no ELF file at offset {offset}; was the program rebuilt since the fault?")
    if len(data) < 4 or (size and len(data) != size):
        found = len(data or head)
        raise FaultError(f"{source}: {found:,} bytes at offset {offset}, the URI says {size:,}; rebuilt?")
    return data


def find_objdump() -> str | None:
    """Return the path of an llvm-objdump that knows gfx942 (LLVM 17 or newer; Debian and Ubuntu: ``apt install
    llvm-19``), or None. ROCm's own comes first, then the newest on PATH.
    """
    names = ["/opt/rocm/llvm/bin/llvm-objdump", *(f"llvm-objdump-{n}" for n in range(30, 16, -1)), "llvm-objdump"]
    for path in filter(None, map(shutil.which, names)):
        probe = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"LLVM version (\d+)", probe)
        if "amdgcn" in probe and (not version or int(version[1]) >= 17):
            return path
    return None


@dataclass(frozen=True)
class Listing:
    """Disassembly of a whole code object; addresses are those inside the file. ``at`` is the marked index or None."""

    functions: tuple[str, ...]
    instructions: tuple[CodeLine, ...]
    at: int | None

    def around(self, before: int = 6, after: int = 3) -> str:
        """Return the lines around the mark, ready to print."""
        at = self.at if self.at is not None else 0
        rows = self.instructions[max(0, at - before) : at + after + 1]
        return "\n".join(f"{'=>' if i.marked else '  '} {i.address:#8x}  {i.text}" for i in rows)


def printed_listing(uri: str, folder: str | os.PathLike[str]) -> str | None:
    """Return what ``llvm-objdump --disassemble FILE > FILE.s`` printed elsewhere of a saved code object, or None.

    Args:
        folder: where the agent saved the object of this URI, with the listing beside it; or the listing itself.

    Raises:
        FaultError: the file cannot be read.
    """
    name = saved_name(uri) + ".s"
    file = Path(folder) / name if Path(folder).is_dir() else Path(folder)
    if len(name) > 255 or not file.is_file():
        return None
    try:
        return read_regular(file, LARGEST_LISTING).decode(errors="replace")
    except OSError as e:
        raise FaultError(f"{file}: cannot be read ({e.strerror}); check the path") from e


def disassemble(code: bytes, *, pc: int | None = None, printed: str | None = None) -> Listing:
    """Disassemble a code object and mark the instruction at ``pc``.

    Args:
        code: an ELF file, as :func:`extract_code` returns it; empty when there is only ``printed``.
        pc: the address inside the file: the wave's program counter minus the start of "loaded at".
        printed: what an llvm-objdump of another machine printed of this file; read where this one has none.

    Raises:
        FaultError: no llvm-objdump, or it cannot read the file, or ``pc`` is not the start of an instruction.
    """
    objdump = find_objdump() if code or printed is None else None
    if objdump is not None:
        printed, said = _run_objdump(objdump, code)
    elif printed is None:
        fix = "use ROCm's llvm/bin, or put what it prints elsewhere beside the code object as FILE.s"
        raise FaultError(f"llvm-objdump (LLVM 17 or newer) is not there; apt install llvm-19, {fix}")
    else:
        said = "no instruction in its listing"
    functions = scan_text(printed).functions
    rows = [
        CodeLine(i.address, i.address - function.body[0].address, f"{i.op} {i.args}".rstrip(), i.address == pc)
        for function in functions
        for i in function.body
    ]
    if not rows:
        raise FaultError(f"llvm-objdump found no code ({said})")
    at = next((i for i, row in enumerate(rows) if row.marked), None)
    if pc is not None and at is None:
        raise FaultError(f"pc={pc:#x}: no instruction begins there; is this the code object that was loaded?")
    return Listing(tuple(f.name for f in functions), tuple(rows), at)


def _run_objdump(objdump: str, code: bytes) -> tuple[str, str]:
    """Return what llvm-objdump prints of a code object, and the end of its last message."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "code.co"
        file.write_bytes(code)
        try:
            run = subprocess.run(
                [objdump, "--disassemble", str(file)], capture_output=True, text=True, errors="replace", timeout=300
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise FaultError(f"{objdump}: does not run ({str(e)[:80]})") from e
    message = run.stderr.strip().splitlines()
    return run.stdout, message[-1][-100:] if message else "no text section"
