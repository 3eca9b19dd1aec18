# SPDX-License-Identifier: MIT
# ruff: noqa: E501
"""Damaged input to everything that reads what others wrote: a result or a GuideError, never anything else, never a hang.

    python tests/fuzz_all.py --count 10000              all targets, one line of figures for each
    python tests/fuzz_all.py --count 100000 passport    one of them

The same seed gives the same inputs on every machine. tests/test_fuzz.py runs a few of each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import importlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rocm_guide.common.base import GuideError

HERE = Path(__file__).resolve().parent
PROFILING, ISA, DATA = (
    HERE.parent / "notebooks" / "recorded",
    HERE.parent / "cdna" / "tests" / "samples",
    HERE.parent / "rocm_guide" / "data",
)
#: CPU seconds for one input, and MiB of memory that a target may grow by; real ones take milliseconds and little.
PATIENCE, MEMORY = 10, 1024
TOKENS = (
    *(b'"', b",", b"{", b"}", b"[", b"]", b":", b"\n", b"\r", b"\0", b"-1", b"1e999", b"NaN", b"null", b"true", b"{}"),
    *(b"\xff\xfe", b"0x", b"99999999999999999999", b"9" * 5000, b"4294967295", b"\x1b[2J", b"\n[OK]   fine", b"[/red]"),
    *(
        b'"ts": "x"',
        b'"\\ud800"',
        b"wave_1: pc=0xffffffffffffffffff",
        b"=> ",
        b"[0] ",
        b"()",
        b"\xe2\x80\xae",
        b"[" * 3000,
    ),
    *(
        b"\\frac",
        b"\\begin{",
        b"\\end{",
        b"\\left",
        b"\\right",
        b"^",
        b"_",
        b"&",
        b"\\\\",
        b"$",
        b"tl.",
        b"*fp16",
        b"=",
        b"%",
    ),
    *(b"\x7fELF", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 40, b"loc(#loc1)", b".amdgpu_metadata\n"),
    *(b"file:///etc/shadow", b"file:///dev/zero", b"memory://self#", b"../", b"%00", b"%2e%2e/", b"&size=2147483648"),
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to five edits: change, flip, cut, double, delete, insert a token, swap two lines."""
    work = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at, kind = rng.randrange(len(work) + 1), rng.randrange(8)
        if kind == 0 and work:
            work[at % len(work)] = rng.randrange(256)
        elif kind == 1 and work:
            work[at % len(work)] ^= 1 << rng.randrange(8)
        elif kind == 2 and rng.random() < 0.3:
            del work[at:]
        elif kind in (3, 4):
            work[at:at] = rng.choice(TOKENS)
        elif kind == 5:
            del work[at : at + rng.randrange(1, 60)]
        elif kind == 6:
            work[at:at] = work[at : at + rng.randrange(1, 200)]
        else:
            lines = work.split(b"\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            work = bytearray(b"\n".join(lines))
    return bytes(work)


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# ---- what is read, and how ------------------------------------------------------------------------------------------


def head(path: Path, size: int = 3000) -> bytes:
    """The first whole lines of a file, so that each mutation is read quickly."""
    return path.read_bytes()[:size].rsplit(b"\n", 1)[0]


def traces() -> list[bytes]:
    """The first events of each kind of two real traces."""
    found = []
    for name in ("torch_cpu_train.json.gz", "decode_b1.json.gz"):
        chosen, kinds = [], {}
        for event in json.loads(gzip.decompress((PROFILING / name).read_bytes()))["traceEvents"]:
            kinds[event.get("cat")] = kinds.get(event.get("cat"), 0) + 1
            if event.get("ph") == "X" and kinds[event["cat"]] <= 10:
                chosen.append(event)
        document = {"schemaVersion": 1, "deviceProperties": [{"name": "x"}], "traceEvents": chosen}
        found.append(json.dumps(document, indent=1).encode())
    return found


def read_trace(data: bytes, _: Path) -> None:
    from rocm_guide.observe.profiling.torch_trace.attribution import idle_gaps, iter_device_work
    from rocm_guide.observe.profiling.torch_trace.events import iter_text_events
    from rocm_guide.observe.profiling.torch_trace.timeline import timeline_of

    line = timeline_of(iter_text_events(io.StringIO(data.decode("utf-8", "replace")), "t", {}))
    if len(line.device) or len(line.ops):
        list(iter_device_work(line))
        idle_gaps(line)
    assert all(name.isprintable() for name in line.names)


def profile(suffix: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        from rocm_guide.observe.profiling.amd.reader import read_profile, roofline_rows

        file = folder / f"x{suffix}"
        file.write_bytes(data)
        found = read_profile(file)
        roofline_rows(found)
        assert all(t.name.isprintable() for t in found.totals)

    return read


def read_assembly(data: bytes, _: Path) -> list[dict[str, object]]:
    """What is reported must stand in the text: a damaged text may still be assembly, and then it is read as it is."""
    from cdna.inspection import inspect_assembly

    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    found = inspect_assembly(text, lds=1024, waves=2)
    assert found, "neither a kernel nor an error"
    for one in found:
        assert one.name in text and f"{one.name}{one.arch}".isprintable()
        numbers = [i.line for i in one.kernel.instructions]
        assert numbers == sorted(set(numbers)), "one instruction a line, in the order of the text"
        assert all(i.op in lines[i.line - 1] for i in one.kernel.instructions)
        assert sum(one.kernel.mix().values()) == len(numbers)
        assert all(1 <= x.first_line <= x.last_line <= len(lines) for x in one.kernel.loops)
        assert all(n >= 0 for n in asdict(one.resources).values() if isinstance(n, int))
        assert one.occupancy is None or 0 <= one.occupancy.waves_per_simd <= 8
    return [one.to_dict() for one in found]


def read_ir(data: bytes, _: Path) -> None:
    from cdna.inspection import inspect_ir

    for one in inspect_ir(data.decode("utf-8", "replace")):
        one.to_dict()


def read_elf(data: bytes, _: Path) -> None:
    from cdna.inspection import inspect_code_object

    for one in inspect_code_object(data):
        one.to_dict()


def read_faults(data: bytes, folder: Path) -> None:
    from rocm_guide.observe.debugging.faults.agent_log import read_report
    from rocm_guide.observe.debugging.faults.verdict import explain_report

    (folder / "report.txt").write_bytes(data)
    text = explain_report(read_report(folder / "report.txt"), folder=folder).text()
    assert all(line.isprintable() for line in text.split("\n"))


def read_fault_log(data: bytes, folder: Path) -> None:
    from rocm_guide.observe.debugging.faults.dmesg import read_log

    (folder / "log.txt").write_bytes(data)
    assert all(f"{f.text}{f.process}{f.device}".isprintable() for f in read_log(folder / "log.txt"))


def read_symptoms(data: bytes, _: Path) -> None:
    from rocm_guide.cli.symptoms import explain, rows_of

    text = data.decode("utf-8", "replace")
    rows = list(rows_of(text, "here"))
    assert all(row in rows for row in explain(text, rows))


def read_a_passport(data: bytes, folder: Path) -> None:
    from rocm_guide.finetune.passport import passport_text, read_passport

    (folder / "passport.json").write_bytes(data)
    text = passport_text(read_passport(folder))
    assert all(line.isprintable() for line in text.split("\n"))


def read_tunable(data: bytes, folder: Path) -> None:
    from rocm_guide.tune.tunableop.files import parse_text, read_file

    (folder / "t.csv").write_bytes(data)
    once = read_file(folder / "t.csv").text()
    assert parse_text(once).text() == once


def read_elsewhere(data: bytes, folder: Path) -> None:
    """A tuned file of another library, named for what it looks like; its lines are looked up for a model too."""
    from rocm_guide.tune.tunableop.coverage import covers
    from rocm_guide.tune.tunableop.tuned_elsewhere import read_tuned

    tiles = data.lstrip()[:1] == b"{"
    path = folder / ("E=128,N=768,device_name=AMD_Instinct_MI300X.json" if tiles else "tuned.csv")
    path.write_bytes(data)
    found = read_tuned(path)
    assert all(row.line >= 1 and row.choice.isprintable() for row in found.rows)
    assert all(line.isprintable() for line in found.problems)
    if found.kind.startswith(("aiter", "vllm")):
        report = covers(found, "qwen3-30b-a3b")
        assert report.covered <= len(report.asked)


def read_quantised(data: bytes, folder: Path) -> None:
    """A config.json that is damaged in its quantisation: the bytes of a checkpoint lie between nothing and 16 bits."""
    from rocm_guide.models.shapes import SHAPES
    from rocm_guide.models.sizes import sizes_of
    from rocm_guide.models.sources import config_fields

    (folder / "config.json").write_bytes(data)
    recipe = config_fields(str(folder / "config.json"))
    sizes = sizes_of({**SHAPES["llama-2-7b"], "quantization_config": recipe})
    assert 0 < sizes.stored_bytes < 3 * sizes.parameters and sizes.stored_as.isprintable()


def read_gemm(data: bytes, _: Path) -> None:
    from rocm_guide.tune.tunableop.gemm import describe_gemm, parse_gemm

    describe_gemm(parse_gemm(text_of(data)))


def read_state(data: bytes, folder: Path) -> None:
    from rocm_guide.observe.system.apply import load_state

    (folder / "state.json").write_bytes(data)
    load_state(folder / "state.json")


def read_lengths(data: bytes, _: Path) -> None:
    from rocm_guide.cli import tunable as tunable_model

    with mock.patch.object(tunable_model, "LONGEST", 10_000):  # lists of ten million lengths are right, and slow
        tunable_model.lengths_of(text_of(data))


def read_list(data: bytes, folder: Path) -> None:
    from rocm_guide.cli.notebooks import list_

    (folder / "notebooks").mkdir(exist_ok=True)
    (folder / "notebooks" / "01_topic.ipynb").write_bytes(data)
    with mock.patch("sys.stdout", io.TextIOWrapper(io.BytesIO(), "utf-8")):
        list_(folder / "notebooks")


@cache
def kernel() -> object:
    from cdna.examples.tuning import scale_rows

    return scale_rows


def read_arguments(data: bytes, _: Path) -> None:
    """Four words: two arguments, a constant, an option. All are bound as for a launch; the compiler itself is left out."""
    from cdna.cli.inspect.arguments import compile_option
    from cdna.cli.inspect.python_file import HowTo, compile_typed

    words = [*text_of(data).split("\t"), "", "", ""][:4]
    run_time = [p.name for p in kernel().params if not p.is_constexpr]
    constant = next(p.name for p in kernel().params if p.is_constexpr)
    how = HowTo(
        arguments=[f"{n}={w}" for n, w in zip(run_time, (words[0], words[0], words[1], words[1]), strict=False)],
        constants=[f"{constant}={words[2]}"],
        options=dict([compile_option(words[3])]) if words[3] else {},
    )
    with mock.patch("triton.compiler.compile", side_effect=RuntimeError("left out")):
        list(compile_typed(kernel(), how, "gfx942"))


def read_uri(only_below: bool) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        from rocm_guide.observe.debugging.faults.code_objects import extract_code

        extract_code(text_of(data), folder=folder, proc=str(folder), only_below=only_below)

    return read


def read_latex(data: bytes, _: Path) -> None:
    from course.html import math_to_markup

    math_to_markup(f"${data.decode('utf-8', 'replace')}$")


def notebook() -> list[bytes]:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# 01 · A *title*\n", "\n", "| Covers | S0 |\n"]},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "N = 3", "outputs": []},
    ]
    stamp = {"rocm_guide": {"seconds": 3.5, "peak_mib": 300, "source": "x"}}
    return [json.dumps({"cells": cells, "metadata": stamp, "nbformat": 4}, indent=1).encode()]


def answering(data: bytes) -> Any:
    """A client whose every request is answered with these bytes."""
    import httpx

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield data

    return httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Body())))


def read_events(data: bytes, _: Path) -> None:
    """The stream of a server that `bench` asks."""
    from rocm_guide.serve.client import Answer, Target, ask

    async def one() -> Answer:
        async with answering(data) as client:
            return await ask(client, Target("http://here"), "a b", 4, {}, time.perf_counter())

    answer = asyncio.run(one())
    if answer.error:
        raise GuideError(answer.error)
    assert 0 <= answer.tokens <= 100 and answer.pieces and 0 <= answer.prompt_tokens <= 5000


def read_models(data: bytes, _: Path) -> None:
    """What a server says of itself when `bench` looks at it."""
    from rocm_guide.serve import client

    with mock.patch.object(client, "new_client", lambda *_: answering(data)):
        found = client.look_at("http://127.0.0.1:1")
    assert f"{found.model}{found.version}".isprintable()


def read_weights(data: bytes, folder: Path) -> None:
    from rocm_guide.finetune.run_folder import check_weights

    (folder / "w.safetensors").write_bytes(data)
    check_weights(folder / "w.safetensors")


def weights() -> list[bytes]:
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return [len(header).to_bytes(8, "little") + header + bytes(16)]


def read_devices(data: bytes, folder: Path) -> None:
    """The hub's table of devices: it hands out none where it cannot read who has them."""
    from hub.assign import Assignments

    table = Assignments(folder, [])
    table.file.write_bytes(data)
    table.waiting()


def read_handed_out(data: bytes, folder: Path) -> None:
    """The list of what a learner's home was given, which the learner may write to: no byte of theirs is lost."""
    from hub.handout import LIST, hand_out

    course, home = folder / "course", folder / "home"
    for place, text in ((course, "new"), (home, "mine")):
        place.mkdir(exist_ok=True)
        (place / "01_a.ipynb").write_text(text)
    (home / LIST).write_bytes(data)
    hand_out(course, home)
    assert "mine" in {p.read_text() for p in home.glob("*.ipynb")}, "the learner's work is gone"
    shutil.rmtree(home)


def read_hub(data: bytes, folder: Path) -> None:
    from hub.spawning import running_servers

    (folder / "hub.sqlite").write_bytes(data)
    assert all(running_servers(folder / "hub.sqlite"))


def machine_files(of_a_hub: bool) -> list[bytes]:
    """Each file of a pretended machine, behind its number."""
    with tempfile.TemporaryDirectory() as place:
        machine = pretended(of_a_hub)(Path(place))
        files = sorted(p for p in machine.root.rglob("*") if p.is_file())
        return [f"{i}\n".encode() + file.read_bytes() for i, file in enumerate(files)]


@cache
def hub_database() -> bytes:
    import sqlite3

    with tempfile.TemporaryDirectory() as place, contextlib.closing(sqlite3.connect(f"{place}/h")) as db:
        db.execute("PRAGMA page_size = 512")
        db.execute("CREATE TABLE users (id INTEGER, name TEXT)")
        db.execute("CREATE TABLE spawners (user_id INTEGER, name TEXT, state TEXT, server_id INTEGER)")
        db.executemany("INSERT INTO users VALUES (?, ?)", [(1, "ann"), (2, "bob")])
        states = [json.dumps({"device_name": f"0000:0c:00.0#{n}"}) for n in range(2)]
        db.executemany("INSERT INTO spawners VALUES (?, ?, ?, ?)", [(1, "", states[0], 4), (2, "b", states[1], 5)])
        db.commit()
        return Path(place, "h").read_bytes()


def pretended(of_a_hub: bool) -> Callable[[Path], Any]:
    from hub.pretend import pretend_hub_machine
    from rocm_guide.observe.system.pretend import pretend_machine

    return partial(pretend_hub_machine, gpus=1) if of_a_hub else pretend_machine


def read_machine(of_a_hub: bool) -> Callable[[bytes, Path], None]:
    """What the kernel says of a machine: one file after the other is damaged."""

    def read(data: bytes, folder: Path) -> None:
        from hub.capacity import check_hub
        from rocm_guide.observe.system.audit import check_system
        from rocm_guide.observe.system.machine import Machine

        number, _, content = data.partition(b"\n")
        if not (folder / "root").exists():
            pretended(of_a_hub)(folder)
        machine = Machine(folder / "root", path="", environ={})
        files = sorted(p for p in machine.root.rglob("*") if p.is_file())
        file = files[int(number[:9]) % len(files) if number.isdigit() else 0]
        whole = file.read_bytes()
        file.write_bytes(content)
        try:
            rows = (
                check_hub(machine, homes=folder, libraries=folder / "a/b/c")[0] if of_a_hub else check_system(machine)
            )
        finally:
            file.write_bytes(whole)
        assert rows and all(str(row).isprintable() for row in rows), [str(row) for row in rows]

    return read


def read_rows(data: bytes, folder: Path) -> None:
    """A data set of one's own, as notebooks 02 and 09 take it: loaded, brought into form, looked at row by row."""
    from rocm_guide.finetune.rows_check import check_preferences, check_rows
    from rocm_guide.models.columns import training_rows
    from rocm_guide.models.load import load_data, load_tokenizer

    (folder / "rows.jsonl").write_bytes(data)
    with contextlib.redirect_stdout(io.StringIO()), mock.patch("datasets.config.HF_DATASETS_CACHE", folder):
        rows, tokenizer = load_data(str(folder / "rows.jsonl"))["train"], load_tokenizer()
        if "chosen" in rows.column_names:
            check_preferences(rows, tokenizer, 64)
        else:
            check_rows(training_rows(rows, tokenizer), tokenizer, 64)


CSV = (
    "rocprofv3_kernel_trace.csv",
    "rocprofv3_counter_collection.csv",
    "rocprofv3_kernel_stats.csv",
    "rocprof_results.csv",
    "rocprofv2_results.csv",
    "rocprof_compute/pmc_perf.csv",
    "rocprof_compute/2.1_System_Speed-of-Light.csv",
)
URI = [b"memory://4242#offset=0x7f1e10c3e0a0&size=4648", b"file:///opt/app/test#offset=14309&size=31336"]
LATEX = [
    rb"\frac{1}{\sqrt{d}} \sum_{i=0}^{n-1} e^{x_i - m}",
    rb"\begin{pmatrix} a & b \\ c & d \end{pmatrix}^{T}",
    rb"\left( W + \Delta W \right) x = \text{rank } r",
    rb"\mathrm{softmax}(QK^\top)_{ij} \le 1 \cdot \infty",
]


def read_served_folder(data: bytes, place: Path) -> None:
    from rocm_guide.serve.served_checkpoints import read_checkpoint as look

    folder = place / "served"
    folder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).touch()
    kind = "adapter_config.json" if b"peft_type" in data else "config.json"
    (folder / "adapter_config.json").unlink(missing_ok=True)
    (folder / kind).write_bytes(data)
    look(folder)


SERVED = [
    b'{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 256, "quantization_config": {"quant_method": "gptq"}}',
    b'{"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8}',
]

QUANTISED = [
    b'{"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*down_proj": {}}, "sym": true}',
    b'{"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {"a":'
    b' {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}}}',
    b'{"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["up_proj"], "verbose": false}',
    b'{"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},'
    b' "exclude": ["lm_head"]}',
]

FIGURED = {
    "held_out": {"rows": 8, "loss": 0.5, "perplexity": 1.6487, "exact_match": 0.5},
    "size": {"disk_bytes": 5, "memory_bytes": None},
    "speed": {"decode_tokens_per_s": 1.5},
    "generations": [{"prompt": "a", "text": "b"}],
    "settings": {"rank": 16},
    "hardware": "a CPU",
}
STAGES = [{"stage": "base", "notebook": "02", **FIGURED}, {"stage": "adapter", "notebook": "02", **FIGURED}]
PASSPORT = json.dumps({"schema": 1, "run": "r", "model": "m", "dataset": "d", "seed": 0, "stages": STAGES}).encode()

# ---- command lines: words with tabs between them -----------------------------------------------------------------------

PROGRAMS = {"cdna": "cdna.cli.main", "course": "course.__main__", "hub": "hub.__main__", "guide": "rocm_guide.cli.main"}
SIZES = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
#: What the lines below name: file -> its bytes, of this repository.
GIVEN: dict[str, Callable[[], bytes]] = {
    "m/config.json": lambda: json.dumps(SIZES).encode(),
    "r/passport.json": lambda: PASSPORT,
    "n/01_topic.ipynb": lambda: notebook()[0],
    "t.csv": lambda: (HERE / "samples/tunableop/results_torch2.11_blaslog.csv").read_bytes(),
    "a.csv": lambda: (HERE / "samples/tunableop/elsewhere/a8w8_tuned_gemm.csv").read_bytes(),
    "k.amdgcn": lambda: (ISA / "softmax_t39.amdgcn").read_bytes(),
    "report.txt": lambda: (DATA / "fault_report.txt").read_bytes(),
    "log.txt": lambda: (HERE / "samples/debugging/dmesg.txt").read_bytes(),
    "c.csv": lambda: (PROFILING / "rocprofv3_counter_collection.csv").read_bytes(),
    "trace.json": lambda: traces()[0],
}
#: They are executed. Left out is what waits, trains, compiles, listens or changes the machine.
EXECUTED = """
guide fit m --method lora --rank 8 --dropout 0.1 --batch 4 --seq 2048 --accumulation 2 --gpu MI300X --count 2
guide fit m --method serve --memory 64
guide fit llama-2-7b --method full --count 8 --json
guide launch slurm --nodes 2 --gpus 8 --time 04:00:00 --out job.sh -- train.py --lr 1
guide launch torchrun --nodes 1:4 --gpus 8
guide passport r --json
guide copy common.device.seed_all --out helper.py
guide script 02
guide list --notebooks n
guide tunable check t.csv --explain
guide tunable merge t.csv t.csv --out merged.csv
guide tunable plan m --covers a.csv --batch 4 --prompt 100 --new-tokens 2 --pad 8 --tensor-parallel 2 --gpu MI300X --dtype float16
guide trace summary trace.json --top 5
guide trace compare trace.json trace.json --by kernel
guide trace kernels c.csv --gpu MI300X --dtype fp16
guide faults read report.txt --code m
guide faults log log.txt
guide ck search 256x256x64 --dtype F16
guide ck check one_wave 16x16x16 --set KPerBlock=16
cdna inspect k.amdgcn --lds 1024
cdna inspect k.amdgcn --json
hub --running 1.5 --idle 0.5 --homes m --root r --json
"""


def executed_lines() -> list[bytes]:
    return [b"\t".join(line.encode().split()) for line in EXECUTED.strip().splitlines()]


#: What an option is tried with, until it is accepted.
PLAUSIBLE = ("", "2", "0.5", "new.json", "p.png", "m", "1:4", "04:00:00", "a=2", "a long enough key")


def commands_of(program: str) -> dict[str, object]:
    """The commands of a program, of its groups too, by the words that call them."""
    import typer

    from cdna.cli.program import find_command

    module = importlib.import_module(PROGRAMS[program])
    if program == "hub":
        return {"hub": typer.main.get_command(module.app)}
    found, places = {}, module.PLACES if program == "guide" else module.COMMANDS
    for name, (place, _) in places.items():
        command = find_command(importlib.import_module(place), name, {})
        inner = getattr(command, "commands", {})
        found |= {f"{program}\t{name}\t{n}": c for n, c in inner.items()} or {f"{program}\t{name}": command}
    return found


@cache
def lines_of_all_options() -> list[bytes]:
    """Of every command of every program a line for each of its options, with the first plausible value it accepts."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        for words, command in ((w, c) for program in PROGRAMS for w, c in commands_of(program).items()):
            start = words + "".join("\t01" for p in command.params if p.param_type_name == "argument")
            for option in (p for p in command.params if p.param_type_name == "option"):
                called = f"{start}\t{max(option.opts, key=len)}"
                values = list(PLAUSIBLE)
                for value in values:  # grows by the choices that a refusal names
                    line = (f"{called}\t{value}" if value else called).encode()
                    try:
                        read_line(execute=False)(line, Path(place))
                    except GuideError as e:
                        choices = re.search(r"is none of ([\w-]+)", str(e))
                        values += [choices[1]] if choices and choices[1] not in values else []
                        continue
                    found.append(line)
                    break
    return found


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


def call_program(words: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a command line, in this process."""
    main = importlib.import_module(PROGRAMS.get(words[0], PROGRAMS["guide"])).main
    out, err = io.StringIO(), io.StringIO()
    with mock.patch("sys.argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            return int(left.code or 0), err.getvalue()
    raise AssertionError("the program went on")


def lay_out(place: Path) -> Path:
    """The folder with what the lines name."""
    folder = place / "a/b/c/d"  # ../ leads nowhere that matters
    if not folder.exists():
        for name, content in GIVEN.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content())
    return folder


def read_file_of(name: str, lines: str) -> Callable[[bytes, Path], None]:
    """Damage a file that these command lines name, and give it to one of them."""
    words = [line.encode().replace(b" ", b"\t") for line in lines.strip().splitlines()]

    def read(data: bytes, place: Path) -> None:
        (lay_out(place) / name).write_bytes(data)
        read_line(execute=True)(words[len(data) % len(words)], place)

    return read


OF_A_CONFIG = """
guide fit m --method lora
guide fit m --method serve --json
guide fit m --method full --count 8
guide tunable plan m --batch 4 --prompt 100 --new-tokens 2
"""
OF_ASSEMBLY = """
cdna step k.amdgcn --arg x=fp32[4096] --arg y=fp32[1024] --arg n=2 --arg m=2 --grid 1 --lds 1024 --steps 1 --limit 200
cdna step k.amdgcn --arg x=fp32[4096] --arg y=fp32[1024] --arg n=2 --arg m=2 --grid 1 --lds 1024 --wave 3 --timeline --steps 1
"""


def configs() -> list[bytes]:
    from rocm_guide.models.shapes import SHAPES

    small = [{k: 2 if k in ("num_hidden_layers", "n_layer") else v for k, v in s.items()} for s in SHAPES.values()]
    wrapped = {"model_type": "qwen2_5_vl", "text_config": small[0]}
    return [json.dumps(fields, indent=1).encode() for fields in (*small, wrapped)]


TURN = {"role": "user", "content": "Hi"}
ROWS = (
    {"prompt": "[INST] Hi [/INST]", "completion": " Hello. </s>"},
    {"messages": [TURN, {"role": "assistant", "content": "Hello."}]},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]},
    {"instruction": "Add.", "input": "1 and 2", "output": "3"},
    {"question": "Why?", "answer": "Because."},
    {"text": "[INST] Hi [/INST] Hello."},
    {"prompt": "[INST] Hi [/INST]", "chosen": " Hello. </s>", "rejected": " Go. </s>"},
    {name: [TURN, {"role": "assistant", "content": name}] for name in ("chosen", "rejected")},
)
EVENTS = [
    b'data: {"choices": [{"text": "a", "finish_reason": null}], "usage": null}\n\n'
    b'data: {"choices": [{"text": "b", "finish_reason": "length"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\ndata: [DONE]\n\n',
    b': ping\r\n\r\ndata: {"choices": [{"text": "a"}]}\r\ndata: {"error": {"message": "no"}}\r\n',
]


def read_line(execute: bool) -> Callable[[bytes, Path], None]:
    """Give a damaged line to its program: it is done, or refused in one line with nothing written or lost."""

    def read(data: bytes, place: Path) -> None:
        from typer.core import TyperCommand

        folder = lay_out(place)
        before = files_below(place)
        words = text_of(data).replace("\0", "").split("\t")
        owner = next(c for c in TyperCommand.__mro__ if "invoke" in vars(c))
        parsed = contextlib.nullcontext() if execute else mock.patch.object(owner, "invoke", lambda self, ctx: None)
        with parsed, contextlib.chdir(folder):
            code, said = call_program(words)
        after = files_below(place)
        if before != after:
            shutil.rmtree(place / "a")
        named = "\t".join(words)
        lost = [n for n in before if after.get(n) != before[n] and not (code == 0 and "--out" in named)]
        assert not lost, f"exit code {code}, and these files are lost or changed: {lost}"
        assert code in (0, 1, 2) and "Traceback" not in said, f"exit code {code}: {said[:300]!r}"
        if code == 2:
            assert after.keys() == before.keys(), f"refused, and wrote {sorted(after.keys() - before.keys())}"
            said = re.sub(r"^building .* without weights \.\.\.\n", "", said)  # progress, of what takes seconds
            if said:  # without any word the help is shown
                assert said.count("\n") == 1, f"more than a line: {said[:300]!r}"
            raise GuideError(said.strip() or "help")

    return read


#: name -> (samples, reader, the share of damaged inputs that is refused at least; 0 where anything may be text)
TARGETS: dict[str, tuple[Callable[[], list[bytes]], Callable[[bytes, Path], None], float]] = {
    "rocprof-csv": (lambda: [head(PROFILING / n) for n in CSV], profile(".csv"), 0.05),
    "rocpd": (lambda: [(PROFILING / "rocprofv3_results.db").read_bytes()], profile(".db"), 0.02),
    "assembly": (
        lambda: (
            [head(ISA / n, 2500) for n in ("nested_t39.amdgcn", "hip_clang22.s")]
            + [(ISA / "softmax_t39.amdgcn").read_bytes()]
        ),
        read_assembly,
        0,
    ),
    "ir": (lambda: [(ISA / "softmax_t39.ttgir").read_bytes(), head(ISA / "int4kv_t31.ttgir", 4000)], read_ir, 0.02),
    "elf": (lambda: [(ISA / n).read_bytes() for n in ("gemm_t39.hsaco", "hip_clang22.co")], read_elf, 0.02),
    "faults-read": (
        lambda: [
            (DATA / "fault_report.txt").read_bytes(),
            (HERE / "samples" / "debugging" / "assert_trap.txt").read_bytes()[:5000],
        ],
        read_faults,
        0,
    ),
    "faults-log": (lambda: [(HERE / "samples" / "debugging" / "dmesg.txt").read_bytes()], read_fault_log, 0),
    "symptoms": (lambda: [(HERE.parent / "docs" / "troubleshooting.md").read_bytes()[:6000]], read_symptoms, 0),
    "passport": (lambda: [PASSPORT], read_a_passport, 0.05),
    "quantised": (lambda: QUANTISED, read_quantised, 0.05),
    "tunable-csv": (
        lambda: [head(p, 1500) for p in sorted((HERE / "samples" / "tunableop").glob("*.csv"))],
        read_tunable,
        0.05,
    ),
    "tuned-elsewhere": (
        lambda: [p.read_bytes() for p in sorted((HERE / "samples/tunableop/elsewhere").iterdir())],
        read_elsewhere,
        0.05,
    ),
    "gemm-line": (
        lambda: [
            b"GemmTunableOp_Half_TN,tn_4096_128_4096_ld_4096_4096_4096,Gemm_Hipblaslt_TN_572,0.0123",
            b"GemmStridedBatchedTunableOp_BFloat16_NT,nt_8_4_2_B_16_ld_8_4_8,Default,0.01",
        ],
        read_gemm,
        0.05,
    ),
    "state-file": (
        lambda: [b'{"version": 1, "saved": {"numa_balancing": {"before": "1", "set": "0"}}}'],
        read_state,
        0.05,
    ),
    "prompt-lengths": (lambda: [b"1:256", b"5,12,100", b"128"], read_lengths, 0.05),
    "torch-trace": (traces, read_trace, 0.05),
    "notebook-list": (notebook, read_list, 0.05),
    "inspect-arguments": (
        lambda: [
            b"*fp16:16:2g\t4096\t128\twaves_per_eu=2",
            b"fp16[4096,4096]\ti32:16\t1024\tkpack=2",
            b"*bf16\t2.0\ttl.float16\tmatrix_instr_nonkdim=16",
            b"*kfp8e4b8\ti64\tTrue\t",
        ],
        read_arguments,
        0.05,
    ),
    "fault-uri": (lambda: URI, read_uri(only_below=False), 0.5),
    "fault-uri-in-report": (lambda: URI, read_uri(only_below=True), 0.5),
    "latex": (lambda: LATEX, read_latex, 0),
    "served-folder": (lambda: SERVED, read_served_folder, 0.05),
    "model-config": (configs, read_file_of("m/config.json", OF_A_CONFIG), 0.05),
    "assembly-executed": (
        lambda: [(ISA / "nested_t39.amdgcn").read_bytes()],
        read_file_of("k.amdgcn", OF_ASSEMBLY),
        0.02,
    ),
    "bench-stream": (lambda: EVENTS, read_events, 0.05),
    "bench-models": (lambda: [b'{"data": [{"id": "m"}], "version": "0.11.0"}'], read_models, 0.05),
    "weights-header": (weights, read_weights, 0.05),
    "rows": (lambda: [b"".join(json.dumps(row).encode() + b"\n" for _ in range(3)) for row in ROWS], read_rows, 0.05),
    "hub-devices": (lambda: [b'{"held": {"x#0": "ann"}, "waiting": {"bob": 1.5}}'], read_devices, 0.05),
    "hub-handed-out": (lambda: [b'{"01_a.ipynb": "0f"}'], read_handed_out, 0),
    "hub-database": (lambda: [hub_database()], read_hub, 0.02),
    "machine": (lambda: machine_files(of_a_hub=False), read_machine(of_a_hub=False), 0),
    "hub-machine": (lambda: machine_files(of_a_hub=True), read_machine(of_a_hub=True), 0),
    "command-line": (executed_lines, read_line(execute=True), 0.3),
    "options": (lines_of_all_options, read_line(execute=False), 0.3),
}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {PATIENCE} s of CPU for one input")


def campaign(name: str, count: int, seed: int = 0) -> dict[str, object]:
    """``count`` damaged inputs to one target: how many were read, refused, and what else happened (input and error)."""
    samples, read, _ = TARGETS[name]
    originals, rng = samples(), random.Random(f"{name} {seed}")
    refused, slowest, wrong, began = 0, 0.0, [], time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = signal.signal(signal.SIGVTALRM, _too_long)
    try:
        with tempfile.TemporaryDirectory() as place:
            for _ in range(count):
                data = mutate(rng.choice(originals), rng)
                start = time.process_time()
                signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
                try:
                    read(data, Path(place))
                except GuideError as e:
                    refused += 1
                    said = str(e)
                    if not said or not said.isprintable() or len(said) > 16_000:
                        wrong.append((data, f"message of {len(said)} characters: {said[:200]!r}"))
                except (Exception, SystemExit) as e:  # noqa: BLE001 - the finding
                    wrong.append((data, f"{type(e).__name__}: {e}"[:300]))
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                slowest = max(slowest, time.process_time() - start)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024
    if grown > MEMORY:
        wrong.append((b"", f"memory grew by {grown} MiB"))
    figures = {
        "target": name,
        "inputs": count,
        "refused": refused,
        "unnamed": len(wrong),
        "slowest_s": round(slowest, 2),
        "grown_mib": grown,
    }
    return {**figures, "seconds": round(time.perf_counter() - began, 1), "wrong": wrong}


def main() -> int:
    """The command line: exit code 1 when anything but a result or a GuideError came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all if left out")
    parser.add_argument("--count", type=int, default=1000, help="damaged inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := [t for t in options.targets if t not in TARGETS]:
        parser.error(f"{unknown[0]}: no such target; choose from {', '.join(TARGETS)}")
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    total = bad = 0
    for name in options.targets or TARGETS:
        found = campaign(name, options.count, options.seed)
        total, bad = total + options.count, bad + int(str(found["unnamed"]))
        wrong = found.pop("wrong")
        print(json.dumps(found), flush=True)
        for data, error in wrong[:3]:
            print(f"    {error}   from {data[:300]!r}", flush=True)
    print(f"{total:,} damaged inputs, {bad} unnamed errors", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
