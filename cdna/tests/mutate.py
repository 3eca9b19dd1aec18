# SPDX-License-Identifier: MIT
"""A seeded mutator for the parser tests: damaged variants of real samples, the same on every machine."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
TOKENS = [
    *(b"{", b"}", b"<", b">", b"(", b")", b"%0", b" = ", b":", b"->", b"\x00", b"\xff", b"\n", b"\r", b'"', b"-1"),
    *(
        b"99999999999999999999",
        b"s_branch .LBB0_2",
        b"loc(#loc1)",
        b".amdgpu_metadata\n",
        b"  - .name: x\n",
        b"\x7fELF",
    ),
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 40, b"<" * 300),
    b"#ttg.slice<{dim = 1, parent = ",
    b"scf.for %i = %a to %b step %c iter_args(%x = %y) -> (i32) : i32 {\n",
    b"%1 = tt.trans %1 : tensor<4x4xf16, #shared> -> tensor<4x4xf16, #shared>\n",
]


def budget(default: int) -> int:
    """How many mutated inputs a test tries: few by default, ``CDNA_FUZZ`` for a campaign."""
    return int(os.environ.get("CDNA_FUZZ", default))


def mutated(samples: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """``count`` damaged variants: bytes changed, parts cut, repeated, moved or replaced, truncation."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randint(1, 6)):
            at, n = rng.randrange(len(data) + 1), rng.randint(1, 64)
            kind = rng.randrange(8)
            if kind == 0 and data:
                data[at % len(data)] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + n]
            elif kind == 2:
                data[at:at] = rng.choice(TOKENS)
            elif kind == 3:
                part = data[at : at + n]
                data[at:at] = part * rng.randint(1, 8)
            elif kind == 4:
                other = rng.choice(samples)
                start = rng.randrange(len(other))
                data[at : at + n] = other[start : start + rng.randint(1, 400)]
            elif kind == 5:
                del data[at:]
            elif kind == 6 and data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            else:
                data[at : at + 8] = rng.getrandbits(64).to_bytes(8, "little")
        yield bytes(data)


def campaign(parse: Callable[[bytes], object], allowed: type[Exception], inputs: Iterator[bytes]) -> dict[str, float]:
    """Parse every input; only ``allowed`` may come out, memory may not grow by 300 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = refused = 0
    slowest = 0.0
    start = time.perf_counter()
    for data in inputs:
        t = time.perf_counter()
        try:
            parse(data)
        except allowed:
            refused += 1
        slowest = max(slowest, time.perf_counter() - t)
        n += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300, f"memory grew by {grown:.0f} MB"
    figures = {"inputs": n, "refused": refused, "slowest_s": slowest, "seconds": time.perf_counter() - start}
    print({**figures, "grown_mb": grown})
    return figures
