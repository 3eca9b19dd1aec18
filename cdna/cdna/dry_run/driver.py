# SPDX-License-Identifier: MIT
"""Run code that launches Triton kernels, compile every launch for an AMD GPU, and launch nothing.

``with dry_run("gfx942") as run: …`` works on ordinary code: ``kernel[grid](…)``, wrappers, autograd functions,
autotuned kernels, other people's libraries.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from cdna.arch import Arch, find_arch
from cdna.compile import Compiled, check_triton
from cdna.compile_errors import hear_compiler
from cdna.dry_run.recorder import DryRun, DryRunError, Recorder
from cdna.dry_run.torch_gpu import pretend_torch_device

__all__ = ["DryRun", "DryRunError", "dry_run"]


class _Launcher:
    """Stand-in that Triton calls for a GPU launch; made when a compiled kernel is first loaded."""

    def __init__(self, src: Any, metadata: Any) -> None:
        _current_state().loading = (src, metadata)

    def __call__(self, x: int, y: int, z: int, stream: Any, function: Any, *rest: Any) -> None:
        # Before the kernel's own arguments come its metadata, that of the launch, and two hooks.
        _current_state().record(function, (x, y, z), rest[4:])


def _current_state() -> Recorder:
    from triton.runtime import driver

    state: Recorder | None = getattr(driver._active, "dry_run_state", None)
    if state is None:
        raise DryRunError("this kernel was compiled in a dry run that has ended: launch its @triton.jit function again")
    return state


def _make_driver(state: Recorder, row: Arch) -> Any:
    """Make a Triton driver for a GPU that is not there."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    properties = {
        "max_shared_mem": row.lds_bytes,
        "max_num_regs": row.vgpr_file * row.wave_size * row.simds_per_cu,
        "multiprocessor_count": row.cus,
        "arch": row.name,
        "warpSize": row.wave_size,
        "max_threads_per_sm": row.max_waves_per_cu * row.wave_size,
        "cooperativeLaunch": 1,
    }

    class DryDriver(DriverBase):
        dry_run_state = state
        launcher_cls = _Launcher
        utils = SimpleNamespace(
            get_device_properties=lambda device: properties,
            load_binary=state.load_binary,
            unload_module=lambda module: None,
        )

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise DryRunError(f"{ty}: a dry run builds no launcher")

        def get_current_target(self) -> Any:
            return GPUTarget("hip", row.name, row.wave_size)

        def get_current_device(self) -> int:
            return state.device

        def set_current_device(self, device: Any) -> None:
            """Accept any device: there is one."""

        def get_current_stream(self, device: Any = None) -> int:
            return 0

        def get_device_capability(self, device: Any = None) -> tuple[int, int]:
            return row.capability

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Any:
            return state.bench

        def get_empty_cache_for_benchmark(self) -> Any:
            return torch.empty(1)

        def clear_cache(self, cache: Any) -> None:
            """Do nothing, as nothing is timed."""

    return DryDriver()


def _patch_triton(state: Recorder, undo: contextlib.ExitStack) -> None:
    """Patch the few places that a driver does not reach: autotuners keep results, and Triton refuses what we report."""
    import triton
    from triton.compiler import compiler
    from triton.runtime.autotuner import Autotuner

    run, bench, compile_source = Autotuner.run, Autotuner._bench, triton.compiler.compile

    def put(owner: Any, name: str, value: Any) -> None:
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def tuned_run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        state.adopt(tuner)
        return run(tuner, *args, **kwargs)

    def tuned_bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        outer = state.tuned, state.trial
        state.tuned, state.trial = tuner.base_fn.__name__, str(config)
        try:
            return bench(tuner, *args, config=config, **meta)
        finally:
            state.tuned, state.trial = outer

    def heard_compile(src: Any, *args: Any, **kwargs: Any) -> Any:
        with hear_compiler(src):
            return compile_source(src, *args, **kwargs)

    put(triton.compiler, "compile", heard_compile)
    put(Autotuner, "run", tuned_run)
    put(Autotuner, "_bench", tuned_bench)
    put(compiler, "max_shared_mem", lambda device: 1 << 30)
    put(triton.testing, "do_bench", state.bench)
    put(triton.testing, "do_bench_cudagraph", state.bench)


_LOCK = threading.RLock()
_SERIAL = itertools.count(1)


@contextlib.contextmanager
def dry_run(
    arch: str = "gfx942",
    device: str = "cpu",
    on_launch: Callable[[Compiled, tuple[int, int, int], dict[str, Any]], None] | None = None,
) -> Iterator[DryRun]:
    """Compile every Triton launch inside the ``with`` block for ``arch``, record it, and launch nothing.

    No result is computed: a kernel's outputs keep whatever was in them, and so does whatever Python derives from them
    (a grid taken from ``counts.item()``, say). Tensors live on ``device`` (``"cpu"``, or
    ``"meta"`` for true sizes without memory) and say inside the block that they are on ``cuda:0``, as in
    :func:`cdna.dry_run.torch_gpu.pretend_torch_device`; what the code allocates on the GPU goes to
    ``device``.
    ``on_launch`` is called at each launch that is no trial, with the arguments by name (constants are not among them);
    it may execute the kernel with :func:`cdna.run.session`, and then there are results.
    Import a library that looks for a GPU at import time inside the block. What a library itself caches (a device
    name, say) it keeps: use a process of its own if that matters.

    Triton's own specialisation is used. An autotuned kernel compiles every configuration that its pruning lets pass
    (``launch.tuning``), then the first that can be launched and does not spill is chosen. A launch that real hardware
    would refuse is recorded with an ``error`` finding and goes on.

    ``on_launch(compiled, grid, arguments)`` is called for every launch that is no trial of an autotuner, with the
    kernel's arguments by name, constants included (:func:`~cdna.run.launches.executed_on_gfx942`).

    The driver, ``torch.cuda``, autotuners and Triton's caches are as before on exit, after an exception too. One
    thread at a time: a second thread waits for the first block to end. Blocks may be nested.

    Raises:
        TritonVersionError: see :func:`~cdna.compile.check_triton`.
        DryRunError: the interpreter is on (``TRITON_INTERPRET=1``), so nothing would be compiled; or ``device``.

    >>> import torch
    >>> from cdna.examples.tuning import scale_rows
    >>> x = torch.ones(1216, 4096, dtype=torch.float16)
    >>> with dry_run("gfx942") as run:
    ...     _ = scale_rows[(1216,)](x, x, 2.0, 4096, BLOCK=2048)
    >>> run.launches[0].grid, run.launches[0].report.occupancy.waves_per_simd, bool((x == 1).all())
    ((1216, 1, 1), 8.0, True)
    """
    check_triton()
    from triton import knobs
    from triton.runtime import driver

    row = find_arch(arch)
    if device not in ("cpu", "meta"):
        raise DryRunError(f"device={device!r}: tensors of a dry run live on 'cpu' or 'meta'")
    if knobs.runtime.interpret:
        raise DryRunError("TRITON_INTERPRET is set, so kernels are interpreted and never compiled: unset it")
    with _LOCK, contextlib.ExitStack() as undo:
        run = DryRun(row.name)
        state = Recorder(run, next(_SERIAL), on_launch)
        undo.callback(state.restore)
        _patch_triton(state, undo)
        knobs.runtime.kernel_load_start_hook.add(state.load_start)
        undo.callback(knobs.runtime.kernel_load_start_hook.remove, state.load_start)
        undo.callback(driver.set_active, driver._active)
        driver.set_active(_make_driver(state, row))
        undo.enter_context(pretend_torch_device(row.name, device))
        # Triton 3.9 announces a change of its default; the option is in every report.
        undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
        yield run
