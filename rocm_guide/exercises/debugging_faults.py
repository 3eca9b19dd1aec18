# SPDX-License-Identifier: MIT
"""The checks of notebook 41_debugging_faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocm_guide.exercises.common import no, yes

__all__ = ["check_address", "check_environment", "check_path"]


def check_address(address: int, row: int, column: int, *, base: int, columns: int) -> bool:
    """Check exercise 1: the byte address of an element of a row-major float32 matrix."""
    right = base + 4 * (row * columns + column)
    if isinstance(address, bool) or not isinstance(address, int):
        return no(f"address={address!r}: give a whole number, the base plus the bytes before the element")
    if address == right:
        return yes(f"row {row}, column {column}: address {right:#x}")
    if address == base + row * columns + column:
        return no(f"{address:#x}: that counts elements; an address counts bytes, and a float has four")
    return no(f"{address:#x}: base + 4 * (row * columns + column) is something else; check the hexadecimal base")


def check_environment(variables: Mapping[str, str]) -> bool:
    """Check exercise 2: the variables of a hunt that reports the very instruction and keeps run-time kernels."""
    for name, why in (
        ("HSA_TOOLS_LIB", "without it the debug agent is not loaded: agent=…"),
        ("PYTORCH_NO_HIP_MEMORY_CACHING", "PyTorch's cache hides a stray access: start from hunt_environment()"),
        ("AMD_SERIALIZE_KERNEL", "kernels still overlap: start from hunt_environment()"),
    ):
        if name not in variables:
            return no(f"{name} is missing; {why}")
    options = variables.get("ROCM_DEBUG_AGENT_OPTIONS", "")
    if "-p" not in options.split() and "--precise-memory" not in options:
        return no(f"options {options!r}: the fault is reported late without --precise-memory")
    if "--save-code-objects" not in options:
        return no(f"options {options!r}: a Triton kernel is lost with its process without --save-code-objects")
    return yes(f"{len(variables)} variables, options {options}")


def check_path(path: str, reference: Any, suspect: Any) -> bool:
    """Check exercise 3: the module whose weights differ between two models."""
    theirs = dict(suspect.named_parameters())
    wrong = [n for n, p in reference.named_parameters() if bool((p != theirs[n]).any())]
    if not wrong:
        return no("the two models are equal: pass the model first and the broken one second")
    right = wrong[0].rpartition(".")[0]
    if path == right:
        return yes(f"{path}: {int((dict(reference.named_parameters())[wrong[0]] != theirs[wrong[0]]).sum())} element.")
    if path and (right.startswith(f"{path}.")):
        return no(f"{path!r} contains it: name the innermost module; children end before their parents")
    return no(f"{path!r}: no difference of its own; first_difference(reference, suspect, inputs) names the module")
