# SPDX-License-Identifier: MIT
"""Loops of a control-flow graph, found from the graph alone (not from comments or label names).

Source: P. Havlak, "Nesting of Reducible and Irreducible Loops", ACM TOPLAS 19(4), 1997,
https://doi.org/10.1145/262004.262005. On the reducible graphs that compilers emit, its loops are the natural loops.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = []


def _depth_first(successors: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """Visit every block once: order of visit, each block's number in it, and the largest number below each block."""
    n = len(successors)
    order: list[int] = []
    number, last = [-1] * n, [-1] * n
    # Blocks that no edge reaches (targets of indirect jumps, padding) start a tree of their own.
    for root in range(n):
        if number[root] >= 0:
            continue
        number[root] = len(order)
        order.append(root)
        stack = [(root, iter(successors[root]))]
        while stack:
            block, edges = stack[-1]
            for target in edges:
                if number[target] < 0:
                    number[target] = len(order)
                    order.append(target)
                    stack.append((target, iter(successors[target])))
                    break
            else:
                last[block] = len(order) - 1
                stack.pop()
    return order, number, last


def loop_headers(successors: Sequence[Sequence[int]]) -> tuple[list[int], set[int]]:
    """Return for each block the header of the innermost loop around it (-1: none), and the set of all loop headers.

    ``successors[b]`` lists the blocks that may run after block ``b``; block 0 is the entry. A header's own entry names
    the header of the loop outside it. Time grows linearly with blocks and edges on reducible graphs.

    >>> # 0 -> 1 -> 2 -> 2 (inner), 2 -> 1 (outer), 1 -> 3
    >>> loop_headers([[1], [2, 3], [2, 1], []])
    ([-1, -1, 1, -1], {1, 2})
    """
    order, number, last = _depth_first(successors)
    n = len(order)
    # From here on a block is its number in the visit, so that "is an ancestor of" is two comparisons.
    end = [last[block] for block in order]
    back: list[list[int]] = [[] for _ in range(n)]
    other: list[list[int]] = [[] for _ in range(n)]
    for block, targets in enumerate(successors):
        v = number[block]
        for target in targets:
            w = number[target]
            (back if w <= v <= end[w] else other)[w].append(v)
    parent = list(range(n))
    header = [-1] * n
    headers: set[int] = set()

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for w in range(n - 1, -1, -1):
        if not back[w]:
            continue
        headers.add(w)
        body = {find(v) for v in back[w] if v != w}
        body.discard(w)
        work = list(body)
        while work:
            for y in other[work.pop()]:
                y = find(y)
                if not w <= y <= end[w]:
                    other[w].append(y)  # a second entry: the loop is irreducible, its header is the first one visited
                elif y != w and y not in body:
                    body.add(y)
                    work.append(y)
        for x in body:
            header[x] = w
            parent[x] = w
    result = [-1] * n
    for v, w in enumerate(header):
        result[order[v]] = order[w] if w >= 0 else -1
    return result, {order[w] for w in headers}


def loop_nesting(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return how many loops each block lies in; a loop's header lies in it.

    >>> loop_nesting([[1], [2, 3], [2, 1], []])
    [0, 1, 2, 0]
    """
    header, headers = loop_headers(successors)
    depth: list[int] = [-1] * len(header)
    for start in range(len(header)):
        chain = []
        block = start
        while block >= 0 and depth[block] < 0:
            chain.append(block)
            block = header[block]
        # Walk back from the outside in: a header adds one level for itself and for all that it heads.
        for inner in reversed(chain):
            outer = header[inner]
            depth[inner] = (depth[outer] if outer >= 0 else 0) + (inner in headers)
    return depth
