# SPDX-License-Identifier: MIT
"""The launchers of the installed Triton, for both vendors, get to their functions in C with the same arguments."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from triton.backends.amd.driver import HIPLauncher
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import driver

from rocm_guide.kernels.direct import call_of, memory_from

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
