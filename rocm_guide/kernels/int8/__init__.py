# SPDX-License-Identifier: MIT
"""Products of 8-bit whole numbers with everything around them in one kernel: what a SmoothQuant model runs on.

In reading order:

- ``reference``: The same operators as torch expressions: the exact product, the scaling, and the two ways to get back
  to 8 bits.
- ``configs``: Which tile an INT8 product takes: the GEMM's tables, with an eye for products of few rows.
- ``plan``: How the kernel of the INT8 operators is launched: what is chosen once for a kind of arguments, and the rest.
- ``operators``: The five operators of the ROCm guide's SmoothQuant section, E = act(alpha * A @ B + beta * D), and the
  product with a scale for each row and column.
- ``cases``: The launches of these kernels that the resource table compiles for MI300X.
"""
