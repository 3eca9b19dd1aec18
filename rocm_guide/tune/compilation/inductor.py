# SPDX-License-Identifier: MIT
"""The Triton kernels that inductor writes for MI300X, made and compiled on a machine without a GPU.

Inductor decides with the GPU's properties (compute units, wave size), writes Triton source, and only then needs the
GPU. We give it MI300X's properties and stop after the source; our gfx942 compiler does the rest. The sources of a real
run (``TORCH_COMPILE_DEBUG=1`` keeps them as output_code.py) can be read the same way.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from rocm_guide.common.base import GuideError, write_text

__all__ = ["extract_kernels", "inductor_code", "inspect_kernels", "load_kernel"]


@dataclass(frozen=True, slots=True)
class InductorKernel:
    """One kernel of inductor's output: its name and its Triton source, decorators included."""

    name: str
    source: str

    @property
    def body(self) -> str:
        """The kernel function alone, for reading."""
        return self.source[self.source.index("@triton.jit") :].strip()


def extract_kernels(code: str) -> list[InductorKernel]:
    """Return the Triton kernels in inductor's output_code.py, which keeps them as strings.

    Raises:
        GuideError: the text is no Python, so no output_code.py.

    >>> text = "k = async_compile.triton('add', 'import triton\\\\n@triton.jit\\\\ndef add(): pass', device_str='cuda')"
    >>> [(k.name, k.body) for k in extract_kernels(text)]
    [('add', '@triton.jit\\ndef add(): pass')]
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as e:
        raise GuideError(f"not inductor's output_code.py: {e}") from None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton" and len(node.args) >= 2:
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if len(texts) == 2:
                found.append(InductorKernel(texts[0], texts[1].strip()))
    return found


@contextlib.contextmanager
def _as_gpu(arch: str) -> Iterator[None]:
    """Let inductor see one GPU of ``arch`` and a ROCm build of torch; nothing is launched or compiled."""
    from torch._inductor.runtime.hints import DeviceProperties

    from cdna.arch import find_arch
    from cdna.dry_run.torch_gpu import pretend_torch_answers

    row = find_arch(arch)
    common = {
        "multi_processor_count": row.cus,
        "major": row.capability[0],
        "regs_per_multiprocessor": row.vgpr_file * row.wave_size * row.simds_per_cu,
        "max_threads_per_multi_processor": row.max_waves_per_cu * row.wave_size,
        "warp_size": row.wave_size,
    }
    names = DeviceProperties._fields
    extra = {"max_threads_per_block": row.max_threads_per_workgroup} if "max_threads_per_block" in names else {}
    ours = DeviceProperties(type="hip", index=0, cc=row.name, **common, **extra)
    with (
        pretend_torch_answers(arch),
        mock.patch.object(DeviceProperties, "create", lambda device: ours),
        mock.patch("torch._inductor.scheduler.has_triton", lambda *_: True),
        mock.patch("torch.utils._triton.triton_hash_with_backend", lambda *_: "none"),
        # A CUDA build of torch would start CUDA here, and fail where there is no GPU.
        mock.patch("torch._subclasses.fake_tensor.init_gpu_context", lambda device: None),
    ):
        yield


def _part(x: torch.Tensor, index: tuple[Any, ...]) -> torch.Tensor:
    """Return ``x[index]`` for integers, slices, None and one Ellipsis."""
    dim = 0
    for i, item in enumerate(index):
        if item is None:
            x = x.unsqueeze(dim)
        elif isinstance(item, int):
            x = x.select(dim, item)
            continue
        elif isinstance(item, slice):
            x = torch.ops.aten.slice.Tensor(x, dim, item.start, item.stop, item.step or 1)
        else:  # the Ellipsis takes the dimensions that the rest leaves
            dim = x.dim() - sum(later is not None for later in index[i + 1 :])
            continue
        dim += 1
    return x


def _as_on_the_card() -> Any:
    """Return a context in which two functions do to tensors on a GPU that is not there what they do on an MI300X.

    ``scaled_dot_product_attention`` asks the device which kernel it has; without one it becomes two products and a
    softmax. On the card it is one call of AOTriton's flash attention, for 16-bit types without a mask. ``x[1:, None]``
    asks the device to make itself current, and there is none; the same view comes from the functions beneath it.
    """
    from torch.overrides import TorchFunctionMode

    class Card(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                return fused(*args, **(kwargs or {}))
            if func is torch.Tensor.__getitem__:
                index = args[1] if isinstance(args[1], tuple) else (args[1],)
                if all(i is None or i is ... or type(i) in (int, slice) for i in index):
                    return _part(args[0], index)
            return func(*args, **(kwargs or {}))

    def fused(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **k: Any,
    ) -> Any:
        if attn_mask is not None or query.dtype not in (torch.float16, torch.bfloat16):
            fix = "leave the mask out and take bfloat16 or float16, or write code for what stands around it"
            raise GuideError(f"scaled_dot_product_attention with a mask or in {query.dtype}: not known here; {fix}")
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=k.get("scale"))[0]

    return Card()


def inductor_code(
    fn: Callable[..., Any], inputs: Sequence[torch.Tensor], *, arch: str = "gfx942", **settings: Any
) -> str:
    """Return what inductor writes for ``fn(*inputs)`` on an MI300X: its output_code.py as text, made without a GPU.

    ``inputs`` give sizes, strides and types only; meta tensors will do. ``settings`` go to torch._inductor.config.
    Attention (``scaled_dot_product_attention``) is no kernel of inductor's: it stays a call, as a product of BLAS does.

    Raises:
        GuideError: inductor could not write code for it here, or attention of a kind of which we do not know what
            the card takes.

    >>> import torch
    >>> x = torch.empty(8, 64, device="meta")
    >>> code = inductor_code(lambda a: torch.relu(a) * 2, [x])
    >>> [k.name for k in extract_kernels(code)], "multi_processor_count=304" in code
    (['triton_poi_fused_0'], True)
    """
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    fake = FakeTensorMode()
    try:
        with _as_gpu(arch), torch.no_grad():
            with fake:
                args = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs]
                with _as_on_the_card():
                    traced = make_fx(fn, decomposition_table=select_decomp_table())(*args)
            graph = GraphLowering(traced)
            handlers = (V.set_graph_handler(graph), V.set_fake_mode(fake), V.set_debug_handler(DebugContext()))
            with config.patch(settings), handlers[0], handlers[1], handlers[2]:
                graph.run(*args)
                code = graph.codegen()[0]
    except (RuntimeError, AssertionError, AttributeError, TypeError, ImportError, NotImplementedError) as e:
        why = f"{type(e).__name__}: {str(e).strip()}".splitlines()[0]
        raise GuideError(f"inductor wrote no code for {arch} here: {why[:200]}") from e
    return str(getattr(code, "value", code))


def inspect_kernels(kernels: Sequence[InductorKernel], *, arch: str = "gfx942") -> list[Any]:
    """Compile inductor's kernels for ``arch`` with the tile sizes inductor would launch; one KernelReport per choice.

    Each report (:class:`cdna.report.KernelReport`) has registers, LDS, occupancy and load widths.

    Raises:
        GuideError: a source that cannot be loaded, or Triton refuses it.

    >>> import torch
    >>> x = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
    >>> reports = inspect_kernels(extract_kernels(inductor_code(lambda a: torch.relu(a) * 2, [x])))
    >>> reports[0].arch, reports[0].resources.vgpr_spills
    ('gfx942', 0)
    """
    from cdna.compile import compile_kernel
    from cdna.report import kernel_report

    reports = []
    with tempfile.TemporaryDirectory() as folder, _as_gpu(arch):
        for kernel in kernels:
            tuner = load_kernel(kernel, Path(folder))
            meta = tuner.triton_meta
            # Inductor tells Triton which arguments are multiples of 16; the compiler's load widths depend on it.
            aligned = {index[0] for index in _aligned(meta)}
            types = {n: t for n, t in meta["signature"].items() if t != "constexpr"}
            order = list(meta["signature"])
            types = {n: f"{t}:16" if order.index(n) in aligned else t for n, t in types.items()}
            for config in tuner.configs:
                chosen = {**config.kwargs, **{k: v for k, v in meta.get("constants", {}).items() if isinstance(k, str)}}
                # On ROCm a choice also carries compiler options (waves_per_eu), which are no parameters of the kernel.
                constants = {k: v for k, v in chosen.items() if k in order}
                options = {k: v for k, v in chosen.items() if k not in order}
                options |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
                reports.append(kernel_report(compile_kernel(tuner.fn, types, constants, arch=arch, **options)))
    return reports


def _aligned(meta: dict[str, Any]) -> list[tuple[int, ...]]:
    first: Any = next(iter(meta.get("configs", [])), {})
    return [tuple(k) for k, v in first.items() if ["tt.divisibility", 16] in v] if isinstance(first, dict) else []


def load_kernel(kernel: InductorKernel, folder: Path) -> Any:
    """Load the kernel with its launch choices, as inductor's own decorator builds it, from a file as Triton needs."""
    path = folder / f"{kernel.name}_{abs(hash(kernel.source))}.py"
    write_text(path, kernel.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # the file ends in .py
    module = importlib.util.module_from_spec(spec)
    quiet = mock.patch("torch._inductor.runtime.triton_helpers.set_driver_to_gpu", lambda: None)
    try:
        with quiet, mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": str(folder)}):
            spec.loader.exec_module(module)
    except (SyntaxError, NameError, AttributeError, ImportError, RuntimeError, TypeError, AssertionError) as e:
        why = f"{type(e).__name__}: {str(e).strip()}".splitlines()[0]
        raise GuideError(f"{kernel.name}: the source cannot be loaded ({why[:120]})") from e
    return getattr(module, kernel.name)
