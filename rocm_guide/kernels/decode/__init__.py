# SPDX-License-Identifier: MIT
"""Attention for one new token: split over the keys, paged, with integer keys, and latent (MLA).

In reading order:

- ``decode``: Flash decoding: attention of one new token over a long cache, the keys shared out among many programs
  (split-K).
- ``paged``: Flash decoding over a paged cache: key ``n`` of sequence ``b`` is key ``n % P`` of page ``table[b, n //
  P]``.
- ``kv_quant``: Keys and values in 8 or 4 bits: integer codes on a grid of their own for every token and head.
- ``integer``: Flash decoding over a cache of 8-bit or 4-bit codes: 52 % or 28 % of the bytes, for heads of 128.
- ``mla``: Multi-head latent attention, decoding: one small latent per token serves all heads, and K and V are never
  built.
- ``mla_prefill``: Multi-head latent attention for many queries, everything in one kernel: absorb, attend, project.
- ``cases``: The launches of the decoding kernels that the resource table compiles for MI300X.
- ``configs``: Launch settings of the decoding kernels: data, by architecture, and into how many parts the keys are
  cut.
"""
