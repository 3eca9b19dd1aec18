# SPDX-License-Identifier: MIT
"""Make repeated calls of a wrapper around plain Triton kernels cheap, from outside: the kernel's file knows of nothing.

A wrapper checks its arguments, picks a tile, allocates and launches. In Python that takes several times as long as the
launch alone. :func:`fast` records what the first call of a kind allocates and launches; the next call of that kind
allocates the same and launches the same compiled kernels on its own addresses. With a gradient the same is done for
``forward`` and ``backward`` of the wrapper's ``torch.autograd.Function``.

The kind of a call is what a wrapper's checks and choices can depend on: type, shape, strides, device and alignment of
every tensor, every other argument with its type, the current GPU, and who wants a gradient. A float may differ from
call to call (a scale, a factor): what the wrapper asks of it and computes of it is recorded, see
:mod:`rocm_guide.kernels.floats`, and the next float is asked the same first. A call of a new kind runs the wrapper, so
nothing that it refuses passes because a good call came before. Always run plainly are: tensors that are not on a GPU, a
tracer, a transform or a mode of PyTorch at work, somebody who listens to launches, and a wrapper that does more than
allocate and launch (a copy, a sum, memory that is neither an argument's nor its own).

With a gradient the floor is autograd's own: forward and backward through a Function that saves two tensors, allocates
and launches nothing take 3.2 times as long as one plain launch (torch 2.13, Triton 3.9, drivers that do nothing).
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime.jit import JITFunction

from rocm_guide.kernels.floats import Number, of_floats

__all__ = ["fast"]

#: Kinds of calls that are remembered for each wrapper; then all are forgotten. Of one kind, floats of so many sorts.
MOST_KINDS, MOST_SORTS = 4096, 8
#: Arguments other than tensors that may be part of a kind: they cannot change while they keep their identity.
VALUES = frozenset({int, float, bool, str, type(None), torch.dtype})
#: Operations that make a tensor: of memory that nobody has written, or filled. Those that look at memory otherwise.
ALLOCATIONS, FILLED = ("aten::empty", "aten::new_empty"), ("aten::zeros", "aten::full")
LOOKS = "view _unsafe_view detach alias as_strided slice select t transpose permute unsqueeze"
VIEWS = {f"aten::{name}" for name in LOOKS.split()}

#: Of the current GPU, past what torch.cuda does around it: its number, its stream's address, and uninitialised memory
#: of some shape, strides and type, as the code of TorchInductor allocates it.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
allocate: Callable[..., torch.Tensor] = torch._C._dynamo.guards._empty_strided_cuda
_lock = threading.RLock()


def kind_of(values: Sequence[Any]) -> tuple[list[Any], list[float], list[int], list[bool]] | None:
    """Return (what makes up a call's kind, its floats, the tensors' addresses, which want a gradient); None: plainly.

    Addresses and wishes are by position among ``values``, 0 and False where there is no tensor.
    """
    kind: list[Any] = []
    floats, addresses, wishes, tensors = [], [], [], 0
    for value in values:
        cls = value.__class__
        if cls is torch.Tensor or cls is torch.nn.Parameter:
            address = value.data_ptr()
            if not address or not on_gpu(value):
                return None
            kind += (value.dtype, value.device, value.shape, value.stride(), not address % 16)
            addresses.append(address)
            wishes.append(value.requires_grad)
            tensors += 1
            continue
        if cls is float:
            kind.append(float)
            floats.append(value)
        elif cls in VALUES or (isinstance(value, tuple) and all(v.__class__ in VALUES for v in value)):
            kind += (cls, value)  # 1 == True, but what takes one may refuse the other
        else:
            return None
        addresses.append(0)
        wishes.append(False)
    kind.append(current_device())
    return (kind, floats, addresses, wishes) if tensors else None


def call_of(compiled: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """Return what launches ``compiled`` on (stream, arguments): no hooks, no questions; addresses stand for tensors.

    ``compiled[grid](…)`` asks for device and stream, collects what a profiler might want to know, and looks for memory
    that most kernels do not need. Read in Triton 3.6 and 3.9: ``CompiledKernel``, ``CudaLauncher``, ``HIPLauncher``.

    Raises:
        LookupError: the kernel needs memory in each launch, or the launcher is not as in these releases.
    """
    run = compiled.run
    odd = [name for name in ("global_scratch_size", "profile_scratch_size", "gsan_enabled") if getattr(run, name, 0)]
    if odd or not hasattr(run, "launch"):
        raise LookupError("a launch that is more than a call")
    # What the launcher is given it hands on to a function in C, with more that is the same in every call, in an order
    # that depends on vendor and release. A copy of it shows which: marks stand for what is new each time.
    seen: list[tuple[Any, ...]] = []
    stream_here, arguments_here = object(), object()
    show = copy.copy(run)
    show.launch = lambda *given: seen.append(given)
    show(*grid, stream_here, compiled.function, compiled.packed_metadata, None, None, None, arguments_here)
    (given,), launch = seen, run.launch
    at, flat = given.index(stream_here), given[-1] is arguments_here
    before, after = given[:at], given[at + 1 : -1]
    if flat:
        return lambda stream, *arguments: launch(*before, stream, *after, *arguments)
    if given[-1] != (arguments_here,):
        raise LookupError("a launcher of another release")
    return lambda stream, *arguments: launch(*before, stream, *after, arguments)


def is_small(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether the memory behind each is below 2 GiB: Triton then addresses it with 32 bits on AMD."""
    return all(t.untyped_storage().size() < 1 << 31 for t in tensors)


def hooked() -> bool:
    """Return whether somebody, a profiler say, wants to hear of launches."""
    try:
        return bool(knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook that somebody has put there himself
        return True


def on_gpu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is where compiled kernels run."""
    return tensor.is_cuda


def from_triton(launcher: Any) -> bool:
    """Return whether Triton's own launcher comes next; a tool's may want to see tensors."""
    return type(launcher).__module__.startswith("triton.backends.")


def is_busy() -> bool:
    """Return whether a mode or a transform of PyTorch has to see the call, or somebody wants to hear of launches."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
        or hooked()
    )


class Recorder(TorchDispatchMode):
    """Inside, what this thread allocates and launches is noted, and whether it does anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []
        self.fills: list[Callable[[], torch.Tensor] | None] = []
        self.launches: list[tuple[Any, Any, Any, list[Any]]] = []
        self.plain, self.thread = True, threading.get_ident()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let PyTorch do it, and note what it was."""
        result, name = func(*args, **(kwargs or {})), func.name()
        if name.startswith((*ALLOCATIONS, *FILLED)):
            self.made.append(result)
            again = functools.partial(func, *args, **(kwargs or {}))
            self.fills.append(None if name.startswith(ALLOCATIONS) else again)
        elif name.partition(".")[0] not in VIEWS:
            self.plain = False
        return result

    def __enter__(self) -> Any:
        _lock.acquire()
        self.real = JITFunction.run
        real, recorder = self.real, self

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            plain, named = (
                [v.value if type(v) is Number else v for v in values] for values in (args, options.values())
            )
            compiled = real(kernel, *plain, grid=grid, warmup=warmup, **dict(zip(options, named, strict=True)))
            if threading.get_ident() == recorder.thread and not warmup:
                parameters = inspect.signature(kernel.fn).parameters
                names = list(parameters)
                bound = {name: p.default for name, p in parameters.items()} | dict(zip(names, args, strict=False))
                bound |= {name: value for name, value in options.items() if name in bound}
                size = (*(grid(bound) if callable(grid) else grid), 1, 1)[:3]
                recorder.launches.append((kernel, compiled, size, [bound[name] for name in names]))
            return compiled

        JITFunction.run = run
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        JITFunction.run = self.real
        _lock.release()


class Recipe:
    """What a call of some kind allocates and launches, and which of that it returns. It holds no tensors."""

    __slots__ = ("device", "forms", "kernels", "many", "numbers", "results", "steps")

    def __init__(self, noted: Recorder, given: Sequence[Any], result: Any, asked: Sequence[str] = ()) -> None:
        """Read it off ``noted``, a call with the tensors ``given`` (and other values) that returned ``result``.

        ``asked``: what the wrapper asked of its floats.

        Raises:
            LookupError: such a call cannot be repeated.
        """
        tensors = [value if isinstance(value, torch.Tensor) else None for value in (*given, *noted.made)]
        places: dict[int, int] = {}
        for place, tensor in enumerate(tensors):
            if tensor is None or not tensor.numel():
                continue
            if not on_gpu(tensor) or places.setdefault(tensor.data_ptr(), place) != place:
                raise LookupError("elsewhere, or two tensors that begin at the same address")
        if not noted.plain or not places:
            raise LookupError("it does more than allocate and launch")
        self.device = next(t for t in tensors if t is not None).device.index
        self.forms = [(form_of(t), fill) for t, fill in zip(noted.made, noted.fills, strict=True)]
        self.kernels, self.steps = [kernel for kernel, *_ in noted.launches], []
        texts: list[str] = []
        for _, compiled, grid, values in noted.launches:
            if not hasattr(compiled, "packed_metadata") or not from_triton(compiled.run):
                raise LookupError("a tool stands between Triton and the GPU")
            launched = {i: v for i, v in enumerate(values) if isinstance(v, torch.Tensor)}
            roles = [(i, places[v.data_ptr()]) for i, v in launched.items()]
            computed = [i for i, v in enumerate(values) if type(v) is Number]
            sums = [(i, len(texts) + n) for n, i in enumerate(computed)]
            texts += [values[i].text for i in computed]
            fixed = [None if i in launched or i in computed else v for i, v in enumerate(values)]
            # A tuple of whole numbers is a constant of the kernel; another, or a descriptor, may hold a tensor.
            odd = [v for v in fixed if isinstance(v, tuple | list) and not all(isinstance(x, int) for x in v)]
            if odd or any(hasattr(v, "base") for v in fixed):
                raise LookupError("an argument that may hold a tensor")
            if compiled.metadata.target.backend == "hip" and not is_small(list(launched.values())):
                raise LookupError("of memory below 2 GiB AMD's compiler makes another kernel")
            self.steps.append((call_of(compiled, grid), fixed, roles, sums))
        #: Of a call's floats: the numbers that its launches get; None where the wrapper would have done otherwise.
        self.numbers = of_floats(sum(v.__class__ is float for v in given), texts, asked)
        self.many = isinstance(result, tuple)
        #: Which of the arguments, and of what was allocated, is returned, in order, and how it is seen; None is None.
        self.results: list[tuple[int, Any] | None] = []
        starts = {t.untyped_storage().data_ptr(): len(given) + i for i, t in enumerate(noted.made) if t.numel()}
        for one in result if self.many else (result,):
            own = [i for i, value in enumerate(given) if value is one]
            if one is None or own:
                self.results.append(None if one is None else (own[0], None))
                continue
            at = starts.get(one.untyped_storage().data_ptr())
            if at is None or one.dtype != tensors[at].dtype:  # type: ignore[union-attr]
                raise LookupError("it returns what it did not allocate")
            whole = form_of(one) == form_of(tensors[at])
            self.results.append((at, None if whole else (one.shape, one.stride(), one.storage_offset())))

    def run(self, addresses: Sequence[int], numbers: Sequence[float] = ()) -> list[torch.Tensor]:
        """Allocate and launch for tensors at these addresses; return what was allocated."""
        fresh = [allocate(*form) if fill is None else fill() for form, fill in self.forms]
        all_addresses = [*addresses, *(t.data_ptr() for t in fresh)]
        stream = stream_of(self.device)
        for call, fixed, roles, sums in self.steps:
            values = fixed.copy()
            for at, place in roles:
                values[at] = all_addresses[place]
            for at, place in sums:
                values[at] = numbers[place]
            call(stream, *values)
        return fresh

    def pick(self, given: Sequence[Any], fresh: Sequence[torch.Tensor]) -> Any:
        """Return what the call returns."""
        known, found = (*given, *fresh), list[Any]()
        for result in self.results:
            if result is None:
                found.append(None)
            else:
                at, seen = result
                found.append(known[at] if seen is None else known[at].as_strided(*seen))
        return tuple(found) if self.many else found[0]

    def is_watched(self) -> bool:
        """Return whether somebody has put a hook before one of the kernels."""
        return any(kernel.pre_run_hooks for kernel in self.kernels)


def record(
    function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any], given: Sequence[Any], asked: Any = ()
) -> tuple[Any, Recipe | None, list[torch.Tensor]]:
    """Call ``function``; return what it returns, how to do it again (None: it cannot be), and what it allocated."""
    with Recorder() as noted:
        result = function(*args, **options)
    try:
        return result, Recipe(noted, given, result, asked), noted.made
    except Exception:  # noqa: BLE001 - whatever is odd about it: the call has been made, and will not be repeated
        return result, None, []


class Kind:
    """What is known of calls of one kind that want a gradient: both directions, and what is kept between them."""

    __slots__ = ("attributes", "backward", "forward", "plain", "saved")

    def __init__(self) -> None:
        self.forward: Recipe | None = None
        self.backward: dict[tuple[Any, ...], Recipe | None] = {}
        self.plain = False
        self.saved: list[int | None] = []
        self.attributes: dict[str, Any] = {}

    def learn(self, ctx: Any, recipe: Recipe | None, tensors: Sequence[Any]) -> None:
        """Keep what the forward pass left in ``ctx``; ``tensors`` are its arguments and what it allocated."""
        odd = any(getattr(ctx, name, None) for name in ("dirty_tensors", "non_differentiable"))
        attributes = {name: value for name, value in vars(ctx).items() if name not in ("kind", "at")}
        odd = odd or any(value.__class__ not in VALUES for value in attributes.values())
        # By address: what a mode of PyTorch has seen made is the same memory, but not the same object.
        places = {(t.data_ptr(), form_of(t)): at for at, t in enumerate(tensors) if isinstance(t, torch.Tensor)}
        saved = [t if t is None else (t.data_ptr(), form_of(t)) for t in getattr(ctx, "to_save", None) or ()]
        if recipe is None or odd or any(t is not None and t not in places for t in saved):
            self.plain = True
        else:
            self.saved, self.attributes = [t if t is None else places[t] for t in saved], attributes
            self.forward = recipe


def repeated(function: Any) -> Callable[..., Any]:
    """Return ``apply`` of a Function that does what ``function`` does, by its recipes.

    Its last two arguments are the :class:`Kind` of the call and the addresses of its tensors.
    """

    class Repeated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            *values, kind, addresses = given
            ctx.kind = kind
            recipe = kind.forward
            if recipe is None:
                result, recipe, made = record(function.forward, (ctx, *values), {}, values)
                kind.learn(ctx, recipe, (*values, *made))
                ctx.at = addresses_of(getattr(ctx, "to_save", None) or ())
                return result
            fresh = recipe.run(addresses)
            known = (*values, *fresh)
            saved = [None if place is None else known[place] for place in kind.saved]
            ctx.save_for_backward(*saved)
            ctx.at = addresses_of(saved)
            for name, value in kind.attributes.items():
                setattr(ctx, name, value)
            return recipe.pick(values, fresh)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            kind, found, recipe = ctx.kind, None, None
            if not (kind.plain or torch.is_grad_enabled() or torch.compiler.is_compiling() or is_busy()):
                # What was saved is of the kind of the forward pass, if no hook gives back something else.
                saved = ctx.saved_tensors
                found = kind_of(gradients) if addresses_of(saved) == ctx.at else None
            if found is not None:
                key, addresses, given = tuple(found[0]), [*ctx.at, *found[2]], (*saved, *gradients)
                if key not in kind.backward and are_apart(addresses):
                    result, kind.backward[key], _ = record(function.backward, (ctx, *gradients), {}, given)
                    return *as_tuple(result), None, None
                recipe = kind.backward.get(key)
            if recipe is None or recipe.is_watched():
                return *as_tuple(function.backward(ctx, *gradients)), None, None
            return *as_tuple(recipe.pick(given, recipe.run(addresses))), None, None

    # Of Function.apply only what is in C: its Python looks for transforms of torch.func, and is_busy() has done so.
    apply: Callable[..., Any] = super(torch.autograd.Function, Repeated).apply
    return apply


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return what a function returns as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def fast(wrapper: Callable[..., Any], function: Any = None) -> Callable[..., Any]:
    """Return ``wrapper`` with cheap repeated calls; same results, same refusals. torch.compile does not look inside.

    Args:
        wrapper: checks, allocates with ``torch.empty``, ``zeros`` or ``full`` and launches with ``kernel[grid](…)``.
        function: the ``torch.autograd.Function`` through which it gives gradients. ``wrapper(a, b, …)`` must be
            ``function.apply(a, b, …)`` with its parameters in order. None: it gives no gradients.
    """
    parameters = inspect.signature(wrapper).parameters
    names, defaults, missing = list(parameters), [p.default for p in parameters.values()], inspect.Parameter.empty
    in_order = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
    recipes: dict[tuple[Any, ...], list[Recipe | None]] = {}
    kinds: dict[tuple[Any, ...], Kind] = {}
    apply = None if function is None else repeated(function)
    outside = torch._disable_dynamo(wrapper)  # torch.compiler.disable would import the compiler, which takes seconds

    def complete(args: tuple[Any, ...], options: dict[str, Any]) -> list[Any] | None:
        """Return the values of all parameters in order; None if they do not fit."""
        values = [*args, *defaults[len(args) :]]
        for name, value in options.items():
            if name not in parameters or names.index(name) < len(args):
                return None
            values[names.index(name)] = value
        # Not "in", which would ask every tensor whether it is equal.
        return None if len(args) > in_order or any(v is missing for v in values) else values

    def first(values: list[Any], known: list[Recipe | None]) -> Any:
        """Run the wrapper and keep how to repeat it."""
        asked: list[str] = []
        floats = [i for i, value in enumerate(values) if value.__class__ is float]
        given = list(values)
        for n, i in enumerate(floats):
            given[i] = Number(f"f{n}", values[i], asked)
        options = dict(zip(names[in_order:], given[in_order:], strict=True))
        result, recipe, _ = record(wrapper, given[:in_order], options, values, asked)
        known.append(recipe)
        return result

    @functools.wraps(wrapper)
    def call(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():  # which breaks its graph here, and looks no further
            return outside(*args, **options)
        values = complete(args, options)
        try:
            found = None if values is None or is_busy() else kind_of(values)
        except RuntimeError:  # a tensor that cannot say where it lies
            found = None
        if values is None or found is None:
            return wrapper(*args, **options)
        key, floats, addresses, wishes = found
        if apply is not None and torch.is_grad_enabled() and True in wishes:
            # 0.0 == -0.0, but a wrapper may tell them apart.
            kind = kinds.get(whole := (*key, *(f or str(f) for f in floats), *wishes))
            if kind is None and are_apart(addresses):
                forget_many(kinds)
                result = apply(*values, kind := Kind(), addresses)
                kinds[whole] = kind
                return result
            if kind is None or kind.plain or (kind.forward and kind.forward.is_watched()):
                return wrapper(*args, **options)
            return apply(*values, kind, addresses)
        known = recipes.get(whole := tuple(key), [])
        for recipe in known:
            if recipe is None or recipe.is_watched():
                return wrapper(*args, **options)
            numbers = recipe.numbers(*floats)
            if numbers is not None:
                return recipe.pick(values, recipe.run(addresses, numbers))
        if len(known) >= MOST_SORTS or not are_apart(addresses):
            return wrapper(*args, **options)
        forget_many(recipes)
        try:
            result = first(values, known)
        except Exception:  # noqa: BLE001 - a refusal, or what takes no Number: the wrapper says which
            return wrapper(*args, **options)
        recipes[whole] = known
        return result

    call.known = (recipes, kinds)  # type: ignore[attr-defined]
    return call


def addresses_of(tensors: Sequence[torch.Tensor | None]) -> list[int]:
    """Return where tensors begin; 0 for None."""
    return [0 if t is None else t.data_ptr() for t in tensors]


def are_apart(addresses: Sequence[int]) -> bool:
    """Return whether no two tensors begin at the same address: only then a launch's addresses say whose they are."""
    given = [address for address in addresses if address]
    return len(set(given)) == len(given)


def form_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return shape, strides and type."""
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def forget_many(known: dict[Any, Any]) -> None:
    """Make room among the kinds of calls."""
    if len(known) >= MOST_KINDS:
        known.clear()
