# SPDX-License-Identifier: MIT
"""Examples for notebook 41: a faulting kernel's report and code object, and modules that are wrong on purpose."""

from __future__ import annotations

import base64
import copy
import random
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import write_bytes, write_text
from rocm_guide.observe.debugging.faults.agent_log import read_report
from rocm_guide.observe.debugging.faults.code_objects import saved_name
from rocm_guide.observe.debugging.wrong.compare import capture_calls, copy_tensors, tensors_of

__all__ = ["SCALE_ROWS", "fault_sample", "forgetful_norm", "layer_errors", "plant_wrong_weight"]

#: The kernel of the memory fault, as it was compiled for gfx942 with triton 3.9: its load has no mask.
SCALE_ROWS = """\
@triton.jit
def scale_rows(x_ptr, out_ptr, scale, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    tl.store(out_ptr + row * n_cols + cols, x * scale, mask=cols < n_cols)

scale_rows[(128,)](x, out, 0.5, 200, BLOCK=256)     # x: 128 rows of 200 floats
"""


def fault_sample(folder: Path) -> tuple[Path, Path]:
    """Put the debug agent's report and the saved code object into ``folder``, as a crashed run would leave them.

    All is made by us: the code object is real (triton 3.9, gfx942), beside it lies what llvm-objdump 19 prints of it,
    and the report is written in the agent's published format with the registers that this code has at that instruction.

    Returns:
        (the report, the folder of code objects).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     log, code = fault_sample(Path(d))
    ...     log.name, sorted(f.name for f in code.iterdir())[0]
    ('agent.log', 'memory___4242_offset_0x7f1e10c3e0a0_size_4648')
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = write_text(
        folder / "agent.log", resources.files("rocm_guide").joinpath("data", "fault_report.txt").read_text()
    )
    where = read_report(report).faulting[0].disassembly
    assert where is not None  # the log of this package has one
    code = folder / "code_objects"
    # Each in one expression: a copy of what reads a report carries these texts with it.
    code_object = resources.files("rocm_guide").joinpath("data", "fault_code.b64").read_text()
    listing = resources.files("rocm_guide").joinpath("data", "fault_code.s").read_text()
    write_bytes(code / saved_name(where.uri), base64.b64decode(code_object))
    write_text(code / f"{saved_name(where.uri)}.s", listing)
    return report, code


def forgetful_norm(norm: Any) -> Any:
    """Return an RMSNorm that forgets to divide the squares by their number, as the MI300 kernels blog prints it.

    It takes the weights as the norm does (Gemma adds 1 to them).

    >>> import torch
    >>> norm = torch.nn.RMSNorm(4, eps=0.0)
    >>> forgetful_norm(norm)(torch.full((1, 4), 3.0))
    tensor([[0.5000, 0.5000, 0.5000, 0.5000]], grad_fn=<MulBackward0>)
    """

    class FusedRMSNorm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = norm.weight
            # Llama's and Qwen's norms have the first name, Gemma's and torch's own the second.
            self.epsilon = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            squares = x.float().pow(2)
            ratio = (squares.mean(-1, keepdim=True) + self.epsilon) / (squares.sum(-1, keepdim=True) + self.epsilon)
            return norm(x) * ratio.sqrt().to(x.dtype)

    return FusedRMSNorm()


def plant_wrong_weight(model: Any, seed: int) -> Any:
    """Return a copy of a model in which one element of one linear layer is off by 0.1; which, depends on the seed.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    >>> wrong = plant_wrong_weight(model, seed=0)
    >>> int((model[0].weight != wrong[0].weight).sum())
    1
    """
    wrong, rng = copy.deepcopy(model), random.Random(seed)
    layers = [m for n, m in wrong.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in n]
    with torch.no_grad():
        weight = rng.choice(layers).weight.view(-1)
        weight[rng.randrange(weight.numel())] += 0.1
    return wrong


def layer_errors(reference: Any, suspect: Any, inputs: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return for every call the relative error in the whole run, and the error of the module by itself.

    Returns:
        path -> (in the run, in isolation); largest |a - b| / largest |a|. Modules in the order in which they end.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    >>> errors = layer_errors(model, copy.deepcopy(model), {"input": torch.ones(1, 3)})
    >>> list(errors), set(errors.values())
    (['0', '1', ''], {(0.0, 0.0)})
    """

    def error(a: Any, b: Any) -> float:
        x, y = tensors_of(a)[0].double(), tensors_of(b)[0].double()
        return float(((x - y).abs().max() / x.abs().max()).item())

    modules, found = dict(suspect.named_modules()), {}
    run = {c.path: c.output for c in capture_calls(suspect, inputs)}
    for call in capture_calls(reference, inputs):
        if call.path in run and tensors_of(call.output):
            with torch.no_grad():
                alone = modules[call.path](*copy_tensors(call.args), **copy_tensors(call.kwargs))
            found[call.path] = error(call.output, run[call.path]), error(call.output, alone)
    return found
