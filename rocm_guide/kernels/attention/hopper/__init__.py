# SPDX-License-Identifier: MIT
"""Attention's own kernels for NVIDIA's Hopper, in Gluon; an MI300X reader needs none of it.

In reading order:

- ``tiles``: The order of the tiles, and the warp that fetches them.
- ``forward``: The forward pass, with a warp that fetches and two warpgroups that compute.
- ``backward_q``: The queries' part of the backward pass, in the same way.
- ``launch``: Which problems they serve, and with what they are launched.
"""
