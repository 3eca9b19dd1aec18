# SPDX-License-Identifier: MIT
"""Composable Kernel: a GEMM instance described, checked, drawn, generated, compiled and executed. Notebook 36.

In reading order:

- ``instance``: the 46 template parameters under CK's names, a problem, and what follows from them.
- ``presets``: instances with a name; ``operations``: what is done to each element at the end.
- ``rules``: every rule of CK, with its file and a value that would do.
- ``pipeline``: the kernel in slow motion, and the bytes that it moves.
- ``generate``, ``build``: C++, and assembly for gfx942 with CK's headers.
- ``grid``, ``search``: what a launch does on 304 compute units; instances for a problem, ranked by predicted time.
- ``drawings``: a picture for each idea.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.ck.build import assemble, ck_refuses
    from rocm_guide.tune.ck.generate import instance_source, kernel_source
    from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem
    from rocm_guide.tune.ck.pipeline import run_slowly, traffic
    from rocm_guide.tune.ck.presets import PRESETS
    from rocm_guide.tune.ck.rules import check, require

__getattr__, __dir__ = lazy_names(__name__)
