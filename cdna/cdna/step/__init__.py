# SPDX-License-Identifier: MIT
"""Watch gfx942 code at work: record a wave, step through it, lay its workgroup out on a compute unit.

In reading order:

- ``state``: The state of a recorded wave, and what one step changes in it.
- ``record``: Execute one workgroup and keep what one of its waves did: each step as what it changed.
- ``timeline``: A compute unit's timeline by a stated cost model: which wave issues when, and what it waits for.
- ``steady``: Cycles of a loop in its steady state: two runs that differ only in their number of turns.
- ``page``: The stepping page: one self-contained HTML file that plays a recording forwards and backwards.
"""
