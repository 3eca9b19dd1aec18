# SPDX-License-Identifier: MIT
"""The course for a class: one machine, a JupyterHub, a GPU or a partition of one for each running server.

In reading order:

- ``devices``: The devices to hand out: AMD GPUs and their partitions, as the kernel lists them.
- ``partitions``: The modes in which an MI300X is one device or several, and what each of them gets.
- ``assign``: Who has which device and who waits, in a file that survives the hub.
- ``handout``: The notebooks in a learner's home: fresh ones come, changed ones stay.
- ``models``: The tiny models in a learner's cache, so that a class does not pretrain them once for each.
- ``spawning``: Hooks of JupyterHub's spawners before a server starts and after it has stopped.
- ``start_server``: The command that a spawner starts in place of jupyterhub-singleuser, as the learner.
- ``kernel``: The hub's environment has no torch: its Python kernel is the course's Python.
- ``proxy``: The program that listens for browsers and sends each to its server, with the Node.js that runs it.
- ``capacity``: The number of learners that fit on this machine, and what is missing for a hub.
- ``pretend``: A pretended machine with partitioned GPUs, for trying and testing.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from hub.assign import Assignments, HubError
    from hub.capacity import check_hub, learners_that_fit
    from hub.devices import Device, list_devices
    from hub.handout import hand_out
    from hub.partitions import partition_of, partition_table

__all__ = [
    "Assignments",
    "Device",
    "HubError",
    "check_hub",
    "hand_out",
    "learners_that_fit",
    "list_devices",
    "partition_of",
    "partition_table",
]

__getattr__, __dir__ = lazy_names(__name__)
