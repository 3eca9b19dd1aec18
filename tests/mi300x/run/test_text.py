# SPDX-License-Identifier: MIT
"""Texts that cannot be executed get one line; damaged ones never anything else."""

import random

import numpy as np
import pytest

from rocm_guide.mi300x.run import RunError, run
from tests.mi300x.run.test_memory import COPY, EXCHANGE, kernel

X, Y = np.arange(64, dtype=np.uint32), np.zeros(128, np.uint32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("gfx942", "gfx1100"), "gfx1100"),
        (lambda t: t.partition("global_store")[0], "cut short"),
        (lambda t: t.replace("s_endpgm", "s_cbranch_scc0 .LBB9\n  s_endpgm"), "goes nowhere"),
        (lambda t: t.replace("v_add_u32_e32", "v_add_u33_e32"), "v_add_u33_e32"),
        (lambda t: t.replace("v_add_u32_e32", "w_add_u32_e32"), "w_add_u32_e32"),
        (lambda t: "", "no AMDGCN kernel"),
    ],
)
def test_one_line_for_what_cannot_run(change, words):
    with pytest.raises(RunError, match=words) as e:
        run(change(kernel(COPY)), 1, [X.copy(), Y.copy(), 5])
    assert "\n" not in str(e.value)


def test_running_off_the_end_is_named():
    with pytest.raises(RunError, match=r"runs past|cut short"):
        run(kernel(COPY).replace("s_endpgm", "s_branch .L9\n  s_nop 0\n.L9:\n  s_nop 0"), 1, [X.copy(), Y.copy(), 5])


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


def fuzz(count, seed, sources):
    """How the mutants ended; anything but a result or a RunError goes through."""
    rng, ended = random.Random(seed), {"ran": 0}
    for n in range(count):
        text = mutate(sources[n % len(sources)], rng)
        try:
            run(text, 1, [X.copy(), Y.copy(), 5], limit=300, shared=512, block=None)
            ended["ran"] += 1
        except RunError as e:
            assert "\n" not in str(e) and len(str(e)) < 700
            ended[e.rule] = ended.get(e.rule, 0) + 1
    return ended


def test_mutated_listings_give_only_named_errors():
    ended = fuzz(3_000, 1, [kernel(COPY), kernel(EXCHANGE, lds=512, threads=128)])
    assert ended["ran"] and ended["text"] and ended["bounds"] and ended["undefined"]
