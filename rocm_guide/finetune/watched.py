# SPDX-License-Identifier: MIT
"""A script as one process of several, watched from outside: what it holds, and what it sends in a step. Notebook 05.

`torchrun … -m rocm_guide.finetune.watched FOLDER train.py --strategy ddp …` runs `train.py` unchanged. The script calls
its model `model` and its number `rank`. Where it trains, its optimizer is `optimizer`, it takes three steps or more,
and the third one counts: in the second, DDP still arranges its buckets. Where it does not, all that it sends counts.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import GuideError, write_text

__all__ = ["read_watched"]

#: Operation of torch -> its everyday name. Those that wait or wrap send nothing.
_NAMES = {
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "_allgather_base_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
}
_SILENT = {"wait_tensor", "barrier", "_wrap_tensor_autograd"}
_COUNTED_STEP = 3


def read_watched(folder: str | Path) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Return what each process has written into ``folder``, by rank, and the gradients of the first step.

    A process says its ``rank`` and ``device``; bytes of ``parameters``, ``gradients`` and optimizer ``states`` in its
    memory; ``peak``, the most that the GPU's allocator held (0 on a CPU); and ``sent``: operation -> bytes that it was
    given in one step. The gradients are whole, in float32, by the parameters' names; none, where nothing is trained.

    Raises:
        GuideError: no process has written anything.
    """
    from safetensors.torch import load_file

    said = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("rank-*.json")]
    if not said:
        raise GuideError(f"{folder}: no process has written there; the log of its agent says why")
    kept = Path(folder, "gradients.safetensors")
    return sorted(said, key=lambda row: row["rank"]), load_file(kept) if kept.exists() else {}


def local_bytes(tensors: Iterable[Any]) -> int:
    """Return the bytes of these tensors in this process; of one that is cut over several, those of its own share.

    >>> local_bytes([torch.zeros(3), torch.zeros(2, dtype=torch.bfloat16)])
    16
    """
    own = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in own)


def _traffic() -> Any:
    """Return a mode that adds up, in its ``sent``, the bytes of each collective operation that torch dispatches."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Traffic(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.sent: dict[str, int] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            if func.namespace in ("c10d", "_c10d_functional") and name not in _SILENT:
                given = args[1] if name == "_reduce_scatter_base_" else args[0]  # the whole, not the share
                size = local_bytes(leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor))
                size *= args[1] if name == "all_gather_into_tensor" else 1
                self.sent[_NAMES.get(name, name)] = self.sent.get(_NAMES.get(name, name), 0) + size
            return func(*args, **(kwargs or {}))

    return Traffic()


class _Watch:
    """Hooks around the optimizer's steps of the script that runs as ``__main__``."""

    def __init__(self) -> None:
        self.steps, self.traffic = 0, _traffic()
        self.gradients: dict[str, Any] = {}
        self.report = {"parameters": 0, "gradients": 0, "states": 0}

    def before(self, *_: Any) -> None:
        """Keep the first gradients, whole: all processes take part in putting them together."""
        if self.steps == 0:
            self.traffic.__exit__(None, None, None)
            named = dict(sys.modules["__main__"].model.named_parameters())
            self.report["gradients"] = local_bytes(p.grad for p in named.values())
            for name, p in named.items():
                whole = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
                self.gradients[name] = whole.detach().float().cpu().clone()

    def after(self, *_: Any) -> None:
        """Count from the end of the second step to that of the third."""
        self.steps += 1
        if self.steps == _COUNTED_STEP - 1:
            self.traffic.sent.clear()
            self.traffic.__enter__()
        elif self.steps == _COUNTED_STEP:
            self.traffic.__exit__(None, None, None)
            states = sys.modules["__main__"].optimizer.state.values()
            self.report["states"] = local_bytes(v for s in states for v in s.values() if v.ndim)
            self.report["parameters"] = local_bytes(sys.modules["__main__"].model.parameters())


def main() -> int:
    """Run the script that the command line names, unchanged, and write down what this process held and sent."""
    from safetensors.torch import save_file
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    folder, script, *words = sys.argv[1:]
    sys.argv = [script, *words]
    watch = _Watch()
    hooks = register_optimizer_step_pre_hook(watch.before), register_optimizer_step_post_hook(watch.after)
    watch.traffic.__enter__()
    bound = runpy.run_path(script, run_name="__main__")
    for hook in hooks:
        hook.remove()
    if not watch.steps:
        watch.traffic.__exit__(None, None, None)
        watch.report["parameters"] = local_bytes(bound["model"].parameters())
    device = str(next(bound["model"].parameters()).device)
    peak = torch.cuda.max_memory_allocated() if device.startswith("cuda") else 0
    rank = int(bound["rank"])
    row = {"rank": rank, "device": device, **watch.report, "peak": peak, "sent": watch.traffic.sent}
    if rank == 0 and watch.gradients:
        save_file(watch.gradients, Path(folder, "gradients.safetensors"))
    write_text(Path(folder, f"rank-{rank}.json"), json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
