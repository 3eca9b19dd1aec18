# SPDX-License-Identifier: MIT
"""``torch.cuda`` and ``torch.accelerator`` of a ROCm build on one MI300X: what they answer, and what they count."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.cuda.memory
import torch.cuda.random
import torch.profiler

from cdna.arch import find_arch
from cdna.dry_run.torch_gpu import pretend_torch_answers
from tests.pretended.marks import GPU, ledger


class Event:
    """A moment on a stream. What was asked for before has been computed, so the moment is now, on the CPU's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, **_: Any) -> None:
        self.at: float | None = None

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds; never zero, as on a GPU, whose events are apart even when nothing lies between them."""
        if self.at is None or end.at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return max(1e3 * (end.at - self.at), 1e-4)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Everything is done already."""

    def wait(self, stream: Any = None) -> None:
        """Everything is done already."""


class Stream:
    """A queue of work, which is done as soon as it is asked for."""

    device, device_index, device_type = GPU, 0, 1

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.cuda_stream = self.stream_id = 0 if device == "default" else id(self)
        self.priority = priority

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Everything is done already."""

    def wait_event(self, event: Event) -> None:
        """Everything is done already."""

    def wait_stream(self, stream: Stream) -> None:
        """Everything is done already."""


def _memory(total: int) -> dict[str, Any]:
    """Functions of ``torch.cuda.memory``."""

    def reset(device: Any = None) -> None:
        ledger.peak = ledger.held

    def stats(device: Any = None) -> Counter[str]:
        found: Counter[str] = Counter()  # 0 for whatever is not counted here
        for kind in ("allocated", "active", "requested", "reserved"):
            found[f"{kind}_bytes.all.current"], found[f"{kind}_bytes.all.peak"] = ledger.held, ledger.peak
        found["allocation.all.allocated"] = ledger.allocations
        return found

    return {
        "memory_allocated": lambda device=None: ledger.held,
        "max_memory_allocated": lambda device=None: ledger.peak,
        "memory_reserved": lambda device=None: ledger.held,
        "max_memory_reserved": lambda device=None: ledger.peak,
        "reset_peak_memory_stats": reset,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_stats": stats,
        "mem_get_info": lambda device=None: (total - ledger.held, total),
        "memory_summary": lambda device=None, abbreviated=False: f"allocated {ledger.held}, peak {ledger.peak} bytes",
        "empty_cache": lambda: None,
    }


def _answers(arch: str) -> dict[Any, dict[str, Any]]:
    """Module -> names and what they answer."""
    row = find_arch(arch)
    stream = Stream("default")
    seed = torch.default_generator.manual_seed
    random = {
        "manual_seed": lambda seed_: seed(seed_) and None,
        "manual_seed_all": lambda seed_: seed(seed_) and None,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "set_rng_state_all": lambda states: [torch.set_rng_state(s) for s in states] and None,
    }
    own = {
        "_lazy_init": lambda: None,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device": torch.cuda.device,  # a dry run's is no class, and libraries ask for its instances
        "device_of": torch.cuda.device_of,
        "_exchange_device": lambda index: 0,
        "_maybe_exchange_device": lambda index: 0,
        "Event": Event,
        "Stream": Stream,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "set_stream": lambda stream: None,
        "ipc_collect": lambda: None,
    }
    memory = _memory(row.memory_bytes)
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda device: None,
        "current_stream": lambda device=None: stream,
        "synchronize": lambda device=None: None,
    }
    return {
        torch.cuda: {**own, **random, **memory},
        torch.cuda.memory: memory,
        torch.cuda.random: random,
        torch.accelerator: accelerator,
        torch.backends.cuda: {"is_built": lambda: True},
    }


def _profile_the_cpu(begin: Callable[..., None]) -> Callable[..., None]:
    """A profiler of what the CPU does alone: it has no events of the GPU, and looks for their source for a minute."""

    def init(self: Any, *, activities: Any = None, **options: Any) -> None:
        if activities is not None:
            activities = [a for a in activities if a is not torch.profiler.ProfilerActivity.CUDA]
        begin(self, activities=activities, **options)

    return init


@contextlib.contextmanager
def pretended_cuda(arch: str) -> Iterator[None]:
    """Inside the ``with`` block ``torch.cuda`` is that of a ROCm build on one GPU of ``arch``."""
    answers = _answers(arch)
    with pretend_torch_answers(arch), contextlib.ExitStack() as undo:
        # What only a build for GPUs has: torch._dynamo.reset() imports the one, bitsandbytes asks the other.
        undo.enter_context(mock.patch.object(torch._C, "_cuda_CUDAAllocator_AllocatorState", object, create=True))
        undo.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, create=True))
        profiler = torch.profiler.profile
        undo.enter_context(mock.patch.object(profiler, "__init__", _profile_the_cpu(profiler.__init__)))
        for module, named in answers.items():
            for name, answer in named.items():
                if hasattr(module, name):
                    undo.enter_context(mock.patch.object(module, name, answer))
        yield
