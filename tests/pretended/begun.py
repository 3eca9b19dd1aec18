# SPDX-License-Identifier: MIT
"""Imported by a process that is to have a pretended MI300X until it ends, before any library that looks for a GPU."""

import contextlib

from rocm_guide.dojo import grading
from rocm_guide.zoo.shapes import SHAPES
from tests.pretended.gpu import pretended_gpu
from tests.pretended.left_out import SMALL_SHAPE

_for_good = contextlib.ExitStack()
_for_good.enter_context(pretended_gpu())
# At true size, to be timed: millions of programs for the interpreter, and no clock of a GPU.
grading._time_check = lambda call, puzzle: []
SHAPES["small"] = SHAPES["llama-2-7b"] | SMALL_SHAPE
