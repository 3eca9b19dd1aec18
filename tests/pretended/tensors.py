# SPDX-License-Identifier: MIT
"""Tensors on a GPU that is not there: their memory is the CPU's, their storage knows that it is the GPU's.

What a storage cannot tell (which device an operation's result is on, and whether its arguments may meet) is told by a
dispatch mode. Both raise what PyTorch raises.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.utils._device
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import handle_torch_function, has_torch_function

from tests.pretended.marks import (
    BASE,
    CPU,
    GPU,
    Block,
    check_exists,
    device_of,
    gpu_generators,
    on_gpu,
    put_on_gpu,
    real_device,
    storage_of,
    wanted_device,
)
from tests.pretended.operations import PretendedOperations

_REAL_NUMPY, _REAL_TO = BASE.numpy, BASE.to
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")


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
    check_exists(device)
    if device.type not in ("cpu", "cuda") or real_device(tensor).type != "cpu":
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
    return move(self, wanted_device(device), dtype, copy, **options)


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
            found = move(data.detach(), wanted_device(device), dtype, copy=not shares)
            found = found if shares or found.data_ptr() != data.data_ptr() else found.clone()
            return found.requires_grad_(options.get("requires_grad", False))
        wanted = None if device is None else wanted_device(device)
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
        wanted = wanted_device(device)
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
        "is_cuda": property(lambda self: on_gpu(self) or BASE.is_cuda.__get__(self)),
        "is_cpu": property(lambda self: BASE.is_cpu.__get__(self) and not on_gpu(self)),
        "get_device": lambda self: 0 if on_gpu(self) else BASE.get_device(self),
        "to": _to,
        "cpu": lambda self, memory_format=None: move(self, CPU),
        "cuda": lambda self, device=None, non_blocking=False, memory_format=None: move(
            self, GPU if device is None else wanted_device(device)
        ),
        "numpy": _numpy,
        "new_tensor": _new_tensor,
        **{name: _elsewhere(getattr(BASE, name)) for name in _NEW},
        "pin_memory": _pin_memory,
        "is_pinned": lambda self, device=None: hasattr(storage_of(self), "_pretended_pinned"),
        "record_stream": lambda self, stream: None,
    }


# ------------------------------------------------------------------------------------------------ storages


def _storage_copy(self: Any, gpu: bool) -> Any:
    made = torch.UntypedStorage(self.nbytes())
    made.copy_(self, False)
    if gpu:
        made._pretended_block = Block(made.nbytes())
    return made


def _storage_to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    wanted = wanted_device(device)
    check_exists(wanted)
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


class _GeneratorKind(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorKind):
    """A random generator that remembers which device it was asked for."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        if wanted_device(device).type == "cuda":
            gpu_generators[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:
        return GPU if self._cdata in gpu_generators else CPU


def _device_class(real: Any) -> Any:
    """``torch.device``, for which a number is one of the GPU; what it makes is PyTorch's own."""

    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    def new(cls: Any, *args: Any, **kwargs: Any) -> torch.device:
        return real("cuda", *args) if args and isinstance(args[0], int) else real(*args, **kwargs)

    return Kind("device", (), {"__new__": new, "__module__": "torch", "__doc__": real.__doc__})


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As PyTorch's, whose C++ asks for zeros on the device that the tensor has in truth."""
    classes = int(tensor.max()) + 1 if num_classes == -1 else num_classes
    return (tensor[..., None] == torch.arange(classes, device=tensor.device)).long()


def _read_target(real: Callable[..., Any]) -> Callable[..., Any]:
    """How ``Module.to`` reads its arguments, a number among them."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        args = (
            tuple(wanted_device(a) if isinstance(a, int) and not isinstance(a, bool) else a for a in args[:1])
            + args[1:]
        )
        if kwargs.get("device") is not None:
            kwargs["device"] = wanted_device(kwargs["device"])
        return real(*args, **kwargs)

    return parse


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
        given = (query, key, value)
        if has_torch_function(given):
            options = {"scale": scale, "enable_gqa": enable_gqa}
            return handle_torch_function(attention, given, *given, attn_mask, dropout_p, is_causal, **options)
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
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
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
        undo.enter_context(mock.patch.object(torch, "device", _device_class(torch.device)))
        undo.enter_context(mock.patch.object(torch.nn.functional, "one_hot", _one_hot))
        undo.enter_context(mock.patch.object(torch._C._nn, "_parse_to", _read_target(torch._C._nn._parse_to)))
        undo.enter_context(mock.patch.object(threading.Thread, "_bootstrap_inner", bootstrap))
        undo.enter_context(mock.patch.object(torch.utils._device.DeviceContext, "__torch_function__", in_context))
        attention = _attention(torch.nn.functional.scaled_dot_product_attention)
        undo.enter_context(mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attention))
        _autocast(undo)
        undo.enter_context(PretendedOperations())
        yield
