# SPDX-License-Identifier: MIT
"""Four-bit code books: NF4 and FP4, block by block, and the quantisation of their scales.

A code book is a list of 16 numbers between -1 and 1. Every block of 64 weights is divided by its largest magnitude
(absmax) and each quotient becomes the number of the nearest entry. Sources: Dettmers et al., "QLoRA",
https://arxiv.org/abs/2305.14314, section 3; Dettmers, "8-Bit Approximations for Parallelism in Deep Learning",
https://arxiv.org/abs/1511.04561, for the 8-bit dynamic code book.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch

from rocm_guide.quantize.grid import QuantizationError

__all__ = ["code_book", "code_book_bits", "dequantize_blocks", "on_a_border", "quantize_blocks"]

#: Share of the normal distribution up to which NF4's outermost level reaches: the mean of 1 - 1/30 and 1 - 1/32.
NF4_OFFSET = 0.9677083


@dataclass(frozen=True)
class BlockQuantized:
    """A tensor as numbers of code book entries.

    Attributes:
        codes: uint8, one for each element, flat; each the position of an entry in ``book``.
        absmax: (blocks,) float32, what the entries are multiplied by; restored from ``absmax_codes`` if those are set.
        book: the code book.
        shape: of the tensor.
        block: elements that share an absmax.
        absmax_codes, absmax_scale, absmax_mean: set by double quantisation: 8-bit codes of absmax minus its mean, and
            one scale for every 256 of them.
    """

    codes: torch.Tensor
    absmax: torch.Tensor
    book: torch.Tensor
    shape: tuple[int, ...]
    block: int
    absmax_codes: torch.Tensor | None = None
    absmax_scale: torch.Tensor | None = None
    absmax_mean: torch.Tensor | None = None


def code_book(name: str) -> torch.Tensor:
    """Return the 16 entries of ``nf4`` or ``fp4``, in the order of their codes, as float32.

    NF4 puts its entries at the quantiles of a normal distribution, so that bell-shaped weights use all 16 equally
    often; 0 is one of them, and there is one more entry above it than below. FP4 is a number format: sign, two bits
    of exponent, one of mantissa, scaled so that its largest is 1. Its codes are not in the order of their values.

    Raises:
        QuantizationError: another name.

    >>> [round(x, 4) for x in code_book("nf4").tolist()[6:10]]
    [-0.0911, 0.0, 0.0796, 0.1609]
    >>> [round(x, 4) for x in code_book("fp4").tolist()[:8]]
    [0.0, 0.0052, 0.6667, 1.0, 0.3333, 0.5, 0.1667, 0.25]
    """
    if name == "nf4":
        quantile = NormalDist().inv_cdf

        def side(levels: int) -> list[float]:
            """Return the quantiles from the offset down to (but without) the middle of the distribution."""
            return [quantile(p) for p in torch.linspace(NF4_OFFSET, 0.5, levels + 1)[:-1].tolist()]

        above, below = side(8), side(7)
        values = torch.tensor(sorted([*above, 0.0, *(-x for x in below)]), dtype=torch.float32)
        return values / values.max()
    if name == "fp4":
        positive = [0, 0.0625, 8, 12, 4, 6, 2, 3]
        return torch.tensor([*positive, *(-x for x in positive)], dtype=torch.float32) / 12
    raise QuantizationError(f"code book {name!r}: choose 'nf4' or 'fp4'")


def dynamic_code_book() -> torch.Tensor:
    """Return the 256 entries, sorted, of the signed 8-bit code book for numbers of very different size.

    Seven decades, from 1e-6 to 1. Each smaller decade has half as many entries: few are needed where little is lost.

    >>> book = dynamic_code_book()
    >>> len(book), book[-1].item(), int((book.abs() > 0.1).sum())
    (256, 1.0, 129)
    """
    values = [0.0, 1.0]
    for decade in range(7):
        edges = torch.linspace(0.1, 1, 2**decade + 1)
        middles = 10 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2
        values += [*middles.tolist(), *(-middles).tolist()]
    return torch.tensor(sorted(values), dtype=torch.float32)


def quantize_blocks(
    tensor: torch.Tensor, book: torch.Tensor, block: int = 64, *, double: bool = False
) -> BlockQuantized:
    """Divide every block by its absmax and take the nearest entries of ``book``.

    Args:
        tensor: any shape; read as one long row, the last block may be shorter.
        double: quantise the absmax values too, to 8 bits in blocks of 256 ("double quantisation").

    Raises:
        QuantizationError: a block size below 1, or an empty tensor.

    >>> q = quantize_blocks(torch.tensor([0.5, -2.0, 0.0, 1.4]), code_book("nf4"), block=2)
    >>> q.codes.tolist(), q.absmax.tolist()
    ([10, 0, 7, 15], [2.0, 1.399999976158142])
    """
    if block < 1 or not tensor.numel():
        raise QuantizationError(f"block={block} on {tensor.numel()} elements: give a block of 1 or more and some data")
    scaled, absmax = _scaled(tensor, block)
    order, borders = _borders(book)
    # Nearest entry = how many borders between neighbours lie below; a tie goes to the smaller entry.
    codes = order[torch.bucketize(scaled, borders)].to(torch.uint8)
    if not double:
        return BlockQuantized(codes, absmax, book, tuple(tensor.shape), block)
    mean = absmax.mean()
    inner = quantize_blocks(absmax - mean, dynamic_code_book().to(book.device), 256)
    restored = dequantize_blocks(inner) + mean
    extra = (inner.codes, inner.absmax, mean)
    return BlockQuantized(codes, restored, book, tuple(tensor.shape), block, *extra)


def _scaled(tensor: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return elements divided by the absmax of their block, flat, -1 to 1; and absmax, (blocks,). Both float32."""
    flat = tensor.detach().reshape(-1).float()
    rows = torch.nn.functional.pad(flat, (0, -len(flat) % block)).reshape(-1, block)
    absmax = rows.abs().amax(1)
    scaled = (rows * (1.0 / absmax.clamp(min=1e-38))[:, None]).clamp(-1, 1)
    return scaled.reshape(-1)[: len(flat)], absmax


def _borders(book: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes in the order of their entries, and the midpoints between neighbouring entries, ascending."""
    order = torch.argsort(book)
    return order, (book[order][:-1] + book[order][1:]) / 2


def on_a_border(tensor: torch.Tensor, book: torch.Tensor, block: int = 64) -> torch.Tensor:
    """Return which elements lie on the border between two codes: (elements,) bool, flat.

    There both codes are right: the two entries are equally near, up to the rounding of the division in float32, and
    kernels for different devices choose differently. Weights in 16 bits have few significant digits, so quotients meet
    the borders of FP4, which are simple fractions: about one in 500 does in bfloat16. Those of NF4 are no fractions.

    >>> on_a_border(torch.tensor([0.25, 0.26, -0.25, 1.0]), code_book("fp4"), 4).tolist()
    [False, False, False, False]
    >>> on_a_border(torch.tensor([2.5, 2.6, -2.5, 12.0]), code_book("fp4"), 4).tolist()
    [True, False, True, False]
    """
    scaled, _ = _scaled(tensor, block)
    _, borders = _borders(book)
    right = torch.bucketize(scaled, borders).clamp(max=len(borders) - 1)
    apart = torch.minimum((scaled - borders[right]).abs(), (scaled - borders[(right - 1).clamp(min=0)]).abs())
    # 1 / absmax, the product and the midpoint are rounded once each, and a kernel may write a border with six digits.
    return apart <= 8 * torch.finfo(torch.float32).eps * scaled.abs()


def dequantize_blocks(q: BlockQuantized) -> torch.Tensor:
    """Return the tensor that the codes stand for, float32.

    >>> x = torch.linspace(-1, 1, 64)
    >>> (dequantize_blocks(quantize_blocks(x, code_book("nf4"))) - x).abs().max() < 0.16
    tensor(True)
    """
    values = q.book[q.codes.long()]
    scale = q.absmax.repeat_interleave(q.block)[: len(values)]
    return torch.mul(values, scale).reshape(q.shape)


def code_book_bits(block: int = 64, *, double: bool = False) -> float:
    """Return the bits for one weight: 4, and its share of the block's absmax (32 bits; with double quantisation 8 and a
    share of one 32-bit scale for 256 blocks). Source: QLoRA, section 3, which gives 0.5 and 0.127 bits.

    >>> code_book_bits(64), code_book_bits(64, double=True)
    (4.5, 4.126953125)
    """
    return 4 + ((8 + 32 / 256) / block if double else 32 / block)
