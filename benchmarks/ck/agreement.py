# SPDX-License-Identifier: MIT
"""Do our rules and CK's static_assert agree? 200 random instances, half of them impossible, each judged by both.

    python -m benchmarks.ck.agreement             # those that results/ck_agreement.json has not; --again for all
    python -m benchmarks.ck.agreement --only 6    # one of them, compiled by itself; writes nothing

CK judges while it is compiled, and most of that time goes into templates that do not depend on the instance. So the
headers and one good instance of each kind are compiled once (a precompiled header with its templates instantiated), and
each random instance after it by the compiler's front end alone, up to its first refusal. Prints a line for each, and
exits with 1 if a verdict differs. No GPU and no ROCm. tests/tune/ck/test_agreement.py holds our rules to what is
stored.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import platform
import re
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cdna.hip.toolchain import HipError, banner, find_clang, run_clang
from rocm_guide.common.base import write_text
from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.tune.ck.build import VERDICT_ONLY, archive_bytes, ck_refuses, compile_command, source_key
from rocm_guide.tune.ck.generate import kernel_source
from rocm_guide.tune.ck.instance import GemmInstance, Problem
from rocm_guide.tune.ck.rules import check
from tests.tune.ck.random_instances import BASES, random_instances

RESULT = Path(__file__).parents[1] / "results/ck_agreement.json"
#: A problem that every base can take.
ROOMY = Problem(64, 64, 128)


def split(source: str) -> tuple[str, str, str, str]:
    """Return a source in four parts: CK's header and names for its types, our names, the operation's struct,
    instance and kernel.
    """
    head, using, rest = source.partition("using PassThrough")
    line, _, rest = rest.partition("\n")
    names, before, kernel = rest.partition("using Instance")
    names, word, struct = names.partition("struct ")
    return head + using + line + "\n", names, word + struct, before + kernel


class Judge:
    """CK's verdict on one instance after the other, with what they share compiled beforehand."""

    def __init__(self, folder: Path, bases: Sequence[GemmInstance]) -> None:
        parts = [split(kernel_source(base, ROOMY)) for base in bases]
        # No kernels: the compiler would read those again for each instance, to emit them.
        kernels = [
            f"namespace base{n} {{\n{re.sub('extern .* void gemm', 'inline __device__ void gemm', kernel)}}}\n"
            for n, (*_, kernel) in enumerate(parts)
        ]
        self._structs = dict.fromkeys(struct for _, _, struct, _ in parts)
        self._command, self._source = compile_command(folder, "gfx942"), folder / "gemm.hip"
        self._shared, header = folder / "shared.pch", folder / "shared.h"
        names = [names for _, names, _, _ in parts]
        write_text(header, "\n".join(['#include "rtc.h"', parts[0][0], *names, *self._structs, *kernels]))
        options = ("-emit-pch", "-fpch-instantiate-templates", "-o", str(self._shared))
        front_end = [word for option in options for word in ("-Xclang", option)]
        run_clang([*self._command, "-fsyntax-only", *front_end, str(header)], "the bases, which CK accepts")

    def refuses(self, instance: GemmInstance, problem: Problem) -> str:
        """Return CK's first refusal, or "" if it accepts."""
        _, names, struct, kernel = split(kernel_source(instance, problem))
        write_text(self._source, names + ("" if struct in self._structs else struct) + kernel)
        shared = ("-Xclang", "-include-pch", "-Xclang", str(self._shared))
        try:
            run_clang([*self._command, *VERDICT_ONLY, *shared, str(self._source)], "CK")
        except HipError as e:
            return str(e)
        return ""


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def earlier(keys: Sequence[str]) -> tuple[dict[int, dict[str, object]], float]:
    """Return verdicts that are stored and still hold (same source, headers and options),
    and the CPU seconds they took.
    """
    if not RESULT.is_file():
        return {}, 0.0
    found = json.loads(RESULT.read_text())
    kept = {row["number"]: row for row in found["verdicts"] if row["key"] == dict(enumerate(keys)).get(row["number"])}
    return kept, found["cpu_seconds"] if kept else 0.0


def store(rows: dict[int, dict[str, object]], seed: int, seconds: float) -> None:
    """Write what was judged so far."""
    judged = [rows[n] for n in sorted(rows)]
    facts = {
        "question": "is an instance, with its problem, refused by our rules exactly where "
        "CK's static_assert refuses it",
        "hardware": describe_cpu(),
        "host": host_facts(),
        "versions": {"clang": banner(tuple(find_clang())), "ck": "1.2.0", "python": platform.python_version()},
        "headers": hashlib.sha256(archive_bytes()).hexdigest(),
        "seed": seed,
        "instances": len(judged),
        "accepted_by_ck": sum(not row["ck"] for row in judged),
        "verdicts_that_differ": sum(bool(row["ours"]) != bool(row["ck"]) for row in judged),
        "cpu_seconds": round(seconds, 1),
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in judged)
    text = json.dumps(facts, indent=1).removesuffix("\n}")
    write_text(RESULT, f'{text},\n "verdicts": [\n{lines}\n ]\n}}\n')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="judge those too that are stored already")
    parser.add_argument("--only", type=int, help="this one alone, compiled with all its headers; nothing is stored")
    asked = parser.parse_args()
    pairs = list(itertools.islice(random_instances(asked.seed), max(asked.count, (asked.only or 0) + 1)))
    keys = [source_key(kernel_source(*pair)) for pair in pairs]
    rows, before = ({}, 0.0) if asked.again or asked.only is not None else earlier(keys)
    todo = [n for n in range(asked.count) if n not in rows] if asked.only is None else [asked.only]
    with tempfile.TemporaryDirectory() as folder:
        refuses = ck_refuses if asked.only is not None or not todo else Judge(Path(folder), BASES).refuses
        for number in todo:
            instance, problem = pairs[number]
            ours, began = [str(r) for r in check(instance, problem) if r.by_ck], cpu_seconds()
            theirs = refuses(instance, problem)
            theirs = theirs.partition("error: ")[2] or theirs
            rows[number] = {"number": number, "key": keys[number], "ours": ours[0] if ours else "", "ck": theirs}
            verdict = "agree" if bool(ours) == bool(theirs) else f"DIFFER: {instance} {problem}"
            print(f"{number:>4} {cpu_seconds() - began:5.1f} s  ours: {ours[0] if ours else 'accepts'}", flush=True)
            print(f"{'':12} CK: {theirs or 'accepts'}\n{'':14}{verdict}", flush=True)
            if asked.only is None:
                store(rows, asked.seed, before + cpu_seconds())
    differ = sum(bool(row["ours"]) != bool(row["ck"]) for row in rows.values())
    accepted = sum(not row["ck"] for row in rows.values())
    seconds = before + cpu_seconds()
    print(f"{len(rows)} instances, {accepted} accepted by CK, {differ} verdicts differ; {seconds:.0f} CPU seconds")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
