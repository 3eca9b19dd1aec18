# SPDX-License-Identifier: MIT
"""Imported by a process that is to have a pretended MI300X until it ends, before any library that looks for a GPU."""

import contextlib

from rocm_guide.common.device import Timing
from rocm_guide.dojo import grading
from rocm_guide.models.shapes import SHAPES
from rocm_guide.quantize import scores
from tests.pretended.gpu import pretended_gpu
from tests.pretended.left_out import SMALL_SHAPE

_for_good = contextlib.ExitStack()
_for_good.enter_context(pretended_gpu())
# What is done again and again for a GPU's clock, which is not there.
grading._time_check = lambda call, puzzle: []  # at true size: millions of programs for the interpreter
scores._answer_rate = lambda model, tokenizer, prompts: Timing.of([1.0])
SHAPES["small"] = SHAPES["llama-2-7b"] | SMALL_SHAPE
