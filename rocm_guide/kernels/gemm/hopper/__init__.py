# SPDX-License-Identifier: MIT
"""The GEMM's own kernel for NVIDIA's Hopper, in Gluon; an MI300X reader needs none of it.

In reading order:

- ``work``: Which tiles and steps of K each program has, and which stage of shared memory is next.
- ``fetch``: The warp that fetches.
- ``kernel``: The kernel: a warp that fetches, and one to three warpgroups that multiply.
- ``sums``: What a warpgroup that multiplies does in a step, and the blocks of columns that its sums are.
- ``wide``: One instruction for several of these blocks.
- ``store``: How sums leave the registers, a strip at a time.
- ``helpers``: Two small kernels around it: one copies matrices before it, one adds up partial sums after it.
- ``tiles``: Its tiles.
- ``configs``: The choice among them by the time that each is expected to take.
- ``launch``: Which products it fits, and with what it is launched.
"""
