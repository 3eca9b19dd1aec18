# SPDX-License-Identifier: MIT
"""Tensors on a GPU that is not there: their memory is the CPU's, their storage knows that it is the GPU's.

A mark on the storage, and not on the tensor, is shared by all views, by ``.data`` and by what a checkpoint is read
into. What a storage cannot tell (which device an operation's result is on, and whether its arguments may meet) is told
by a dispatch mode, which sees every operation of PyTorch below autograd. It raises what PyTorch raises.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, ValuesView
from typing import Any
from unittest import mock

import torch
import torch.utils._device
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
_BASE = torch._C.TensorBase
_REAL_DEVICE, _REAL_NUMPY, _REAL_TO = _BASE.device, _BASE.numpy, _BASE.to
#: PyTorch's caching allocator hands out multiples of this many bytes.
_GRAIN = 512


_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")


class Ledger:
    """Bytes of the pretended GPU that storages hold, and the most that they held; PyTorch's memory statistics."""

    def __init__(self) -> None:
        self.held = self.peak = self.allocations = 0

    def take(self, size: int) -> None:
        self.held += size
        self.peak = max(self.peak, self.held)
        self.allocations += size > 0


ledger = Ledger()


class _Block:
    """The mark of a storage: its memory is the GPU's. It is given back when the storage dies, and the mark with it."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // _GRAIN) * _GRAIN
        ledger.take(self.size)

    def __del__(self) -> None:
        ledger.take(-self.size)


def _storage(tensor: torch.Tensor) -> Any:
    """The storage of a tensor, of the one inside where ``torch.func`` wraps it; None where it has none."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None  # sparse, or a wrapper subclass


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the pretended GPU."""
    return hasattr(_storage(tensor), "_pretended_block")


def put_on_gpu(tensor: torch.Tensor) -> None:
    """Let the memory of a tensor, and of all its views, be the GPU's."""
    storage = _storage(tensor)
    if storage is not None and not hasattr(storage, "_pretended_block"):
        storage._pretended_block = _Block(storage.nbytes())


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that a tensor says it is on."""
    return GPU if on_gpu(tensor) else _REAL_DEVICE.__get__(tensor)


def _wanted(device: Any) -> torch.device:
    """``"cuda"``, a number or a device, as a device."""
    if isinstance(device, int):
        return torch.device("cuda", device)
    return device if isinstance(device, torch.device) else torch.device(device)


def _check_exists(device: torch.device) -> None:
    if device.type == "cuda" and device.index not in (None, 0):
        raise torch.AcceleratorError("HIP error: invalid device ordinal")


# ---------------------------------------------------------------------------------------------- operations

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


#: Operations that PyTorch has for a GPU alone.
_ONLY_ON_GPU = {
    getattr(packet, overload): _wide_product(getattr(packet, overload))
    for packet in (_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm)
    for overload in ("dtype", "dtype_out")
}


def _parts(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among arguments or results, in lists and tuples too."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple | ValuesView):
            found += _parts(value)
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
    found = [(a, t) for a, value in given for t in _parts((value,)) if _REAL_DEVICE.__get__(t).type == "cpu"]
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
    keys = ("CPU", "CUDA", "CompositeExplicitAutograd")
    found = next((k for k in keys if f"{name}/{k}" in torch.library._impls), None)
    return found and getattr(torch._C.DispatchKey, found)


class PretendedOperations(TorchDispatchMode):
    """Below autograd: operations on tensors of the pretended GPU, and those that make such."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _parts((args, kwargs.values())) if kwargs else _parts(args)
        places = [on_gpu(t) for t in given]
        gpu = True in places
        named = kwargs.get("device")
        if gpu and named == CPU:
            named = None  # C++ asks for the device that the tensor has in truth; what a caller asks for is seen above
        to_gpu = named is not None and named.type == "cuda"
        if to_gpu:
            _check_exists(named)
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
            inputs = [_storage(t) for t, there in zip(given, places, strict=True) if not there]
            for tensor in _parts((made,)):
                if _REAL_DEVICE.__get__(tensor).type == "cpu" and not any(s is _storage(tensor) for s in inputs):
                    put_on_gpu(tensor)
        return made

    def _check_generator(self, generator: Any, gpu: bool) -> None:
        if generator is not None and (generator._cdata in _generators) != gpu:
            have, want = ("cpu", "cuda") if gpu else ("cuda", "cpu")
            raise RuntimeError(f"Expected a '{want}' device type for generator but found '{have}'")


# ------------------------------------------------------------------------------------------------- copies


def _copied(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None, **options: Any) -> torch.Tensor:
    """A copy in the memory of another device."""
    with torch.no_grad():
        made = _REAL_TO(tensor, dtype=dtype or tensor.dtype, copy=True, **options)
        storage = made.untyped_storage()
        if device.type == "cuda":
            put_on_gpu(made)
        elif hasattr(storage, "_pretended_block"):
            del storage._pretended_block
    return made


class _Move(torch.autograd.Function):
    """A copy to another device; its gradient goes back to where the tensor was, in the type that it had."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device, dtype: Any, options: dict[str, Any]) -> Any:
        ctx.source = device_of(tensor), tensor.dtype
        return _copied(tensor, device, dtype, **options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return move(grad, *ctx.source), None, None, None


def move(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None = None, copy: bool = False, **options: Any
) -> torch.Tensor:
    """``tensor.to(device, dtype)``; the same tensor where nothing changes."""
    _check_exists(device)
    if device.type not in ("cpu", "cuda") or _REAL_DEVICE.__get__(tensor).type != "cpu":
        if device.type == "cuda":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return _REAL_TO(tensor, device=device, dtype=dtype or tensor.dtype, copy=copy, **options)
    if device.type == device_of(tensor).type:
        return _REAL_TO(tensor, dtype=dtype or tensor.dtype, copy=copy, **options)
    if torch.is_grad_enabled() and tensor.requires_grad:
        return _Move.apply(tensor, device, dtype, options)
    return _copied(tensor, device, dtype, **options)


def _to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to`` in its three forms: (dtype, …), (device, dtype, …), (other, …)."""
    given = dict(zip(("first", "second"), args, strict=False))
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for value in given.values():
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, torch.Tensor):
            device, dtype = device_of(value), value.dtype
        elif isinstance(value, str | torch.device) or (isinstance(value, int) and not isinstance(value, bool)):
            device = value
    other = kwargs.get("other")
    if other is not None:
        device, dtype = device_of(other), other.dtype
    if device is None:
        return _REAL_TO(self, *args, **kwargs)
    flags = [v for v in args if isinstance(v, bool)]
    copy = kwargs.get("copy", flags[1] if len(flags) > 1 else False)
    options = {k: v for k, v in kwargs.items() if k == "memory_format" and v is not None}
    return move(self, _wanted(device), dtype, copy, **options)


def _numpy(self: torch.Tensor, *, force: bool = False) -> Any:
    if on_gpu(self):
        if not force:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        self = move(self.detach(), CPU)
    return _REAL_NUMPY(self, force=force)


def _made_on(make: Callable[..., torch.Tensor], shares: bool) -> Callable[..., torch.Tensor]:
    """``torch.tensor``, ``as_tensor`` and ``asarray``, which PyTorch does not show to modes in one piece."""

    def made(data: Any, *args: Any, device: Any = None, **options: Any) -> torch.Tensor:
        pinned = options.pop("pin_memory", False)
        if isinstance(data, torch.Tensor):
            device = device_of(data) if device is None else device
            dtype = next((a for a in args if isinstance(a, torch.dtype)), options.get("dtype"))
            found = move(data.detach(), _wanted(device), dtype, copy=not shares)
            found = found if shares or found.data_ptr() != data.data_ptr() else found.clone()
            return found.requires_grad_(options.get("requires_grad", False))
        wanted = None if device is None else _wanted(device)
        if wanted is None or wanted.type != "cuda":
            return make(data, *args, **options, **({} if wanted is None else {"device": wanted}))
        gradient = options.pop("requires_grad", False)
        found = move(make(data, *args, device="cpu", **options), wanted)
        return found.pin_memory() if pinned else found.requires_grad_(gradient)

    return made


def _elsewhere(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.zeros_like``, ``Tensor.new_zeros`` and their kin, of which a caller wants the result on the CPU."""

    def made(like: torch.Tensor, *args: Any, device: Any = None, **options: Any) -> torch.Tensor:
        if device is None:
            return make(like, *args, **options)
        wanted = _wanted(device)
        if wanted.type == "cpu" and on_gpu(like):
            like = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return make(like, *args, device=wanted, **options)

    return made


def _new_tensor(self: torch.Tensor, data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
    return torch.tensor(data, device=device_of(self) if device is None else device, **{"dtype": self.dtype, **options})


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    if on_gpu(self):
        raise RuntimeError(f"cannot pin 'torch.cuda.{type(self).__name__}' only dense CPU tensors can be pinned")
    pinned = self.clone()
    pinned.untyped_storage()._pretended_pinned = True
    return pinned


def _of_storage(read: Callable[[torch.Tensor], Any]) -> Any:
    return property(read)


def _tensor_attributes() -> dict[str, Any]:
    """What ``torch.Tensor`` answers, by name."""
    return {
        "device": property(device_of),
        "is_cuda": property(lambda self: on_gpu(self) or _BASE.is_cuda.__get__(self)),
        "is_cpu": property(lambda self: _BASE.is_cpu.__get__(self) and not on_gpu(self)),
        "get_device": lambda self: 0 if on_gpu(self) else _BASE.get_device(self),
        "to": _to,
        "cpu": lambda self, memory_format=None: move(self, CPU),
        "cuda": lambda self, device=None, non_blocking=False, memory_format=None: move(
            self, GPU if device is None else _wanted(device)
        ),
        "numpy": _numpy,
        "new_tensor": _new_tensor,
        **{name: _elsewhere(getattr(_BASE, name)) for name in _NEW},
        "pin_memory": _pin_memory,
        "is_pinned": lambda self, device=None: hasattr(_storage(self), "_pretended_pinned"),
        "record_stream": lambda self, stream: None,
    }


# ------------------------------------------------------------------------------------------------ storages


def _storage_copy(self: Any, gpu: bool) -> Any:
    made = torch.UntypedStorage(self.nbytes())
    made.copy_(self, False)
    if gpu:
        made._pretended_block = _Block(made.nbytes())
    return made


def _storage_to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    wanted = _wanted(device)
    _check_exists(wanted)
    gpu = hasattr(self, "_pretended_block")
    return self if (wanted.type == "cuda") == gpu else _storage_copy(self, not gpu)


def _storage_attributes() -> dict[str, Any]:
    """What a storage answers, by name: how checkpoints are written and read."""
    real = torch._C.StorageBase.device

    def device(self: Any) -> torch.device:
        return GPU if hasattr(self, "_pretended_block") else real.__get__(self)

    return {
        "device": property(device),
        "is_cuda": property(lambda self: hasattr(self, "_pretended_block")),
        "clone": lambda self: _storage_copy(self, hasattr(self, "_pretended_block")),
        "cpu": lambda self: _storage_copy(self, False) if hasattr(self, "_pretended_block") else self,
        "cuda": lambda self, device=None, non_blocking=False: _storage_to(self, device=GPU),
        "to": _storage_to,
        "pin_memory": lambda self, device=None: self,
    }


# ----------------------------------------------------------------------------------------------- the whole


#: Generators of the GPU by their address: an operation sees another Python object of the same generator.
_generators: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()


class _GeneratorKind(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorKind):
    """A random generator that remembers which device it was asked for."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        if _wanted(device).type == "cuda":
            _generators[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:
        return GPU if self._cdata in _generators else CPU


def _attention(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``scaled_dot_product_attention``: the backends of a GPU stand for those of the CPU, which compute the same."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if on_gpu(query):
            if is_causal:  # made here, where it is seen which device it is for
                attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=GPU).tril()
            if enable_gqa:
                shared = query.shape[-3] // key.shape[-3]
                key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
                return real(query, key, value, attn_mask, dropout_p, scale=scale)
        return real(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return attention


def _autocast(undo: contextlib.ExitStack) -> None:
    """Autocast of type "cuda" is that of the CPU, where the tensors are."""
    begin, plain = torch.autocast.__init__, torch.amp.autocast_mode

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    undo.enter_context(mock.patch.object(torch.autocast, "__init__", init))
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        real = getattr(torch, name)

        def answer(*args: Any, real: Any = real) -> Any:
            return real(*("cpu" if a == "cuda" else a for a in args))

        undo.enter_context(mock.patch.object(torch, name, answer))
    undo.enter_context(mock.patch.object(plain, "is_autocast_available", lambda kind: kind in ("cpu", "cuda")))


@contextlib.contextmanager
def pretended_tensors() -> Iterator[None]:
    """Inside the ``with`` block tensors can be on ``cuda:0``; in threads that are started there too.

    Tensors keep their marks afterwards, so the block is for a process that ends with it.
    """
    torch.utils._device._device_constructors()  # remembers PyTorch's own torch.tensor
    reals = {name: getattr(torch, name) for name in ("tensor", "as_tensor", "asarray")}
    makers = {real: _made_on(real, name != "tensor") for name, real in reals.items()}
    begin = threading.Thread._bootstrap_inner
    context = torch.utils._device.DeviceContext.__torch_function__

    def bootstrap(thread: Any) -> None:
        with PretendedOperations():
            begin(thread)

    def in_context(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in makers:
            return makers[func](*args, **{"device": self.device, **(kwargs or {})})
        return context(self, func, types, args, kwargs)

    with contextlib.ExitStack() as undo:
        for owner, attributes in ((torch.Tensor, _tensor_attributes()), (torch.UntypedStorage, _storage_attributes())):
            for name, value in attributes.items():
                undo.enter_context(mock.patch.object(owner, name, value))
        for name in _LIKE:
            undo.enter_context(mock.patch.object(torch, name, _elsewhere(getattr(torch, name))))
        for name, real in reals.items():
            undo.enter_context(mock.patch.object(torch, name, makers[real]))
        undo.enter_context(mock.patch.object(torch, "Generator", Generator))
        undo.enter_context(mock.patch.object(threading.Thread, "_bootstrap_inner", bootstrap))
        undo.enter_context(mock.patch.object(torch.utils._device.DeviceContext, "__torch_function__", in_context))
        attention = _attention(torch.nn.functional.scaled_dot_product_attention)
        undo.enter_context(mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attention))
        _autocast(undo)
        undo.enter_context(PretendedOperations())
        yield
