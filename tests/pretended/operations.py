# SPDX-License-Identifier: MIT
"""Operations on tensors of the pretended GPU: which device a result is on, and what PyTorch refuses.

A dispatch mode sees every operation below autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, ValuesView
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.pretended.marks import CPU, check_exists, gpu_generators, on_gpu, put_on_gpu, real_device, storage_of

_aten = torch.ops.aten
#: Operations whose arguments may lie on different devices, or some of them: None, or the names of those that may.
_MAY_MIX: dict[Any, set[str] | None] = {
    _aten.copy_: None,
    _aten._to_copy: None,
    _aten._has_compatible_shallow_copy_type: None,
    _aten.set_: None,
    _aten._copy_from: None,
    _aten.index: {"indices"},
    _aten._unsafe_index: {"indices"},
    _aten.index_put: {"indices"},
    _aten.index_put_: {"indices"},
    _aten._index_put_impl_: {"indices"},
    _aten._unsafe_index_put: {"indices"},
    _aten.tensor_split: {"tensor_indices_or_sections"},
    _aten._pack_padded_sequence: {"lengths"},
    _aten.record_stream: None,
}
_TAKES_SCALARS = {
    "fill_",
    "fill",
    "masked_fill",
    "masked_fill_",
    "where",
    "index_put_",
    "_index_put_impl_",
    "index_fill_",
}


def _wide_product(func: Any) -> Callable[..., torch.Tensor]:
    """A product that is stored in another type than its factors have, which the CPU has no kernel for."""

    def product(*args: Any, out: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        names = [a.name for a in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | options
        dtype = given.pop("out_dtype")
        wide = [v.to(dtype) if isinstance(v, torch.Tensor) else v for v in list(given.values())]
        plain = [w for w, name in zip(wide, given, strict=True) if name not in ("beta", "alpha")]
        scales = {name: given[name] for name in ("beta", "alpha") if name in given}
        result = func.overloadpacket(*plain, **scales)
        return result if out is None else out.copy_(result)

    return product


def _histogram(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """A histogram of integers, which the CPU has no kernel for."""
    return _aten.histc.default(tensor.float(), *args, **options).to(tensor.dtype)


#: Operations that PyTorch has for a GPU alone.
_ONLY_ON_GPU = {
    getattr(packet, overload): _wide_product(getattr(packet, overload))
    for packet in (_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm)
    for overload in ("dtype", "dtype_out")
} | {_aten.histc.default: _histogram}


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among arguments or results, in lists and tuples too."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple | ValuesView):
            found += tensors_in(value)
    return found


def _refuse_mixture(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise PyTorch's error where tensors on the GPU meet tensors on the CPU that may not.

    Called for operations with tensors on both.
    """
    name, may = func.overloadpacket.__name__, _MAY_MIX.get(func.overloadpacket, set())
    if may is None:
        return
    schema = func._schema.arguments
    given = [(schema[i], a) for i, a in enumerate(args)]
    given += [(a, kwargs[a.name]) for a in schema if a.name in kwargs]
    found = [(a, t) for a, value in given for t in tensors_in((value,)) if real_device(t).type == "cpu"]
    iterates = torch.Tag.pointwise in func.tags or name in _TAKES_SCALARS
    foreach = name.startswith(("_foreach", "_fused", "_amp"))
    if name.startswith("index") and found and not on_gpu(found[0][1]):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    for argument, tensor in found:
        if on_gpu(tensor) or argument.name in may:
            continue
        written = argument.alias_info is not None and argument.alias_info.is_write
        if tensor.dim() == 0 and (foreach or (iterates and not written)):
            continue  # a number
        if iterates:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
            )
        first_on_gpu = on_gpu(found[0][1])
        wrong = argument if first_on_gpu else next(a for a, t in found if on_gpu(t))
        here, others = ("cpu", "cuda:0") if first_on_gpu else ("cuda:0", "cpu")
        method = name + (f"_{func._overloadname}" if func._overloadname != "default" else "")
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but got {wrong.name} is on {here}, different from other "
            f"tensors on {others} (when checking argument in method wrapper_CUDA_{method})"
        )


def _python_kernel(func: Any) -> Any:
    """The dispatch key under which a library has registered an operation that it wrote in Python; None for others."""
    name = func.name().replace("::", "/").removesuffix(".default")
    keys = ("CPU", "CompositeExplicitAutograd", "CUDA")  # what is written for the GPU alone may need its libraries
    found = next((k for k in keys if f"{name}/{k}" in torch.library._impls), None)
    return found and getattr(torch._C.DispatchKey, found)


class PretendedOperations(TorchDispatchMode):
    """Below autograd: operations on tensors of the pretended GPU, and those that make such."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs.values())) if kwargs else tensors_in(args)
        places = [on_gpu(t) for t in given]
        gpu = True in places
        named = kwargs.get("device")
        if gpu and named == CPU:
            named = None  # C++ asks for the device that the tensor has in truth; what a caller asks for is seen above
        to_gpu = named is not None and named.type == "cuda"
        if to_gpu:
            check_exists(named)
            kwargs = {**kwargs, "device": CPU}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if gpu and False in places:
            _refuse_mixture(func, args, kwargs)
        if "generator" in kwargs:
            self._check_generator(kwargs["generator"], to_gpu or (gpu and named is None))
        kernel = None if func.namespace == "aten" else _python_kernel(func)
        if gpu and func in _ONLY_ON_GPU:
            made = _ONLY_ON_GPU[func](*args, **kwargs)
        elif kernel is None:
            made = func(*args, **kwargs)
        else:
            with self:  # what it calls is on the GPU too
                made = func._op_dk(kernel, *args, **kwargs)
        if to_gpu or (gpu and named is None):
            inputs = [storage_of(t) for t, there in zip(given, places, strict=True) if not there]
            for tensor in tensors_in((made,)):
                if real_device(tensor).type == "cpu" and not any(s is storage_of(tensor) for s in inputs):
                    put_on_gpu(tensor)
        return made

    def _check_generator(self, generator: Any, gpu: bool) -> None:
        if generator is not None and (generator._cdata in gpu_generators) != gpu:
            have, want = ("cpu", "cuda") if gpu else ("cuda", "cpu")
            raise RuntimeError(f"Expected a '{want}' device type for generator but found '{have}'")
