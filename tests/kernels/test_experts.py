# SPDX-License-Identifier: MIT
"""Mixture of experts: the order of pairs, against float64, what is left out, clear errors."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.experts import ExpertTile, experts, pick_expert_tile, reference_experts, sort_by_expert


def problem(seed, device="cpu", **fixed):
    """x, gate_up, down, index, weight of random sizes; some experts get no token, x and the weights are views."""
    g = torch.Generator().manual_seed(seed)

    def pick(name, low, high):
        return fixed.get(name, int(torch.randint(low, high, (), generator=g)))

    number, tokens, hidden, inner = pick("E", 1, 9), pick("T", 1, 41), pick("H", 1, 90), pick("I", 1, 50)
    per = fixed.get("k", 1 + seed % min(number, 4))
    x = torch.randn(tokens, hidden + 8, generator=g).half().to(device)[:, 3 : hidden + 3]
    gate_up = (torch.randn(number, 2 * inner, hidden, generator=g) * 2 * hidden**-0.5).half().to(device)
    down = (torch.randn(2 * number, hidden, inner, generator=g) * max(inner, 1) ** -0.5).half().to(device)[::2]
    likes = torch.randn(tokens, number, generator=g) + 2 * torch.randn(number, generator=g)
    index = likes.topk(per).indices.to(torch.int32 if seed % 2 else torch.int64)
    return x, gate_up, down, index.to(device), torch.rand(tokens, per, generator=g).to(device)


def size_of(x, gate_up, down, index, weight):
    """Return how large the terms of each result are: its error is a part of that."""
    h = (x.double().abs() @ gate_up.double().abs().mT).amax(0)  # (T, 2 I) of the largest expert
    gate, up = h.chunk(2, -1)
    return (gate * up + gate + up) @ down.double().abs().amax(0).T * weight.double().sum(1, keepdim=True) + 1e-3


def right(got, given, part=2.0**-9):
    want = reference_experts(*given)
    assert got.dtype == given[0].dtype and got.shape == want.shape
    assert bool(((got.double() - want).abs() <= part * size_of(*given)).all())


@pytest.mark.parametrize("seed", range(40))
def test_random_layers(device, guarded, seed):
    given = problem(seed, device)
    right(experts(*given), given)


@pytest.mark.parametrize("tile", [ExpertTile(16, 16, 16, 1), ExpertTile(32, 16, 64, 2), ExpertTile(64, 32, 16, 4)])
def test_every_tile_gives_the_same_rows(device, tile):
    given = problem(7, device, T=40, E=5, H=64, I=48)
    right(experts(*given, tile=tile), given)


def test_a_pair_without_an_expert_adds_nothing_and_parts_add_up(device):
    """What expert parallelism asks: each GPU has some experts, and numbers that are not its own are left out."""
    x, gate_up, down, index, weight = given = problem(3, device, E=6, k=3, T=20)
    first = experts(x, gate_up[:2], down[:2], index, weight)
    second = experts(x, gate_up[2:], down[2:], index - 2, weight)  # those of the first are negative here
    right(first + second, given)
    assert bool((experts(x, gate_up, down, torch.full_like(index, 6), weight) == 0).all())


def test_infinity_and_nan_stay_with_their_token(device):
    x, *rest = problem(5, device, T=12, E=4, k=2)
    clean = experts(x, *rest)
    x = x.clone()
    x[3, 0], x[8, 0] = float("nan"), float("inf")
    got = experts(x, *rest)
    others = [t for t in range(12) if t not in (3, 8)]
    assert torch.equal(got[others], clean[others]) and bool(got[3].isnan().all()) and not bool(got[8].isfinite().all())


@pytest.mark.parametrize("sizes", [{"T": 0}, {"I": 0}])
def test_nothing_to_do(device, sizes):
    given = problem(1, device, **({"T": 3, "E": 2, "H": 8, "I": 4, "k": 1} | sizes))
    assert torch.equal(experts(*given), torch.zeros_like(given[0]))


@pytest.mark.parametrize("seed", range(30))
def test_each_pair_has_one_place_in_a_tile_of_its_expert(seed):
    g = torch.Generator().manual_seed(seed)
    number, tokens, per, block = (int(torch.randint(1, n, (), generator=g)) for n in (12, 50, 5, 20))
    index = torch.randint(-1, number + 1, (tokens, per), generator=g)  # some of them no expert
    slots, owner = sort_by_expert(index, number, block)
    assert slots.shape == (len(owner), block)
    flat, found = index.reshape(-1), []
    for row, e in zip(slots.tolist(), owner.tolist(), strict=True):
        mine = [p for p in row if p < flat.numel()]
        assert all(int(flat[p]) == e for p in mine) and bool(mine) == (e < number)
        found += mine
    assert sorted(found) == [p for p, e in enumerate(flat.tolist()) if 0 <= e < number]


def test_as_many_tiles_as_there_can_be():
    """All pairs but one for one expert, each other expert one: the host's bound holds, and it is reached."""
    index = torch.tensor([0] * 17 + [1, 2, 3])[:, None]
    slots, owner = sort_by_expert(index, 4, 16)
    assert owner.tolist() == [0, 0, 1, 2, 3] and len(slots) == (20 + 4 * 15) // 16
    assert len(sort_by_expert(torch.tensor([[5, 9]]), 128, 16)[1]) == 2  # one token never needs more than its pairs


def test_the_tile_grows_with_the_rows_of_an_expert():
    assert [pick_expert_tile(p, 8, "gfx942").bm for p in (1, 128, 129, 512, 4096)] == [16, 16, 32, 64, 128]
    assert pick_expert_tile(64, 8, "gfx950") == pick_expert_tile(64, 8, "gfx942")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": "x"}, "x is 'x': give a tensor"),
        ({"x": torch.ones(4, 8)}, "x is float32: give float16 or bfloat16"),
        ({"gate_up": torch.ones(3, 10, 9).half()}, r"gate_up has shape \(3, 10, 9\): give \(any, any, 8\)"),
        ({"gate_up": torch.ones(3, 9, 8).half()}, r"gate_up has shape \(3, 9, 8\): gate and up need as many rows"),
        ({"down": torch.ones(3, 8, 4).half()}, r"down has shape \(3, 8, 4\): give \(3, 8, 5\)"),
        ({"down": torch.ones(3, 5, 8).half().mT}, r"down has strides \(40, 1, 8\): the last has to be 1"),
        ({"index": torch.ones(4, 2)}, "index is float32: give int64 or int32"),
        ({"index": torch.zeros(5, 2).long()}, r"index has shape \(5, 2\): give \(4, any\)"),
        ({"weight": torch.ones(4, 3)}, r"weight has shape \(4, 3\): give \(4, 2\)"),
    ],
)
def test_what_does_not_fit_is_refused(device, change, text):
    given = {
        "x": torch.ones(4, 8).half(),
        "gate_up": torch.ones(3, 10, 8).half(),
        "down": torch.ones(3, 8, 5).half(),
        "index": torch.zeros(4, 2).long(),
        "weight": torch.ones(4, 2),
    }
    moved = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in (given | change).items()}
    with pytest.raises(ValueError, match=text):
        experts(**moved)
    experts(**{n: v.to(device) for n, v in given.items()})


def test_bf16_is_refused_where_the_interpreter_would_be_wrong(device):
    given = [v.bfloat16() if v.is_floating_point() else v for v in problem(2, device)]
    if device != "cpu":
        right(experts(*given), given, part=2.0**-6)
        return
    with pytest.raises(ValueError, match="x is bfloat16, which Triton's interpreter multiplies wrongly"):
        experts(*given)
