# SPDX-License-Identifier: MIT
"""The figures of ``cdna inspect --html``, put inline as SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdna import __version__

if TYPE_CHECKING:
    from cdna.inspection import Inspection

__all__ = ["figures", "page"]

#: Colours that people who do not see all of them can tell apart (Okabe and Ito).
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B", "#F0E442")
_STYLE = {
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def _svg(figure: Any) -> str:
    import matplotlib.pyplot as plt

    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _staircase(one: Inspection) -> Any:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    from cdna.occupancy import occupancy

    o = one.occupancy
    assert o is not None
    figure, ax = plt.subplots(figsize=(5.6, 3.4))
    xs = list(range(8, 513, 8))
    kwargs: dict[str, Any] = {"waves_per_workgroup": o.waves_per_workgroup, "sgprs": o.sgprs, "arch": o.arch}
    ys = [occupancy(x, o.lds, **kwargs).waves_per_simd for x in xs]
    # At 9 to 16 registers the hardware gives 16: the step of a count begins just above the one before.
    ax.step([x - 7 for x in xs], ys, where="post", color=_PALETTE[0])
    mark = f"{one.name}: {o.vgprs} VGPRs, {o.waves_per_simd:g} waves"
    ax.plot([o.vgprs], [o.waves_per_simd], "o", color=_PALETTE[1], label=mark)
    ax.legend()
    ax.set(xlabel="VGPRs per lane", ylabel="waves per SIMD", title="Occupancy")
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title(
        f"{o.lds:,} B LDS, {o.waves_per_workgroup} waves per workgroup", loc="right", fontsize=8, fontweight="normal"
    )
    return figure


def _mix(one: Inspection) -> Any:
    import matplotlib.pyplot as plt

    k = one.kernel
    assert k is not None
    mix, inside = k.mix(), k.mix(in_loops=True)
    figure, ax = plt.subplots(figsize=(5.6, 3.4))
    names = list(mix)
    ax.barh(names, [inside.get(n, 0) for n in names], color=_PALETTE[1], label="in loops")
    ax.barh(
        names,
        [mix[n] - inside.get(n, 0) for n in names],
        left=[inside.get(n, 0) for n in names],
        color=_PALETTE[0],
        label="outside",
    )
    ax.invert_yaxis()
    ax.set_xlabel("instructions in the code")
    ax.set_title("Instructions by kind")
    ax.grid(axis="y", visible=False)
    ax.legend()
    return figure


def _widths(one: Inspection) -> Any | None:
    import matplotlib.pyplot as plt

    k = one.kernel
    assert k is not None
    rows = {f"{kind} {access}": k.widths(kind, access) for kind in ("global", "lds") for access in ("load", "store")}
    rows = {name: row for name, row in rows.items() if row}
    if not rows:
        return None
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    widths = sorted({bits for row in rows.values() for bits in row})
    left = dict.fromkeys(rows, 0)
    for n, bits in enumerate(widths):
        counts = [rows[name].get(bits, 0) for name in rows]
        ax.barh(list(rows), counts, left=list(left.values()), color=_PALETTE[n % len(_PALETTE)], label=f"{bits} bits")
        left = {name: at + c for (name, at), c in zip(left.items(), counts, strict=True)}
    ax.invert_yaxis()
    ax.set_xlabel("instructions in the code")
    ax.set_title("Width of memory accesses, per lane")
    ax.grid(axis="y", visible=False)
    ax.legend(ncols=2)
    return figure


def figures(one: Inspection) -> list[str]:
    """Return the plots that the inspection has data for, as SVG texts."""
    import matplotlib as mpl

    found = []
    with mpl.rc_context(_STYLE):
        mpl.use("Agg", force=False)
        if one.occupancy is not None:
            found.append(_svg(_staircase(one)))
        if one.kernel is not None and one.kernel.instructions:
            found.append(_svg(_mix(one)))
            if (widths := _widths(one)) is not None:
                found.append(_svg(widths))
    return found


def page(found: list[Inspection], folder: Path | None) -> str:
    """Render the whole page."""
    from cdna.cli.inspect.text import source_lines
    from cdna.page import render_page

    code = [source_lines(one, folder) for one in found]
    return render_page(found, [figures(one) for one in found], code, f"cdna {__version__}")
