# SPDX-License-Identifier: MIT
"""`rocm-guide serve RUN`: an OpenAI-compatible server for a saved model, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cdna.cli.options import between, choice
from cdna.cli.output import announced
from rocm_guide.common.base import shown
from rocm_guide.serve.door import KEY, is_loopback
from rocm_guide.serve.server import ENGINES

__all__ = ["serve"]


def serve(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, as my-model, or a folder: a saved model, or an adapter with its base."
        ),
    ],
    server_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS …]", help="Passed on to the server as they are.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="auto (vLLM where it is installed), vllm or transformers.", callback=choice(*ENGINES))
    ] = "auto",
    host: Annotated[
        str, typer.Option(help="127.0.0.1: this machine alone; 0.0.0.0: everybody with the key.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="A free one if it is left out.", callback=between(1, 65535))] = None,
    device: Annotated[str, typer.Option(help="Of transformers serve: auto, cpu, cuda:0.")] = "auto",
    cache_tokens: Annotated[
        int | None, typer.Option(help="KV cache of transformers serve, in tokens; 4096 on a CPU.", callback=between(32))
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            "--api-key",
            envvar=KEY,
            show_default=False,
            help="What clients must send as a bearer token; better in the variable, which other users cannot read.",
        ),
    ] = "",
    wait: Annotated[float, typer.Option(help="Seconds until it must be ready.", callback=between(1))] = 300.0,
) -> None:
    """Start the best server that is installed for a saved model, and print a ready curl; Ctrl-C ends it.

    An adapter is merged into a copy of its base first where the server takes no adapters. Exit code 2: it could not be
    started; 1: it ended by itself.
    """
    from rocm_guide.finetune.run_folder import runs_folder
    from rocm_guide.serve.server import start_server

    named = runs_folder() / run
    if not Path(run).expanduser().exists() and run.strip() and named.is_dir():
        run = str(named)
    # Without this, SIGTERM would end this process before its block is left: the guard would still end the server, but
    # a merged copy would stay on the disk.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options: dict[str, Any] = {"engine": engine, "host": host, "port": port, "device": device}
    options |= {"cache_tokens": cache_tokens, "seconds": wait, "options": server_options or (), "key": key}
    try:
        with contextlib.ExitStack() as stack:
            with announced(f"starting a server for {shown(run)}"):
                server = stack.enter_context(start_server(run, **options))
            typer.echo(f"{server.engine}: ready after {server.seconds:.1f} s at {server.url}/v1, model {server.model}")
            typer.echo(server.curl())
            if not is_loopback(host):
                said = "whoever reaches this address and has the key can use it; http hides neither key nor text"
                typer.echo(f"{host}: {said}", err=True)
            sys.stdout.flush()
            while server.running:
                time.sleep(0.2)
            said = server.service.what_it_said()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"the server has ended by itself; {said}", err=True)
    raise typer.Exit(1)
