# SPDX-License-Identifier: MIT
"""The time of an all-reduce: computed from the links between a machine's GPUs, and measured in several processes.

In a ring of p processes each sends 2 (p - 1) / p of the tensor, in 2 (p - 1) messages one after the other.
Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009;
rccl-tests, doc/PERFORMANCE.md, for the bus bandwidth (https://github.com/ROCm/rccl-tests). Notebook 42.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cdna.children import call_in_child
from rocm_guide.common.base import GuideError, write_text

__all__ = ["AllReduce", "LoopbackError", "all_reduce_us", "measure_all_reduce", "require_loopback", "ring_bytes"]


class LoopbackError(GuideError):
    """Processes of this machine cannot reach each other."""


def loopback_answers() -> bool:
    """Return whether a connection from this machine to itself succeeds.

    >>> switch_on_loopback() == loopback_answers()
    True
    """
    with socket.socket() as here, socket.socket() as there:
        here.settimeout(2)
        try:
            there.bind(("127.0.0.1", 0))
            there.listen(1)
            here.connect(there.getsockname())
        except OSError:
            return False
    return True


def switch_on_loopback() -> bool:
    """Switch the loopback interface on, as ``ip link set lo up`` does; return whether it answers now.

    Only Linux, and only who administers the network may (root, also root of a namespace of one's own); for anybody
    else nothing changes and the answer says so.

    Source: netdevice(7), SIOCGIFFLAGS and SIOCSIFFLAGS, https://man7.org/linux/man-pages/man7/netdevice.7.html

    >>> before = loopback_answers()
    >>> switch_on_loopback() >= before  # never switched off
    True
    """
    if loopback_answers():
        return True
    if sys.platform != "linux":
        return False
    import fcntl

    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            answer = fcntl.ioctl(s, get_flags, struct.pack("16sH14x", b"lo", 0))
            flags = struct.unpack("16sH14x", answer)[1]
            fcntl.ioctl(s, set_flags, struct.pack("16sH14x", b"lo", flags | up))
        except OSError:
            return False
    return loopback_answers()


def require_loopback() -> None:
    """Make sure that processes of this machine can reach each other, before several are started.

    A network namespace made by ``unshare -n``, the usual way to cut a program off the network, starts with even the
    loopback interface off. It is switched on where that is allowed; it reaches nothing outside the machine.

    Raises:
        LoopbackError: it is off and stays off.
    """
    if not switch_on_loopback():
        raise LoopbackError(
            "the loopback interface is off, so processes of this machine cannot reach each other; "
            "as root: ip link set lo up"
        )


#: Bytes of the largest tensor: every process holds it, and nothing is learnt beyond it.
LARGEST = 1 << 32
#: Seconds after which processes that wait for each other give up.
PATIENCE = 120


def ring_bytes(size: int, processes: int) -> float:
    """Return the bytes that each of ``processes`` sends when a tensor of ``size`` bytes is added up in a ring.

    Raises:
        GuideError: fewer than two processes, or no bytes.

    >>> ring_bytes(256 << 20, 2) / 2**20, ring_bytes(256 << 20, 8) / 2**20
    (256.0, 448.0)
    """
    if processes < 2 or size < 1:
        raise GuideError(f"size={size}, processes={processes}: an all-reduce has at least 1 byte and 2 processes")
    return 2 * (processes - 1) / processes * size


def all_reduce_us(size: int, processes: int, gb_s: float, latency_us: float = 0.0) -> float:
    """Return the computed microseconds of an all-reduce: ring messages of ``latency_us`` each, and the bytes at
    ``gb_s`` (10^9 bytes each second leave a process).

    Raises:
        GuideError: see :func:`ring_bytes`; or a bandwidth that is not above 0, a latency below 0.

    >>> round(all_reduce_us(256 << 20, 8, 448.0)), round(all_reduce_us(1024, 2, 64.0, latency_us=5.0), 2)
    (1049, 10.02)
    """
    if not gb_s > 0 or not latency_us >= 0:
        raise GuideError(f"gb_s={gb_s}, latency_us={latency_us}: a bandwidth is above 0, a latency 0 or more")
    return 2 * (processes - 1) * latency_us + ring_bytes(size, processes) / gb_s / 1e3


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One measured all-reduce of ``size`` bytes among ``processes``: the median of the slowest process, in ``us``."""

    size: int
    processes: int
    us: float

    @property
    def bus_gb_s(self) -> float:
        """The bus bandwidth as rccl-tests defines it: bytes that a ring sends from each process, over the time.

        >>> AllReduce(1 << 20, 2, 100.0).bus_gb_s
        10.48576
        """
        return ring_bytes(self.size, self.processes) / self.us / 1e3

    @property
    def latency_us(self) -> float:
        """Microseconds of each of the ring's messages, if this size is too small for its bytes to matter."""
        return self.us / (2 * (self.processes - 1))


def measure_all_reduce(sizes: Sequence[int], *, device: str = "cpu", processes: int = 2) -> list[AllReduce]:
    """Measure all-reduces of float32 tensors of ``sizes`` bytes, in processes of their own on this machine.

    ``device`` is "cuda" (each process takes a GPU, and they talk through RCCL or NCCL) or "cpu" (gloo). Each sum is
    checked before it is timed.

    Raises:
        GuideError: a size or number of processes that does not fit, or fewer GPUs than processes.
        ChildError: a process failed, or waited for another in vain.

    >>> measure_all_reduce([10])
    Traceback (most recent call last):
        ...
    cdna.base.InputError: size=10: give whole float32 numbers, 4 bytes to 4 GiB, as 1024
    """
    for size in sizes:
        if size % 4 or not 4 <= size <= LARGEST:
            raise GuideError(f"size={size}: give whole float32 numbers, 4 bytes to {LARGEST >> 30} GiB, as 1024")
        ring_bytes(size, processes)
    if device not in ("cpu", "cuda"):
        raise GuideError(f"device={device}: use cpu or cuda")
    if device == "cuda":
        import torch

        if (gpus := torch.cuda.device_count()) < processes:
            raise GuideError(f"processes={processes}: each takes a GPU, and torch sees {gpus} here")
    require_loopback()
    # A process that starts others must be one that can be started again: a notebook's or a script's own may not be.
    found: list[AllReduce] = call_in_child(start_ring, sizes=list(sizes), device=device, processes=processes)
    return found


def start_ring(sizes: list[int], device: str, processes: int) -> list[AllReduce]:
    """Start the processes of one measurement and return what the first of them wrote down."""
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(_in_the_ring, (processes, device, sizes, folder), nprocs=processes)
        times = json.loads((Path(folder) / "times.json").read_text())
    return [AllReduce(size, processes, us) for size, us in zip(sizes, times, strict=True)]


def _in_the_ring(rank: int, processes: int, device: str, sizes: list[int], folder: str) -> None:
    """Time every size in one process; the first writes ``folder``/times.json, in microseconds."""
    import torch
    import torch.distributed as dist

    from rocm_guide.common.device import clock

    torch.set_num_threads(1)
    if sys.platform == "linux":  # they are all on this machine; a host name may lead nowhere
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    where = f"cuda:{rank}" if device == "cuda" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    meeting = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": processes}
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=PATIENCE), **meeting)
    times = []
    for size in sizes:
        x = torch.full((size // 4,), rank + 1.0, device=where)
        dist.all_reduce(x)
        if not bool((x == processes * (processes + 1) / 2).all()):
            raise GuideError(f"an all-reduce of {size} bytes among {processes} processes gave a wrong sum")
        x.zero_()  # zeros stay zeros, however often they are added up
        calls = max(2, min(50, (64 << 20) // size))
        blocks = torch.zeros(5, dtype=torch.float64, device=where)
        for block in range(-1, len(blocks)):  # one block more, to warm up
            dist.all_reduce(torch.zeros(1, device=where))  # all begin together
            start = clock(where)
            for _ in range(calls):
                dist.all_reduce(x)
            if block >= 0:
                blocks[block] = (clock(where) - start) / calls * 1e6
        dist.all_reduce(blocks, op=dist.ReduceOp.MAX)
        times.append(float(blocks.median()))
    if rank == 0:
        write_text(Path(folder) / "times.json", json.dumps(times))
    dist.destroy_process_group()
