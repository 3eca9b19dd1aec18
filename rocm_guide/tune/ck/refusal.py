# SPDX-License-Identifier: MIT
"""A rule of Composable Kernel that an instance does not obey, and the files of CK that say the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Refusal"]

# Files of CK 1.2.0, below include/ck.
GRID = "tensor_operation/gpu/grid/gridwise_gemm_multiple_d_xdl_cshuffle.hpp"
DEVICE = "tensor_operation/gpu/device/impl/device_gemm_multiple_d_xdl_cshuffle.hpp"
BASE = "tensor_operation/gpu/device/device_base.hpp"
COPY = "tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v4r1.hpp"
STORE = "tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v7.hpp"
THREAD = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer_v3r1.hpp"
THREAD_STORE = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer_v7.hpp"
READ = "tensor_operation/gpu/thread/threadwise_tensor_slice_transfer.hpp"
XDL = "tensor_operation/gpu/warp/xdlops_gemm.hpp"
BUFFER = "utility/amd_buffer_addressing_builtins.hpp"
PIPELINE = "tensor_operation/gpu/grid/gridwise_gemm_pipeline_selector.hpp"

VECTORS = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Refusal:
    """One rule that an instance, or a problem for it, does not obey.

    Attributes:
        parameter, value: what is wrong.
        rule: what it should be.
        file: where CK says so, below include/ck.
        fix: a value that obeys this rule, as text; "" if no change of this parameter alone helps.
        by_ck: whether CK itself refuses; False for a rule that only we check.
    """

    parameter: str
    value: Any
    rule: str
    file: str
    fix: str = ""
    by_ck: bool = True

    def __str__(self) -> str:
        """Return one line."""
        own = "" if self.by_ck else ", not checked by CK"
        fix = f"; {self.fix} would do" if self.fix else ""
        return f"{self.parameter}={self.value}: {self.rule} ({self.file}{own}){fix}"


def nearest(now: int, good: Callable[[int], bool], among: Sequence[int]) -> str:
    fitting = [n for n in among if good(n)]
    return str(min(fitting, key=lambda n: (abs(math.log2(n / max(now, 1))), n))) if fitting else ""


POWERS = tuple(2**n for n in range(11))
