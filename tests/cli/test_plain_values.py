# SPDX-License-Identifier: MIT
"""Plain words are read without pydantic; everything else as typer reads it, with its rules and messages."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from cdna.cli.program import read_plain_values

ROOT = Path(__file__).resolve().parents[2]


def command(plain):
    got = {}
    app = typer.Typer(add_completion=False)

    def refuse(text):
        if text == "no":
            raise ValueError("no such thing")
        return text.upper()

    @app.command()
    def one(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        count: Annotated[int, typer.Option()] = 3,
        ratio: Annotated[float | None, typer.Option()] = None,
        small: Annotated[int, typer.Option(max=10)] = 1,
        file: Annotated[Path | None, typer.Option()] = None,
        files: Annotated[list[Path], typer.Option()] = [],
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        loud: Annotated[str | None, typer.Option(parser=refuse)] = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        got.update(vars_ := dict(locals()))
        got.pop("got", None)
        vars_.clear()

    made = typer.main.get_command(app)
    if plain:
        read_plain_values(made)
    return made, got


def outcome(words, plain):
    made, got = command(plain)
    try:
        made(list(words), standalone_mode=False)
    except Exception as e:  # noqa: BLE001 - typer brings a copy of click along, whose errors have no public name
        return type(e).__name__, e.format_message() if hasattr(e, "format_message") else str(e)
    return {name: (type(value), value) for name, value in got.items()}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b", "--count", "12", "--ratio", "0.5", "--flag"],
        ["--count", "-4", "--ratio", "1e-3", "--file", "x/y.txt", "--files", "a", "--files", "b"],
        ["--count", "8.0"],
        ["--count", "1_000"],
        ["--count", " 7 "],
        ["--count", "seven"],
        ["--count", "9" * 40],
        ["--ratio", "inf"],
        ["--ratio", "half"],
        ["--small", "9"],
        ["--small", "11"],
        ["--there", "/nowhere/at/all"],
        ["--there", str(ROOT)],
        ["--loud", "yes"],
        ["--loud", "no"],
        ["ü", "\udcff"],
        ["\udcff"],
        ["--nosuch"],
        ["--count"],
    ],
    ids=ascii,
)
def test_as_typer_reads_it(words):
    assert outcome(words, plain=True) == outcome(words, plain=False)


def test_usual_calls_do_without_pydantic():
    calls = [
        ["list"],
        ["copy", "common.device.seed_all"],
        ["fit", "llama-3-8b", "--count", "2"],
        ["trace", "counters", "SQ_WAVES"],
    ]
    code = "import io, sys\nfrom rocm_guide.cli.main import main\nsys.argv = ['rocm-guide', *sys.argv[1:]]\n"
    code += "sys.stdout = io.StringIO()\ntry:\n    main()\nexcept SystemExit as e:\n    assert e.code == 0, e.code\n"
    code += "assert 'typer' in sys.modules and not {'pydantic', 'rich.console'} & set(sys.modules)\n"
    for words in calls:
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr[-500:])
