# SPDX-License-Identifier: MIT
"""What is remembered of a call, and when: the wrappers' cheap way into a kernel."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch

from rocm_guide.kernels import direct, launch
from rocm_guide.kernels.attention.autograd import attention
from rocm_guide.kernels.launch import Launch, planned


@pytest.fixture(autouse=True)
def nothing_remembered():
    launch.forget_plans()
    yield
    launch.forget_plans()


class Kernel:
    """Stands for a ``@triton.jit`` function: notes by which way it is launched."""

    arg_names = ("x", "y", "n", "eps", "A", "B")
    __name__ = "kernel"

    def __init__(self, backend="cuda", launcher="a.tool"):
        self.pre_run_hooks, self.seen = [], []
        target = SimpleNamespace(backend=backend)

        class Launcher:
            __module__ = launcher

            def __call__(_, x, y, z, stream, function, packed, metadata, enter, leave, *arguments):
                assert (function, packed, metadata, enter, leave) == ("function", (), None, None, None)
                self.seen.append(("directly", (x, y, z), arguments, {"stream": stream}))

        self.compiled = SimpleNamespace(
            packed_metadata=(), metadata=SimpleNamespace(target=target), run=Launcher(), function="function"
        )

    def __getitem__(self, grid):
        def run(*arguments, **options):
            self.seen.append(("Triton", grid, arguments, options))
            owner = self

            class Compiled(SimpleNamespace):
                def __getitem__(self, grid):
                    return lambda *arguments: owner.seen.append(("at once", grid, arguments, {}))

            return Compiled(**vars(self.compiled))

        return run

    @property
    def ways(self):
        return [way for way, *_ in self.seen]


class Tensor:
    def __init__(self, address=0, size=64):
        self.address, self.size = address, size

    def data_ptr(self):
        return self.address

    def untyped_storage(self):
        return SimpleNamespace(size=lambda: self.size)


def test_the_second_launch_goes_past_triton_with_the_same_arguments():
    kernel, x, y = Kernel(), Tensor(256), Tensor(512)
    run = Launch(kernel, (3,), (7,), {"B": 2, "A": 1}, {"num_warps": 4})
    run(x, y, floats=(0.5,))
    run(x, y, floats=(0.25,))
    assert kernel.seen == [
        ("Triton", (3, 1, 1), (x, y, 7, 0.5, 1, 2), {"num_warps": 4}),
        ("at once", (3, 1, 1), (x, y, 7, 0.25, 1, 2), {}),
    ]


@pytest.fixture
def two_streams(monkeypatch):
    """A driver of GPU 3, whose current stream is 7, then 8, …"""
    numbers = iter(range(7, 100))
    active = SimpleNamespace(get_current_device=lambda: 3, get_current_stream=lambda device: (device, next(numbers)))
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))


def test_tritons_own_launcher_is_called_directly_with_addresses(two_streams):
    kernel, x, y = Kernel(launcher="triton.backends.amd.driver"), Tensor(256), Tensor(512)
    run = Launch(kernel, (3, 2), (7,), {"B": 2, "A": 1}, {"num_warps": 4})
    run(x, y, floats=(0.5,))
    run(x, y, floats=(0.25,))
    run(y, None, floats=(0.25,))
    run.with_arguments((x, y), ((x, y), 7, 0.5, 1, 2))
    run(x, Tensor(520), floats=(0.5,))
    assert kernel.seen[1:4] == [
        ("directly", (3, 2, 1), (256, 512, 7, 0.25, 1, 2), {"stream": (3, 7)}),
        ("directly", (3, 2, 1), (512, None, 7, 0.25, 1, 2), {"stream": (3, 8)}),
        ("directly", (3, 2, 1), ((x, y), 7, 0.5, 1, 2), {"stream": (3, 9)}),
    ]
    assert [kernel.ways[0], *kernel.ways[4:]] == ["Triton", "Triton"]


@pytest.mark.parametrize("which", ["launch_enter_hook", "launch_exit_hook"])
def test_who_wants_to_hear_of_launches_does(two_streams, which):
    from triton import knobs

    kernel, x = Kernel(launcher="triton.backends.nvidia.driver"), Tensor(256)
    run = Launch(kernel, (1,))
    run(x)
    getattr(knobs.runtime, which).add(print)
    try:
        run(x)
        run.with_arguments((x,), ((x,),))
    finally:
        getattr(knobs.runtime, which).remove(print)
    with knobs.runtime.scope():
        setattr(knobs.runtime, which, print)  # instead of the chain of hooks
        run(x)
    run(x)
    assert kernel.ways == ["Triton", "at once", "at once", "at once", "directly"]
    assert kernel.seen[1][2] == (x,), "the hook's owner may look at the tensors"


def test_a_launch_on_descriptors_is_ready_when_its_addresses_come_again(two_streams, monkeypatch):
    kernel, x, y = Kernel(launcher="triton.backends.nvidia.driver"), Tensor(256), Tensor(512)
    launched, made = [], []
    ready = direct.Ready(lambda *given: launched.append(given), lambda arguments: (("grid",), tuple(arguments)))
    monkeypatch.setattr(launch, "ready_of", lambda compiled, grid: ready)
    run = Launch(kernel, (1,))

    def go(a, b, factor=0.5):
        def arguments():
            made.append((a.address, b.address))
            return f"descriptor of {a.address}", b, factor

        run.described((a, b), arguments, factor)

    go(x, y)
    assert kernel.ways == ["Triton"] and not launched, "compiled first"
    for a, b in ((x, y), (y, x), (x, y)):
        go(a, b)
    go(x, y, 0.25)
    assert launched == [
        ("grid", (3, 7), "descriptor of 256", 512, 0.5),
        ("grid", (3, 8), "descriptor of 512", 256, 0.5),
        ("grid", (3, 9), "descriptor of 256", 512, 0.5),
        ("grid", (3, 10), "descriptor of 256", 512, 0.25),
    ]
    assert made == [(256, 512), (256, 512), (512, 256), (256, 512)], (
        "the first by Triton; another factor, another launch"
    )
    go(x, Tensor(520))
    kernel.pre_run_hooks.append(print)
    go(x, y)
    assert kernel.ways == ["Triton"] * 3 and len(launched) == 4, "an odd address, and somebody who wants to look"


def test_what_triton_would_find_out_is_left_to_triton():
    kernel, x, y = Kernel(), Tensor(256), Tensor(512)
    run = Launch(kernel, (3,), (7,), {"A": 1, "B": 2})
    run(x, Tensor(8))  # compiled for an odd address
    run(x, y)
    run(x, y)
    run(Tensor(264), y)
    run(x, None)
    run.with_arguments((x, y), (x, y, 8, 1, 2), plain=False)
    kernel.pre_run_hooks.append(print)
    run(x, y)
    assert kernel.ways == ["Triton", "Triton", "at once", "Triton", "at once", "Triton", "Triton"]


def test_amd_kernels_know_whether_memory_is_below_2_gib():
    for backend, ways in (("hip", ["Triton", "Triton", "Triton", "at once"]), ("cuda", ["Triton"] + ["at once"] * 3)):
        kernel, x, large = Kernel(backend), Tensor(256), Tensor(256, 1 << 31)
        run = Launch(kernel, (1,), (), {})
        # What is compiled for large memory is not kept: for small memory Triton has a faster kernel. Tensors of a plan
        # reach equally far from their starts, so that one serves them even inside larger memory.
        for tensor in (large, large, x, large):
            run(tensor)
        assert kernel.ways == ways


def test_an_unknown_constant_is_refused():
    with pytest.raises(TypeError, match="kernel has no parameter C"):
        Launch(Kernel(), (1,), (), {"A": 1, "C": 2})


def test_a_kind_of_call_is_checked_once(device):
    made = []

    def make(x, y, *options):
        made.append(options)
        return lambda: len(made)

    x, w = torch.ones(4, 8, device=device), torch.ones(8, device=device)
    for tensors, options, count in (
        ((x, w), (1,), 1),
        ((x.clone(), w.clone()), (1,), 1),
        ((x, w), (True,), 2),  # equal to 1, but another type
        ((x, w), (1.0,), 3),
        ((x, None), (1,), 4),
        ((x.double(), w), (1,), 5),
        ((torch.ones(8, 4, device=device).t(), w), (1,), 6),
        ((torch.ones(36, device=device)[3:35].view(4, 8), w), (1,), 7),  # another alignment
        ((x, w), ([1],), 8),
        ((x, w), ([1],), 9),  # a list cannot be remembered
        ((x, w), (1,), 9),
    ):
        planned(make, tensors, *options)
        assert len(made) == count, (tensors, options)


@pytest.fixture
def quick(monkeypatch):
    """TorchInductor's allocation for the CPU stands for that of a GPU."""
    monkeypatch.setattr(launch, "quick_empty", lambda like: torch._C._dynamo.guards._empty_strided_cpu)
    monkeypatch.setattr(launch, "_unread", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (2, 3, 4), torch.Size([1, 1, 5])])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.int8])
def test_the_quick_allocation_makes_what_torch_empty_makes(quick, shape, dtype):
    like = torch.zeros(2, dtype=torch.bfloat16)
    make, expected = launch.maker(like, shape, dtype), torch.empty(shape, dtype=dtype or torch.bfloat16)
    found = make()
    assert make.__class__ is functools.partial
    assert found.data_ptr() != make().data_ptr() or not found.numel()
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    with torch.inference_mode():
        assert make().is_inference()


def test_the_quick_allocation_is_for_the_current_gpu_only(monkeypatch):
    monkeypatch.setattr(launch, "_quick_empty", print)
    here = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 1))
    for current, expected in ((1, print), (0, None), (None, None)):
        monkeypatch.setattr(launch, "_is_kept", lambda like, current=current: current)
        assert launch.quick_empty(here) is expected
    assert launch.quick_empty(torch.zeros(1)) is None


def test_a_build_that_has_the_quick_allocation_by_name_only(monkeypatch):
    def refuse(*_):
        raise RuntimeError("PyTorch compiled without USE_CUDA")

    monkeypatch.setattr(launch, "quick_empty", lambda like: refuse)
    assert launch.maker(torch.zeros(2), (3, 4))().shape == (3, 4)


def test_what_nobody_reads_shares_room(quick, monkeypatch):
    x = torch.randn(6, 40)
    room, again = (launch.unread(x, 6)() for _ in range(2))
    assert room.data_ptr() == again.data_ptr() and list(launch._unread) == [x.device]
    many = launch.unread(x, launch.UNREAD + 1)
    assert many().numel() > launch.UNREAD and many().data_ptr() != room.data_ptr()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert launch.unread(x, 6)().data_ptr() != room.data_ptr()  # of a graph's pool, it seems


def test_what_is_remembered_is_bounded(device, monkeypatch):
    monkeypatch.setattr(launch, "MOST_PLANS", 3)
    made = []
    for n in (1, 2, 3, 4, 4, 3, 2, 1):
        planned(lambda x: made.append(len(x)) or print, (torch.ones(n, device=device),))
    assert len(launch._plans) == 3 and len(made) == 8  # a new function each time: none is found again


def test_no_tensor_of_attention_is_kept_alive_in_either_direction(device):
    q, k, v = (torch.ones(1, 2, 16, 32, device=device, requires_grad=True) for _ in range(3))
    out = attention(q, k, v)
    given = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    alive = [weakref.ref(t) for t in (q, k, v, out, *given)]
    del q, k, v, out, given
    gc.collect()
    assert len(launch._plans) >= 2 and {ref() for ref in alive} == {None}


def test_memory_of_a_stream_grows_and_is_forgotten_with_the_plans():
    made = []

    def make(*sizes):
        made.append(sizes)
        return len(made)

    cpu, needs = torch.device("cpu"), ((4, 9), (4, 9), (3, 2), (5, 1), (1, 1))
    assert [direct.of_stream("a", cpu, need, make) for need in needs] == [1, 1, 1, 2, 2]
    assert made == [(4, 9), (5, 9)]  # as much as before, at least
    assert direct.of_stream("b", cpu, (1, 1), make) == 3
    launch.forget_plans()
    assert direct.of_stream("a", cpu, (1, 1), make) == 4


def test_lasting_memory_is_allocated_by_another_thread_on_the_same_stream(monkeypatch):
    assert direct.lasting(threading.get_ident) == threading.get_ident()  # no GPU: nothing to keep out of a pool
    streams = []

    @contextlib.contextmanager
    def stream(given):
        streams.append((threading.get_ident(), given))
        yield

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(direct, "driver", SimpleNamespace(active=SimpleNamespace(get_current_device=print)))
    assert direct.lasting(threading.get_ident) == threading.get_ident()  # a dry run on a machine with a GPU
    direct.driver.active.get_current_device = torch.cuda.current_device
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "mine")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    other = direct.lasting(threading.get_ident)
    assert other != threading.get_ident()
    assert streams == [(other, "mine")]

    def fail():
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        direct.lasting(fail)


def test_memory_is_new_while_a_graph_is_captured(monkeypatch):
    gpu = torch.device("cuda", 0)
    capturing = iter([True, False, False, True])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: next(capturing))
    monkeypatch.setattr(direct, "current_stream", lambda _: 7)
    made = iter(range(9))
    assert [direct.of_stream("a", gpu, (1,), lambda _: next(made)) for _ in range(4)] == [0, 1, 1, 2]
    assert direct.scratch == {("a", gpu, 7): ((1,), 1)}
