# SPDX-License-Identifier: MIT
"""The loopback interface, 127.0.0.1: what processes of one machine need to train together, network or not."""

from __future__ import annotations

import socket
import struct
import sys

from rocm_guide.common.base import GuideError

__all__ = ["LoopbackError", "require_loopback"]


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

    >>> require_loopback()
    """
    if not switch_on_loopback():
        raise LoopbackError(
            "the loopback interface is off, so processes of this machine cannot reach each other; "
            "as root: ip link set lo up"
        )
