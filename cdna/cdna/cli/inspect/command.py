# SPDX-License-Identifier: MIT
"""`cdna inspect`: what a kernel becomes on MI300X, on a machine that has none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdna.cli.options import between, out_file

if TYPE_CHECKING:
    from cdna.inspection import Inspection

__all__ = ["inspect"]

_MAX_BYTES = 200_000_000
_FULL = 3  # kernels that get a full report on the terminal; all are in the overview, the JSON and the HTML


def _read(path: Path) -> bytes:
    from cdna.base import InputError, read_regular

    try:
        return read_regular(path, _MAX_BYTES)
    except OSError as e:
        raise InputError(
            f"{path}: cannot be read ({e.strerror or e}); give a file with the kernel that you mean"
        ) from e


def _dump(path: Path, lds: int | None, waves: int | None) -> list[Inspection]:
    """Inspect a file that is not Python, told by its content: ELF or bundle, IR, or assembly."""
    from cdna import inspection

    data = _read(path)
    if data[:4] in (b"\x7fELF", b"CCOB") or data.startswith(b"__CLANG_OFFLOAD_BUNDLE__"):
        return inspection.inspect_code_object(data, lds=lds, waves=waves)
    text = data.decode("utf-8", "replace")
    if path.suffix in (".ttir", ".ttgir", ".mlir") or "tt.func" in text:
        return inspection.inspect_ir(text)
    return inspection.inspect_assembly(text, lds=lds, waves=waves)


def _options(words: list[str], warps: int | None, stages: int | None) -> dict[str, Any]:
    from cdna.cli.inspect.arguments import compile_option

    found = dict(compile_option(w) for w in words)
    if warps is not None:
        found["num_warps"] = warps
    if stages is not None:
        found["num_stages"] = stages
    return found


def inspect(
    target: Annotated[str, typer.Argument(metavar="FILE[::KERNEL]", help=".py, .s/.amdgcn, .co/.hsaco, .ttir/.ttgir")],
    call: Annotated[str, typer.Option(help="An expression that launches it: 'softmax(torch.empty(64, 4096))'.")] = "",
    arg: Annotated[list[str], typer.Option(help="NAME=*fp16:16, NAME=i32, NAME=4096 or NAME=fp16[1024,4096].")] = [],
    const: Annotated[list[str], typer.Option(help="NAME=VALUE of a tl.constexpr parameter.")] = [],
    option: Annotated[list[str], typer.Option(help="A compile option: waves_per_eu=2, matrix_instr_nonkdim=16 …")] = [],
    warps: Annotated[int | None, typer.Option(help="num_warps; for a dump, waves per workgroup.")] = None,
    stages: Annotated[int | None, typer.Option(help="num_stages.")] = None,
    lds: Annotated[
        int | None,
        typer.Option(help="For a dump: bytes of LDS per workgroup (metadata.shared).", callback=between(0)),
    ] = None,
    arch: Annotated[str, typer.Option(help="gfx942 (MI300X), gfx90a or gfx950.")] = "gfx942",
    meta: Annotated[bool, typer.Option("--meta", help="Tensors without memory, so that true sizes are free.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Execute it here and count bytes, lines, conflicts …")] = False,
    grid: Annotated[str, typer.Option(help="Workgroups for --run with --arg: 4 or 4,2.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(parser=out_file, metavar="OUT", help="Write a page with plots and line-by-line notes."),
    ] = None,
) -> None:
    """Show what a kernel becomes: registers, LDS, occupancy, instructions, widths, waits, and what to try.

    A Python file is imported and its kernels are compiled, never launched; no GPU is needed. How a kernel is launched
    comes from --call, else from --arg and --const, else from a function example() in the file. With --run the code of
    the first launch is also executed, on this machine's CPU, and what it did is counted.
    """
    from cdna.base import InputError, printable
    from cdna.cli.output import PlainConsole, working

    name, _, kernel = target.partition("::")
    path = Path(name)
    if run and (path.suffix != ".py" or meta or arch != "gfx942"):
        raise InputError("--run executes gfx942 code with real data: give a .py file, without --meta and --arch")
    if grid and not run:
        raise InputError("--grid is for --run: without it nothing is executed")
    if path.suffix == ".py":
        if lds is not None:
            raise InputError(f"--lds {lds}: for a dump; of a Python file's kernel the compiler says how much it takes")
        _read(path)
        with working(f"{path.name} for {arch}") as progress:
            from cdna.cli.inspect.python_file import HowTo, inspect_python
            from cdna.compiler_key import quick_compiler_key

            how = HowTo(call, arg, const, _options(option, warps, stages), meta)
            with quick_compiler_key():
                found = inspect_python(path, kernel, how, arch, progress)
    else:
        given = {"--call": call, "--arg": arg, "--const": const, "--option": option, "--meta": meta}
        if unused := [name for name, value in given.items() if value] + ["--stages"] * (stages is not None):
            raise InputError(f"{', '.join(unused)}: for a .py file, which is compiled; {path.name} has been compiled")
        found = _dump(path, lds, warps)
        found = [one for one in found if not kernel or one.name == kernel] or _missing(path, kernel, found)
    executed: dict[str, int] = {}
    if run:
        from cdna.cli.inspect.text import executed_counts

        with working(f"executing {path.name}"):
            executed = executed_counts(path, kernel, how, grid)
    if html is not None:
        from cdna.base import write_text
        from cdna.cli.inspect.figures import page

        with working(f"drawing {html.name}"):
            write_text(html, page(found, path.parent if path.suffix == ".py" else None))
    if as_json:
        import json

        rows = [one.to_dict() for one in found]
        if executed:
            rows[0]["executed"] = executed
        typer.echo(json.dumps(rows, indent=1))
        return
    from cdna.cli.inspect.text import print_inspection, print_overview

    console = PlainConsole()
    if len(found) > 1:
        print_overview(console, found)
    for one in found[:_FULL]:
        print_inspection(console, one, path.parent if path.suffix == ".py" else None)
        console.print("")
    if executed:
        from cdna.cli.inspect.text import print_executed

        print_executed(console, executed)
    if len(found) > _FULL:
        console.print(f"{len(found) - _FULL} more kernels: --json or --html OUT has them all, ::KERNEL shows one.")
    if html is not None:
        console.print(f"written: {printable(html)}")


def _missing(path: Path, kernel: str, found: list[Inspection]) -> list[Inspection]:
    from cdna.base import InputError

    raise InputError(f"{path.name}::{kernel}: not in the file; it has {', '.join(one.name for one in found)}")
