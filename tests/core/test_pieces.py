"""Rows that go through a network a few at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from deceptron.core.pieces import CACHED, in_pieces


def test_rows_that_fill_the_cache_go_in_pieces_and_come_back_in_order() -> None:
    sizes = []

    def double(rows: Tensor) -> Tensor:
        sizes.append(len(rows))
        return 2 * rows

    rows = torch.arange(5.0)[:, None] * torch.ones(CACHED // 2)
    assert torch.equal(in_pieces(double, rows), 2 * rows)
    assert sizes == [2, 2, 1]


def test_a_row_larger_than_the_cache_goes_alone() -> None:
    rows = torch.ones(3, 2, CACHED)
    assert torch.equal(in_pieces(torch.neg, rows), -rows)


def test_no_rows_are_no_rows() -> None:
    assert in_pieces(torch.neg, torch.ones(0, 4)).shape == (0, 4)
