# SPDX-License-Identifier: MIT
"""`rocm-guide faults explain | read | log | env`: from an error's text, or a crash, to its cause."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import JSON, existing_folder
from cdna.cli.output import say
from rocm_guide.cli.symptoms import all_symptoms
from rocm_guide.cli.symptoms import explain as look_up

if TYPE_CHECKING:
    from rocm_guide.observe.debugging.faults.dmesg import LogFault

__all__ = ["app"]

#: Characters of an error that are looked up; a traceback has a few thousand.
LONGEST = 1_000_000

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Read GPU fault reports and debug-agent logs.")


@app.command()
def read(
    report: Annotated[Path, typer.Argument(help="What the ROCm debug agent printed.")],
    code: Annotated[
        Path | None,
        typer.Option(help="Folder of --save-code-objects, or one listing that llvm-objdump --disassemble printed."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Name the faulting kernel, the instruction, and the lanes that touched the page."""
    from rocm_guide.observe.debugging.faults.agent_log import read_report
    from rocm_guide.observe.debugging.faults.verdict import explain_report

    if code is not None and not code.is_file():
        existing_folder(code)
    found = explain_report(read_report(report), folder=code)
    say(json.dumps(found.to_dict(), indent=1) if as_json else found.text())


@app.command()
def log(
    file: Annotated[Path, typer.Argument(help="A program's output, or the kernel log: sudo dmesg > dmesg.txt.")],
    as_json: JSON = False,
) -> None:
    """Find GPU faults in a log and say what each means."""
    from rocm_guide.observe.debugging.faults.dmesg import read_log

    found = read_log(file)
    if as_json:
        typer.echo(json.dumps([asdict(f) for f in found], indent=1))
        return
    _print_faults(found)
    if not found:
        say("no GPU fault in it")


def _print_faults(found: list[LogFault]) -> None:
    for fault in found:
        at = f" at {fault.address:#x}" if fault.address is not None else ""
        access = "" if fault.write is None else (" (a write)" if fault.write else " (a read)")
        who = f", {fault.process} pid {fault.pid}" if fault.process else ""
        where = f", on {fault.device}" if fault.device else ""
        kernel = f", in {fault.details['kernel']}" if "kernel" in fault.details else ""
        grid = (
            f" (grid {fault.details['grid']}, workgroup {fault.details['workgroup']})"
            if "grid" in fault.details
            else ""
        )
        again = f", {fault.details['lines']} lines" if "lines" in fault.details else ""
        say(f"line {fault.line}: {fault.kind}{at}{access}{who}{where}{kernel}{grid}{again}: {fault.meaning}")


@app.command()
def explain(
    text: Annotated[list[str], typer.Argument(help="The error, pasted between quotes; - reads it from a pipe.")],
    as_json: JSON = False,
) -> None:
    """Look an error up in the symptom tables of all notebooks: its cause and its fix."""
    from rocm_guide.observe.debugging.faults.dmesg import scan_log

    said = sys.stdin.read(LONGEST) if text == ["-"] else " ".join(text)[:LONGEST]
    rows, faults = look_up(said, all_symptoms()), scan_log(said.splitlines())
    if as_json:
        typer.echo(json.dumps({"symptoms": [asdict(r) for r in rows], "faults": [asdict(f) for f in faults]}, indent=1))
        return
    _print_faults(faults)
    for row in rows:
        say(f"{row.where}: {row.symptom}\n  cause: {row.cause}\n  fix: {row.fix}")
    if not rows and not faults:
        say("no table has it; paste the whole line of the error, not its first word")


@app.command()
def env(
    agent: Annotated[str | None, typer.Option(help="The debug agent, if it is not where ROCm installs it.")] = None,
    save_code: Annotated[str | None, typer.Option(help="Folder for code objects.")] = None,
    precise: Annotated[bool, typer.Option("--precise", help="Report the very instruction (slower).")] = False,
    all_waves: Annotated[bool, typer.Option("--all", help="Report every wave.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Print the lines that unset everything, the agent too.")] = False,
) -> None:
    """Print the environment of a hunt, for `eval "$(rocm-guide faults env)"`."""
    from rocm_guide.observe.debugging.faults.hunting_env import AGENT, HUNT, hunt_environment, shell_lines

    if undo:
        found = dict.fromkeys((*HUNT, "HSA_TOOLS_LIB", "ROCM_DEBUG_AGENT_OPTIONS"), "")
    else:
        if agent is None and (save_code is not None or precise or all_waves):
            agent = AGENT
            if not Path(agent).exists():
                typer.echo(f"{agent}: not on this machine; name the debug agent of yours with --agent", err=True)
        found = hunt_environment(agent=agent, save_code=save_code, precise=precise, all_waves=all_waves)
    typer.echo(shell_lines(found, undo=undo))
