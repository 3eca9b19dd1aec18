# SPDX-License-Identifier: MIT
"""The environment for hunting a memory fault: kernels one at a time, no allocator that hides a stray access.

Two things keep a fault from showing where it is. Kernels run asynchronously, so the program is elsewhere when the
fault arrives; and caching allocators hand out pieces of large blocks, so that a write past the end of a tensor lands
in a neighbour instead of outside the mapped memory. Both can be switched off, at a cost in time that only a hunt pays.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from rocm_guide.common.base import GuideError

__all__ = ["AGENT", "HUNT", "hunt_environment", "hunting", "shell_lines"]

#: Where ROCm installs the debug agent.
AGENT = "/opt/rocm/lib/librocm-debug-agent.so.2"
#: Variable -> (value, why). Sources: "Debugging with HIP", https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/
#: debugging.html; PyTorch's c10/hip caching allocator; ROCR Debug Agent user guide.
HUNT: Mapping[str, tuple[str, str]] = {
    "AMD_SERIALIZE_KERNEL": ("3", "wait before and after every kernel, so that the failing call is the faulting one"),
    "AMD_SERIALIZE_COPY": ("3", "the same for copies"),
    "HIP_LAUNCH_BLOCKING": ("1", "a launch returns when its kernel has ended"),
    "PYTORCH_NO_HIP_MEMORY_CACHING": ("1", "every tensor its own allocation: writing past its end leaves the mapping"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1", "the same, under the name that PyTorch uses on CUDA"),
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": ("1", "ROCr, too, gives every allocation pages of its own"),
}


def hunt_environment(
    *,
    agent: str | os.PathLike[str] | None = None,
    save_code: str | os.PathLike[str] | None = None,
    all_waves: bool = False,
    precise: bool = False,
) -> dict[str, str]:
    """Return the variables to set for a hunt.

    Args:
        agent: the debug agent's library, usually ``/opt/rocm/lib/librocm-debug-agent.so.2``; None leaves it out.
        save_code: a folder for the code objects of kernels that were compiled at run time.
        all_waves: report all waves, not only those that faulted.
        precise: report the very instruction that faulted (slower; not on every GPU).

    Raises:
        GuideError: an option of the agent without the agent, or a path with a space, which the agent cannot take.

    >>> env = hunt_environment(agent="/opt/rocm/lib/librocm-debug-agent.so.2", save_code="code", precise=True)
    >>> env["HSA_TOOLS_LIB"], env["ROCM_DEBUG_AGENT_OPTIONS"]
    ('/opt/rocm/lib/librocm-debug-agent.so.2', '--save-code-objects=code --precise-memory')
    """
    found = {name: value for name, (value, _) in HUNT.items()}
    options = []
    if all_waves:
        options.append("--all")
    if save_code is not None:
        options.append(f"--save-code-objects={os.fspath(save_code)}")
    if precise:
        options.append("--precise-memory")
    if options and agent is None:
        raise GuideError(f"{' '.join(options)}: options of the debug agent; name its library too, agent={AGENT}")
    if save_code is not None and any(c.isspace() for c in os.fspath(save_code)):
        raise GuideError(f"{os.fspath(save_code)!r}: the agent splits its options at spaces; choose a path without")
    if agent is not None:
        found["HSA_TOOLS_LIB"] = os.fspath(agent)
        if options:
            found["ROCM_DEBUG_AGENT_OPTIONS"] = " ".join(options)
    return found


@contextmanager
def hunting(*, for_children: bool = False) -> Iterator[dict[str, str]]:
    """Set the hunt's variables while the block runs and put back what was there before, also after an error.

    The runtime reads them when it starts: enter the block before anything touches the GPU, or start the program as a
    subprocess inside the block and pass ``for_children=True``.

    Raises:
        GuideError: the GPU runtime has started already.

    >>> before = dict(os.environ)
    >>> with hunting() as env:
    ...     os.environ["AMD_SERIALIZE_KERNEL"], len(env)
    ('3', 6)
    >>> dict(os.environ) == before
    True
    """
    found = hunt_environment()
    torch = sys.modules.get("torch")
    if not for_children and torch is not None and torch.cuda.is_initialized():
        raise GuideError("the GPU runtime has started and read its variables; use a new process, or for_children=True")
    with mock.patch.dict(os.environ, found):
        yield found


def shell_lines(variables: Mapping[str, str], *, undo: bool = False) -> str:
    """Return the same as lines for a shell, to be pasted or sourced (a script's own exports end with the script).

    >>> print(shell_lines({"ROCM_DEBUG_AGENT_OPTIONS": "--all --precise-memory"}))
    export ROCM_DEBUG_AGENT_OPTIONS='--all --precise-memory'
    >>> print(shell_lines({"AMD_SERIALIZE_KERNEL": "3"}, undo=True))
    unset AMD_SERIALIZE_KERNEL
    """
    if undo:
        return "\n".join(f"unset {name}" for name in variables)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
