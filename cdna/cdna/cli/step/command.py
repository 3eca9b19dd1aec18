# SPDX-License-Identifier: MIT
"""`cdna step`: execute a kernel's gfx942 code here and step through one wave of it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import between, out_file

__all__ = ["step"]

_FRAMES = 10  # that are printed where nobody can press a key


@contextlib.contextmanager
def _ends_in(seconds: float, limit: int, told: Callable[[str], None]) -> Iterator[Callable[[int], str]]:
    """Give what :func:`cdna.step.record.record` asks whether to go on: not after ``seconds``, nor after Ctrl-C.

    Ctrl-C only sets a mark here, so that no step is left half done; a second one ends the program as usual.
    """
    pressed: list[int] = []

    def mark(number: int, frame: object) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    def until(steps: int) -> str:
        told(f"{steps:,} of at most {limit:,} steps, Ctrl-C keeps them")
        if pressed:
            return "stopped by Ctrl-C"
        return f"{seconds:g} seconds are over (--seconds)" if time.monotonic() > end else ""

    before = signal.signal(signal.SIGINT, mark)
    end = time.monotonic() + seconds
    try:
        yield until
    finally:
        signal.signal(signal.SIGINT, before)


def step(
    target: Annotated[str, typer.Argument(metavar="FILE[::KERNEL]", help=".py, .s/.amdgcn, .hip")],
    call: Annotated[str, typer.Option(help="An expression that launches it: 'softmax(torch.randn(4, 300))'.")] = "",
    arg: Annotated[list[str], typer.Option(help="NAME=fp16[64,300] (random values), NAME=4096; in order.")] = [],
    const: Annotated[list[str], typer.Option(help="NAME=VALUE of a tl.constexpr parameter.")] = [],
    option: Annotated[list[str], typer.Option(help="A compile option: waves_per_eu=2, num_stages=1 …")] = [],
    warps: Annotated[int | None, typer.Option(help="num_warps.")] = None,
    grid: Annotated[str, typer.Option(help="Workgroups, with --arg: 4 or 4,2.")] = "",
    block: Annotated[str, typer.Option(help="Work-items of a workgroup, if the assembly does not say.")] = "",
    shared: Annotated[int | None, typer.Option("--lds", help="Bytes of dynamic LDS, for assembly.")] = None,
    group: Annotated[int, typer.Option(help="Number of the workgroup.")] = 0,
    wave: Annotated[int, typer.Option(help="Number of the wave in it.")] = 0,
    lanes: Annotated[str, typer.Option(help="Lanes to show: 0-3,63.")] = "0-3",
    at: Annotated[int, typer.Option(help="Begin where this line of the assembly is executed first.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Print so many frames and end; no keys.")] = None,
    limit: Annotated[int, typer.Option(help="Steps to record.", callback=between(1, 1_000_000))] = 20_000,
    seconds: Annotated[
        float, typer.Option(help="Seconds to record; what there is by then is shown.", callback=between(0.1, 86_400))
    ] = 120.0,
    timeline: Annotated[bool, typer.Option("--timeline", help="Print the waits of the compute-unit model.")] = False,
    html: Annotated[
        Path | None, typer.Option(parser=out_file, metavar="OUT", help="Write one self-contained page and end.")
    ] = None,
) -> None:
    """Step through one wave of a kernel's gfx942 code, executed on this machine; no GPU is needed.

    Keys: n next, b back, g to a line, q quit. Without a terminal, or with --steps N, frames are printed. How the
    kernel is launched comes from --call, else from --arg, --const and --grid, else from a function example() in the
    file; launches before it are executed too. Cycles are those of a stated model, never a measurement.
    """
    from rich.console import Console

    from cdna.base import InputError, printable, write_text
    from cdna.cli.inspect.arguments import compile_option
    from cdna.cli.inspect.python_file import HowTo
    from cdna.cli.output import announced, working
    from cdna.cli.step.launch import find_launch
    from cdna.cli.step.terminal import frame, lanes_of_text, play
    from cdna.step.page import page
    from cdna.step.record import record
    from cdna.step.timeline import timeline as lay_out

    chosen = lanes_of_text(lanes)
    if steps is not None and not 1 <= steps <= 100_000:
        raise InputError(f"--steps {steps}: from 1 to 100,000 frames")
    name, _, kernel = target.partition("::")
    path = Path(name)
    options = dict(compile_option(w) for w in option) | ({} if warps is None else {"num_warps": warps})
    doing = f"executing {path.name}"
    with working(doing) as told, announced(doing):
        found = find_launch(path, kernel, HowTo(call, arg, const, options), grid, block, shared)
        with _ends_in(seconds, limit, told) as until:
            recorded = record(
                found.kernel,
                found.grid,
                found.arguments,
                group=group,
                wave=wave,
                limit=limit,
                name=found.name,
                block=found.block,
                shared=found.shared,
                folder=path.parent,
                until=until,
            )
    if recorded.cut:
        typer.echo(f"{recorded.cut}; {len(recorded.steps):,} steps of the wave are kept", err=True)
    first = recorded.find(at) if at else 0
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if html is not None:
        write_text(html, page(recorded))
        typer.echo(f"{printable(html)}: {len(recorded.steps):,} steps of wave {wave}, workgroup {group}")
    elif steps is None and console.is_terminal and typer.get_text_stream("stdin").isatty():
        play(recorded, first, chosen, console, typer.getchar, lambda text: typer.prompt(text, default=""))
    else:
        for n in range(first, min(first + (steps or _FRAMES), len(recorded.steps) + 1)):
            console.print(frame(recorded, n, chosen))
    if timeline:
        typer.echo(str(lay_out(recorded)))
    if recorded.error:
        raise InputError(recorded.error)
