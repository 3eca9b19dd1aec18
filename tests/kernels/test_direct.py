# SPDX-License-Identifier: MIT
"""The launchers of the installed Triton, for both vendors, get to their functions in C with the same arguments."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from triton.backends.amd.driver import HIPLauncher
from triton.backends.nvidia import driver as nvidia
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import driver

from rocm_guide.kernels import direct
from rocm_guide.kernels.direct import call_of, memory_from, ready_of

GRID = (3, 2, 1)


def launcher(kind, sent, **changes):
    """One that has not asked a driver for anything: ``__init__`` is left out, and C is a list."""
    found = object.__new__(kind)
    found.__dict__.update(
        num_ctas=1,
        global_scratch_size=0,
        global_scratch_align=1,
        profile_scratch_size=0,
        profile_scratch_align=1,
        launch_cooperative_grid=False,
        launch_pdl=True,
        gsan_enabled=False,
        arg_annotations=["annotations"],
        kernel_signature=b"signature",
        warp_size=64,
        launch=lambda *given: sent.append(given),
    )
    found.__dict__.update(changes)
    return found


@pytest.fixture(autouse=True)
def some_driver():
    before = driver._active
    driver.set_active(SimpleNamespace(allocate_default_profile_scratch=lambda *_: None))
    yield
    driver.set_active(before)


@pytest.mark.parametrize("kind", [CudaLauncher, HIPLauncher])
def test_the_same_reaches_c(kind):
    sent = []
    run = launcher(kind, sent)
    compiled = SimpleNamespace(run=run, function="function", packed_metadata=(4, 1, 0))
    call, arguments = call_of(compiled, GRID), ((0x100, None), 8, 0.5, True)
    assert not sent and run.launch.__name__ == "<lambda>", "asking launches nothing and leaves the launcher as it is"
    for stream in (11, 12):
        run(*GRID, stream, "function", (4, 1, 0), None, None, None, *arguments)
        call(stream, *arguments)
    assert sent[0] == sent[1] and sent[2] == sent[3] and sent[0] != sent[2]
    assert 11 in sent[1] and "function" in sent[1]


@pytest.mark.parametrize("kind", [CudaLauncher, HIPLauncher])
@pytest.mark.parametrize("which", ["global", "profile"])
def test_a_kernel_that_needs_memory_gets_it_in_every_launch(kind, which):
    from triton.runtime import _allocation

    sent, asked = [], []

    def room(size, align, stream):
        asked.append((size, stream))
        return f"room {len(asked)}"

    run = launcher(kind, sent, **{f"{which}_scratch_size": 128})
    if (
        which == "global"
        and "global_scratch_size" not in HIPLauncher.__call__.__code__.co_names
        and kind is HIPLauncher
    ):
        pytest.skip("AMD's launcher of this release has none")
    call = call_of(SimpleNamespace(run=run, function="function", packed_metadata=()), GRID)
    token = _allocation._allocator.set(room)
    before = _allocation._profile_allocator.get()
    _allocation._profile_allocator.set(room)
    try:
        call(7, 1)
        call(8, 2)
    finally:
        _allocation._allocator.reset(token)
        _allocation._profile_allocator.set(before)
    assert asked == [(768, 7), (768, 8)] and "room 1" in sent[0] and "room 2" in sent[1]


@pytest.mark.parametrize("kind", [CudaLauncher, HIPLauncher])
def test_a_wrappers_own_memory_reaches_c(kind):
    from triton.runtime import _allocation

    if "global_scratch_size" not in kind.__call__.__code__.co_names:
        pytest.skip("this release's launcher knows no such memory")
    sent, asked, before = [], [], _allocation._allocator.get()

    def allocate(size):
        asked.append(size)
        return f"room {len(asked)}"

    run = launcher(kind, sent, global_scratch_size=128)
    compiled = SimpleNamespace(run=run, function="function", packed_metadata=(4, 1, 0))
    call = call_of(compiled, GRID, allocate)
    assert not asked and not sent
    call(7, (1, 2), 3)
    call(8, (1, 2), 3)
    with memory_from(lambda size: f"room {size // 768 + 1}"):
        run(*GRID, 8, "function", (4, 1, 0), None, None, None, (1, 2), 3)
    assert asked == [768, 768] and "room 1" in sent[0]
    assert sent[1] == sent[2] and _allocation._allocator.get() is before


@pytest.fixture
def wrapped(monkeypatch):
    """Triton's own wrapper around the function in C, for a kernel that takes a descriptor; what it would encode."""
    encoded = []

    def encode(descriptor, *_):
        encoded.append(descriptor)
        return [f"{descriptor}, encoded", 8, 1]

    monkeypatch.setattr(nvidia, "make_tensordesc_arg", encode)
    signature = {0: "tensordesc<bf16[64,64],layout>", 1: "*bf16", 2: "fp32"}

    def wrap(sent):
        return nvidia.wrap_handle_tensordesc(lambda *given: sent.append(given), signature, [{"fp4_padded": False}])

    return wrap, encoded


def test_descriptors_are_encoded_once_for_each_address(wrapped):
    wrap, encoded = wrapped
    sent, asked = [], []
    run = launcher(CudaLauncher, sent, launch=wrap(sent))
    compiled = SimpleNamespace(run=run, function="function", packed_metadata=(4, 1, 0))
    ready = ready_of(compiled, GRID)

    def arguments(address):
        asked.append(address)
        return f"descriptor of {address}", SimpleNamespace(data_ptr=lambda: address), 0.5

    for stream, address in ((11, 0x100), (11, 0x200), (12, 0x100), (11, 0x100)):
        run(*GRID, stream, "function", (4, 1, 0), None, None, None, f"descriptor of {address}", address, 0.5)
        ready((address,), stream, lambda address=address: arguments(address))
        assert sent[-1] == sent[-2] and stream in sent[-1] and f"descriptor of {address}, encoded" in str(sent[-1])
    assert asked == [0x100, 0x200], "the third and the fourth launch were ready"
    assert len(encoded) == 4 + 2, "Triton's four, ours two"


def test_ready_launches_are_not_kept_without_end(monkeypatch, wrapped):
    monkeypatch.setattr(direct, "MOST_READY", 3)
    sent = []
    run = launcher(CudaLauncher, sent, launch=wrapped[0](sent))
    ready = ready_of(SimpleNamespace(run=run, function="function", packed_metadata=()), GRID)
    for key in range(10):
        ready((key,), 7, lambda key=key: (f"descriptor {key}", key, 0.5))
    assert len(sent) == 10 and len(ready.kept) <= 3


def test_an_unknown_launcher_is_left_to_triton(wrapped):
    run = launcher(CudaLauncher, [])
    compiled = SimpleNamespace(run=run, function="function", packed_metadata=())
    assert ready_of(compiled, GRID) is None, "there is nothing around its function in C"
    run.launch, run.global_scratch_size = wrapped[0]([]), 128
    assert ready_of(compiled, GRID) is None, "memory that the kernel needs for itself is new in every launch"
