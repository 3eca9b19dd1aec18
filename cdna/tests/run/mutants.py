# SPDX-License-Identifier: MIT
"""Damaged listings: ``python -m tests.run.mutants 10000`` prints how so many of them ended, and the time.

Each mutant is executed. It must give a result or a RunError of one line; anything else ends the script with its
traceback. Besides two hand-written kernels a compiled one is damaged, which has loops, LDS and a descriptor.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from cdna.run import RunError, run
from tests.run.test_memory import COPY, EXCHANGE, kernel

X, Y = np.arange(64, dtype=np.uint32), np.zeros(128, np.uint32)
PIECES = [
    "v1",
    "v2",
    "v[2:3]",
    "s4",
    "s[4:5]",
    "s[6:7]",
    "vcc",
    "exec",
    "m0",
    "0",
    "-1",
    "1.0",
    "0xffffffff",
    "off",
    "a1",
    "v255",
    "s101",
    "offset:65535",
    "offset:-4096",
    "clamp",
    "s_barrier",
    "s_waitcnt 0",
    "v_mov_b32",
    "ds_add_u32",
    "v_pk_fma_f32",
    "lds",
    "sc0",
    "src_scc",
    "|v1|",
    "-v1",
    "s_branch",
    "99999999999999999999",
    "[",
    ",",
    "é",
]


def mutate(text, rng):
    """One to three small damages anywhere in the listing."""
    for _ in range(rng.randint(1, 3)):
        lines = text.split("\n")
        i = rng.randrange(len(lines))
        kind = rng.randrange(6)
        words = lines[i].replace(",", " , ").split()
        if kind == 0:
            del lines[i]
        elif kind == 1:
            lines.insert(i, lines[rng.randrange(len(lines))])
        elif kind == 2 and words:
            words[rng.randrange(len(words))] = rng.choice(PIECES)
            lines[i] = "  " + " ".join(words).replace(" ,", ",")
        elif kind == 3 and lines[i]:
            at = rng.randrange(len(lines[i]))
            lines[i] = lines[i][:at] + chr(rng.randrange(32, 127)) + lines[i][at + 1 :]
        elif kind == 4:
            lines = lines[: i + 1] if rng.random() < 0.2 else lines
        else:
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
        text = "\n".join(lines)
    return text


def compiled():
    """Text, grid and arguments of a softmax as Triton compiles it."""
    import torch

    from cdna.dry_run import dry_run
    from cdna.examples.rows import softmax_three_passes

    found = []

    def keep(made, grid, arguments):
        free = [x for n, x in arguments.items() if made.signature[n] != "constexpr"]
        found.append((made.assembly, grid, free, {"shared": made.shared}))

    with dry_run("gfx942", on_launch=keep):
        softmax_three_passes[(2,)](torch.ones(2, 500), torch.empty(2, 500), 500, BLOCK=256, num_warps=2)
    (one,) = found
    return one


def fuzz(count, seed, extra=()):
    """How the mutants ended, by the rule of the error; anything but a result or a RunError goes through."""
    rng, ended = random.Random(seed), {"ran": 0}
    sources = [(text, 1, [X, Y, 5], {"shared": 512}) for text in (kernel(COPY), kernel(EXCHANGE, lds=512, threads=128))]
    sources += extra
    for n in range(count):
        text, grid, arguments, options = sources[n % len(sources)]
        arguments = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
        try:
            run(mutate(text, rng), grid, arguments, limit=2000 if n % len(sources) > 1 else 300, **options)
            ended["ran"] += 1
        except RunError as e:
            assert "\n" not in str(e) and len(str(e)) < 700
            ended[e.rule] = ended.get(e.rule, 0) + 1
        if (n + 1) % 1000 == 0 and extra:
            print(f"{n + 1} mutants: {ended}", flush=True)
    return ended


def main():
    """Damage, execute, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    start = time.process_time()
    ended = fuzz(given.count, given.seed, [compiled()])
    print(f"{given.count} mutants in {time.process_time() - start:.0f} CPU seconds: {ended}")


if __name__ == "__main__":
    main()
