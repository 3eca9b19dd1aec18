# SPDX-License-Identifier: MIT
"""Read what other tuners leave: hipBLASLt's bench log and tuning file, vLLM's files for experts, AITER's CSV files.

Each line becomes a row: what it is for, and which kernel it names. What is not understood is said with its line.
Sources: hipBLASLt, docs/how-to/how-to-use-hipblaslt-offline-tuning.rst and UserDrivenTuningParser.cpp
(https://github.com/ROCm/rocm-libraries); vLLM, model_executor/layers/fused_moe (https://github.com/vllm-project/vllm);
AITER, aiter/configs, ops/gemm_op_a8w8.py and fused_moe.py (https://github.com/ROCm/aiter). Read on 2026-11-27.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import DoubledKey, each_once, shown
from rocm_guide.tune.tunableop.files import parse_text, read_plain
from rocm_guide.tune.tunableop.gemm import TunableFileError

__all__ = ["KINDS", "TunedElsewhere", "read_tuned"]

#: Kinds of file, in words.
KINDS = {
    "tunableop": "TunableOp's results",
    "hipblaslt log": "hipBLASLt's log of what a program asked",
    "hipblaslt file": "hipBLASLt's tuning file",
    "vllm experts": "vLLM's tiles for experts",
    "aiter gemm": "AITER's tuned GEMMs",
    "aiter experts": "AITER's tuned experts",
}
_BIGGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file.

    ``key`` is what the library looks up, ``choice`` what it finds, ``us`` microseconds of one call where the file says
    them, ``times`` how often the line stands there. ``device``: (architecture, compute units) that a line is for.
    """

    line: int
    key: tuple[Any, ...]
    choice: str
    us: float | None = None
    device: tuple[str, int] | None = None
    times: int = 1


@dataclass(slots=True)
class TunedElsewhere:
    """A file that was read: its kind (see :data:`KINDS`), rows in file order, and what was odd, a sentence each.

    ``about`` are facts of the whole file: vLLM's name of it, taken apart; the columns of a CSV.
    """

    kind: str
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def read_tuned(path: str | os.PathLike[str]) -> TunedElsewhere:
    """Read a tuned file of any kind; which one it is, its name and first lines say.

    Raises:
        TunableFileError: the file cannot be read, is of no known kind, or has a line that its tuner would not write.
    """
    name = Path(path).name
    text = read_plain(path).removeprefix("\ufeff")
    if name.endswith(".json"):
        return _vllm(text, name)
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        if not line.isprintable() and "\t" not in line:
            raise TunableFileError(f"{name}:{number}: {shown(line, 60)}: holds characters that cannot be printed")
    head = [c.strip() for c in lines[0][1].split(",")] if lines else []
    if "transA" in head:
        return _hipblaslt(lines, name)
    if "cu_num" in head or {"M", "N", "K"} <= {*head} or {"token", "expert"} <= {*head}:
        return _aiter(lines, name)
    if head and (head[0] == "Validator" or "TunableOp_" in head[0]):
        return _tunableop(text, name)
    if any(_BENCH in line for _, line in lines):
        return _bench_log(lines, name)
    number, first = (lines[0][0], shown(lines[0][1], 60)) if lines else (1, "nothing")
    raise TunableFileError(f"{name}:{number}: begins with {first}; known are {', '.join(KINDS.values())}")


def _tunableop(text: str, name: str) -> TunedElsewhere:
    file = parse_text(text, name=name)
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.count(",")]
    number = {"".join(line.split(",")[:2]): i for i, line in reversed(lines)}
    found = TunedElsewhere("tunableop", problems=file.problems, about=dict(file.validators))
    for gemm in file.tuned:
        us = None if gemm.time_ms is None else 1e3 * gemm.time_ms
        found.rows.append(Row(number["".join(gemm.key)], gemm.key, str(gemm.solution), us))
    return found


# --- numbers and columns -------------------------------------------------------------------------------------------


def _whole(text: Any, what: str, where: str, least: int = 1) -> int:
    """Return a whole number; anything else is named with its line."""
    plain = str(text).strip()
    value = int(plain) if re.fullmatch(r"[0-9]{1,19}", plain) and not isinstance(text, bool) else -1
    if not least <= value <= _BIGGEST:
        raise TunableFileError(f"{where}: {what}={shown(plain, 40)}: give a whole number, {least} or more")
    return value


def _microseconds(text: str, what: str, where: str) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TunableFileError(f"{where}: {what}={shown(text, 40)}: give microseconds, 0 or more")
    return value


def _one_of(text: str, known: Iterable[str], what: str, where: str) -> str:
    if text not in known:
        raise TunableFileError(f"{where}: {what}={shown(text, 40)}: known are {', '.join(known)}")
    return text


def _header(line: str, needed: Iterable[str], where: str) -> list[str]:
    columns = [c.strip() for c in line.split(",")]
    if missing := [c for c in needed if c not in columns]:
        raise TunableFileError(f"{where}: the header has no column {', '.join(missing)}; write what the tuner wrote")
    if twice := [c for c in columns if columns.count(c) > 1]:
        raise TunableFileError(f"{where}: the header has the column {shown(twice[0], 40)} twice; take one out")
    return columns


def _cells(line: str, columns: list[str], where: str) -> dict[str, str]:
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != len(columns):
        raise TunableFileError(f"{where}: {len(cells)} columns where the header has {len(columns)}; mend the line")
    return dict(zip(columns, cells, strict=True))


#: What becomes of two lines for one product, by the kind of file.
_TWICE = {
    "hipblaslt file": "hipBLASLt keeps both, and which one it takes is not said; take one out",
    "aiter gemm": "AITER does not load a file with both; take one out",
    "aiter experts": "AITER takes the first",
}


def _add(found: TunedElsewhere, row: Row, seen: dict[Any, int], name: str) -> None:
    """Add a row; of two for the same product the second is a problem."""
    key = (row.key, row.device)
    if key in seen:
        found.problems.append(f"{name}:{row.line}: for the same as line {seen[key]}: {_TWICE[found.kind]}")
        return
    seen[key] = row.line
    found.rows.append(row)


# --- hipBLASLt -----------------------------------------------------------------------------------------------------

_BENCH = "hipblaslt-bench "
TYPES = ("f16_r", "bf16_r", "f32_r", "f64_r", "f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "i8_r", "i32_r")
COMPUTE = ("f32_r", "xf32_r", "f64_r", "i32_r", "f16_r", "f32_f16_r", "f32_bf16_r")
#: What hipBLASLt compares, by its column in a tuning file.
_KEY = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
#: Columns of today's tuning file that the lookup does not compare, and options of the bench that say the same.
_SILENT = (
    "grouped_gemm alpha lda stride_a beta ldb stride_b ldc stride_c ldd stride_d d_type scaleA scaleB scaleC scaleD "
    "amaxD activation_type bias_vector bias_type rotating_buffer hipblaslt-Gflops hipblaslt-GB/s solution_name "
    "kernel_name"
)
_OPTIONS = (
    "api_method lda ldb ldc ldd stride_a stride_b stride_c stride_d alpha beta scaleA scaleB scaleC scaleD amaxD "
    "scaleAlpha_vector d_type scale_type bias_type bias_source algo_method activation_type activation_arg1 "
    "activation_arg2 aux_type rotating cold_iters iters requested_solution splitk workspace initialization"
)
_FLAGS = "any_stride bias_vector use_e gradient grouped_gemm swizzleA swizzleB print_kernel_info use_gpu_timer HPA"


def _product(cells: Mapping[str, str], where: str) -> tuple[Any, ...]:
    """Return the key of a product: what hipBLASLt compares, sizes as BLAS counts them."""
    out: list[Any] = [_one_of(cells[c], ("N", "T"), c, where) for c in _KEY[:2]]
    out += [_whole(cells[c], c, where) for c in _KEY[2:6]]
    out += [_one_of(cells[c], TYPES, c, where) for c in _KEY[6:9]]
    return (*out, _one_of(cells["compute_type"], COMPUTE, "compute_type", where))


def _hipblaslt(lines: list[tuple[int, str]], name: str) -> TunedElsewhere:
    """Read a tuning file: a header that names the columns, then a line for each winner."""
    where = f"{name}:{lines[0][0]}"
    columns = _header(lines[0][1], (*_KEY, "solution_index"), where)
    found = TunedElsewhere("hipblaslt file", about={"columns": columns})
    seen: dict[Any, int] = {}
    unknown = [c for c in columns if c not in (*_KEY, *_SILENT.split(), "us", "solution_index")]
    found.problems += [f"{where}: column {shown(c, 40)}: not known here, and not compared" for c in unknown]
    if not {"kernel_name", "solution_name"} & {*columns}:
        only = "an index alone counts only in the build of hipBLASLt that wrote it"
        found.problems.append(f"{where}: no column kernel_name; {only}")
    for number, line in lines[1:]:
        where = f"{name}:{number}"
        if line.startswith("#") or [c.strip() for c in line.split(",")] == columns:
            continue
        cells = _cells(line, columns, where)
        choice = f"solution {_whole(cells['solution_index'], 'solution_index', where, 0)}"
        us = _microseconds(cells["us"], "us", where) if "us" in cells else None
        _add(found, Row(number, _product(cells, where), choice, us), seen, name)
    return found


def _bench_log(lines: list[tuple[int, str]], name: str) -> TunedElsewhere:
    """Read the lines that HIPBLASLT_LOG_MASK=32 writes: a command of hipblaslt-bench for each product asked for."""
    found = TunedElsewhere("hipblaslt log", about={"other lines": sum(_BENCH not in line for _, line in lines)})
    rows: dict[tuple[Any, ...], Row] = {}
    for number, line in lines:
        if _BENCH not in line:
            continue
        where = f"{name}:{number}"
        cells = _bench_options(line.split(_BENCH, 1)[1].split(), where, found.problems)
        if missing := [f"{'-' * min(len(o), 2)}{o}" for o in _KEY if o not in cells]:
            raise TunableFileError(f"{where}: the command has no {missing[0]}; the line is cut or of another tool")
        index = _whole(cells.get("solution_index", "0"), "solution_index", where, 0)
        row = Row(number, _product(cells, where), f"solution {index}" if "solution_index" in cells else "its default")
        first = rows.setdefault((*row.key, row.choice), row)
        if first is not row:
            rows[*row.key, row.choice] = Row(first.line, first.key, first.choice, None, None, first.times + 1)
    found.rows = list(rows.values())
    return found


def _bench_options(words: list[str], where: str, problems: list[str]) -> dict[str, str]:
    """Return the options of one command; one that is not known becomes a problem, one that stands twice an error."""
    cells: dict[str, str] = {}
    at = 0
    while at < len(words):
        word, option = words[at], words[at].lstrip("-")
        value = words[at + 1] if at + 1 < len(words) else ""
        takes = value and not re.match(r"--?[A-Za-z]", value)
        if not word.startswith("-"):
            raise TunableFileError(f"{where}: {shown(word, 40)} where an option of hipblaslt-bench should stand")
        if option in cells:
            raise TunableFileError(f"{where}: {shown(word, 40)} stands twice; the line is two that ran together")
        if option in _FLAGS.split() and not takes:
            cells[option] = "1"
        elif not takes:
            raise TunableFileError(f"{where}: {shown(word, 40)} has no value; the line is cut")
        else:
            cells[option] = value
            at += 1
        if option not in (*_KEY, *_OPTIONS.split(), *_FLAGS.split(), "solution_index"):
            problems.append(f"{where}: {shown(word, 40)}: an option that is not known here, and not compared")
        at += 1
    return cells


# --- vLLM ----------------------------------------------------------------------------------------------------------

_NAME = re.compile(
    r"E=([0-9]{1,9}),N=([0-9]{1,9}),device_name=([^,]+)(?:,dtype=([^,]+))?(?:,block_shape=\[([0-9]+),([0-9]+)\])?\.json"
)
_TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
#: Numbers of one configuration: (name, least, must it be a power of two).
_TILES = dict.fromkeys((*_TILE, "num_warps"), (1, True))
_TILES |= dict.fromkeys(("GROUP_SIZE_M", "SPLIT_K", "num_stages"), (1, False))
_TILES |= {"waves_per_eu": (0, False), "matrix_instr_nonkdim": (0, False), "kpack": (1, False)}


def _vllm(text: str, name: str) -> TunedElsewhere:
    """Read the tiles of one expert layer: the name says for what, each key is a number of tokens."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        form = "E=…,N=…,device_name=…[,dtype=…][,block_shape=[…,…]].json"
        raise TunableFileError(f"{name}: vLLM looks for {form}, exactly")
    about: dict[str, Any] = {"E": int(parts[1]), "N": int(parts[2]), "device_name": parts[3], "dtype": parts[4]}
    about["block_shape"] = [int(parts[5]), int(parts[6])] if parts[5] else None
    try:
        data = json.loads(text, object_pairs_hook=each_once)
    except DoubledKey as e:
        raise TunableFileError(f"{name}: {e}") from None
    except (ValueError, RecursionError) as e:
        line = getattr(e, "lineno", 1)
        raise TunableFileError(f"{name}:{line}: is no JSON ({e!s:.60}); copy the file again") from None
    if not isinstance(data, dict) or not [k for k in data if k != "triton_version"]:
        raise TunableFileError(f"{name}:1: holds {data!r:.40}; a file of tiles is an object: tokens and their tiles")
    found = TunedElsewhere("vllm experts", about=about)
    if data.pop("triton_version", None) is not None:
        found.about["triton_version"] = "given"
    for tokens, tiles in data.items():
        line = text.count("\n", 0, max(text.find(json.dumps(tokens)), 0)) + 1
        where = f"{name}:{line}"
        _whole(tokens, "tokens", where)
        if not isinstance(tiles, dict):
            raise TunableFileError(f"{where}: {shown(tokens, 20)}: {tiles!r:.40}: give the tiles, as an object")
        if missing := [n for n in (*_TILE, "GROUP_SIZE_M") if n not in tiles]:
            lacking = f"have no {missing[0]}; vLLM's kernel needs it"
            raise TunableFileError(f"{where}: the tiles for {tokens} tokens {lacking}")
        for n, value in tiles.items():
            if n not in _TILES:
                found.problems.append(f"{where}: {shown(n, 40)}={value!r:.40}: a number that is not known here")
                continue
            least, power = _TILES[n]
            size = _whole(value if type(value) is int else repr(value), n, where, least)
            if power and size & (size - 1):
                raise TunableFileError(f"{where}: {n}={size}: Triton takes powers of two")
        rest = [f"{n}={v}" for n, v in tiles.items() if n in ("SPLIT_K", "num_warps", "num_stages")]
        choice = " ".join(["x".join(str(tiles[n]) for n in _TILE), *rest])
        found.rows.append(Row(line, (int(tokens),), choice))
    if twice := [r for r in found.rows if [x.key for x in found.rows].count(r.key) > 1]:
        raise TunableFileError(f"{name}:{twice[1].line}: {twice[1].key[0]} tokens stand twice; take one out")
    return found


# --- AITER ---------------------------------------------------------------------------------------------------------

#: Columns that AITER looks a GEMM or experts up by, beside the device; "" is what a file without the column has.
GEMM_KEY = ("M", "N", "K")
GEMM_VARIANT = ("bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w")
EXPERT_KEY = ("token", "model_dim", "inter_dim", "expert", "topk")
EXPERT_VARIANT = ("act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1")
_GEMM_MORE = "gfx cu_num libtype kernelId solidx splitK us kernelName tflops bw errRatio err_ratio"
_EXPERT_MORE = (
    "gfx cu_num block_m ksplit us1 kernelName1 err1 us2 kernelName2 err2 us run_1stage xbf16 flat tflops bw _tag"
)
#: The architecture that AITER takes for a line of experts that names compute units alone.
_OF_UNITS = {80: "gfx942", 304: "gfx942", 256: "gfx950"}
_CASES = {
    "aiter gemm": (GEMM_KEY, GEMM_VARIANT, (*_GEMM_MORE.split(), *GEMM_VARIANT)),
    "aiter experts": (EXPERT_KEY, EXPERT_VARIANT, (*_EXPERT_MORE.split(), *EXPERT_VARIANT)),
}


def _aiter(lines: list[tuple[int, str]], name: str) -> TunedElsewhere:
    """Read a CSV of AITER: GEMMs by M (tokens), N (outputs) and K, or experts by tokens and sizes."""
    where = f"{name}:{lines[0][0]}"
    columns = [c.strip() for c in lines[0][1].split(",")]
    kind = "aiter experts" if "expert" in columns else "aiter gemm"
    key, variants, more = _CASES[kind]
    if "cu_num" not in columns and "us" not in columns:
        raise TunableFileError(f"{where}: {shown(lines[0][1], 40)}: a list of what is to be tuned; it names no kernel")
    if batched := [c for c in ("B", "b") if c in columns]:
        raise TunableFileError(f"{where}: column {batched[0]}: batched products of AITER are not read here")
    names = ("kernelName1", "kernelName2") if kind == "aiter experts" else ("kernelName",)
    columns = _header(lines[0][1], ("cu_num", *key, "us", *names), where)
    if unknown := [c for c in columns if c not in (*key, *more)]:
        raise TunableFileError(f"{where}: column {shown(unknown[0], 40)}: not one of AITER's that are known here")
    about = {"columns": columns, "variants": [c for c in variants if c in columns]}
    found = TunedElsewhere(kind, about=about)
    seen: dict[Any, int] = {}
    for number, line in lines[1:]:
        where = f"{name}:{number}"
        cells = _cells(line, columns, where)
        units = _whole(cells["cu_num"], "cu_num", where)
        arch = cells.get("gfx", _OF_UNITS.get(units, ""))
        if not re.fullmatch(r"gfx[0-9a-f]{3,4}", arch):
            said = f"gfx={shown(arch, 40)}" if "gfx" in cells else f"cu_num={units}"
            raise TunableFileError(f"{where}: {said}: no architecture such as gfx942 follows from it")
        product = (*(_whole(cells[c], c, where) for c in key), *(cells[c] for c in about["variants"]))
        if blank := [c for c in names if not cells[c] and c != "kernelName2"]:
            raise TunableFileError(f"{where}: {blank[0]} is empty; the line names no kernel")
        if "libtype" in cells and not re.fullmatch(r"[a-z_]+", cells["libtype"]):
            raise TunableFileError(f"{where}: libtype={shown(cells['libtype'], 40)}: give a library, as asm or ck")
        choice = " + ".join(cells[c] for c in names if cells[c])
        row = Row(number, product, choice, _microseconds(cells["us"], "us", where), (arch, units))
        _add(found, row, seen, name)
    return found
