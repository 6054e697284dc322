"""Shrinkage: the best linear guess in the directions of a family, and files that keep it."""

import pytest
import torch

import deceptron as dc
from deceptron.maps import Shrinkage, mlp_pair


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_tends_to_the_conditional_mean_of_a_gaussian_family():
    # answer = truth + error, both Gaussian: E[truth | answer] = m + C (C + e^2)^-1 (answer - m)
    root = draw(4, 4)
    mean, covariance = torch.arange(4.0, dtype=torch.float64), root @ root.T
    truth = mean + draw(400_000, 4, seed=1) @ root.T
    answers = truth + 0.7 * draw(400_000, 4, seed=2)
    fitted = Shrinkage.along(truth[:200_000], modes=4).fit(answers, truth)
    rows = answers[:50]
    gain = covariance @ torch.linalg.inv(covariance + 0.49 * torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(fitted(rows), mean + (rows - mean) @ gain.T, rtol=0, atol=0.03)


def test_directions_beyond_the_modes_share_one_gain():
    scale = torch.tensor([3.0, 2.0, 0.1, 0.1, 0.1], dtype=torch.float64)
    truth = scale * draw(5000, 5)
    answers = truth + 0.1 * draw(5000, 5, seed=1)
    fitted = Shrinkage.along(truth, modes=2).fit(answers, truth)
    assert fitted.basis.shape == (2, 5)
    torch.testing.assert_close(fitted.gain, torch.ones(2, dtype=torch.float64), rtol=0, atol=0.01)
    assert float(fitted.rest) == pytest.approx(0.5, abs=0.02)
    shrunk = fitted(answers)
    assert (shrunk - truth).square().mean() < 0.75 * (answers - truth).square().mean()


def test_right_answers_are_left_alone_and_hopeless_ones_replaced_by_the_mean():
    truth = 2 + draw(300, 2, 3)
    right = Shrinkage.along(truth, modes=4).fit(truth, truth)
    torch.testing.assert_close(right(truth), truth)
    backwards = Shrinkage.along(truth, modes=6).fit(2 * truth.mean(0) - truth, truth)
    torch.testing.assert_close(backwards(truth), truth.mean(0).expand_as(truth))


def test_a_pair_keeps_it_in_its_file(tmp_path):
    pair = mlp_pair(6, generator=torch.Generator().manual_seed(0)).double()
    truth = draw(50, 6)
    pair.shrinkage = Shrinkage.along(truth, modes=4).fit(truth + 0.5 * draw(50, 6, seed=1), truth)
    loaded = dc.load(dc.save(pair, tmp_path / "pair.safetensors"))
    assert torch.equal(loaded.shrinkage(truth), pair.shrinkage(truth))
    assert loaded.at_noise(0.1).shrinkage is loaded.shrinkage


def test_bad_input_is_named():
    x = draw(5, 3)
    with pytest.raises(dc.ShapeError, match=r"answers must have rows of shape \(3,\)"):
        Shrinkage.along(x, modes=2).fit(draw(5, 4), x)
    with pytest.raises(dc.ShapeError, match="same number of rows; got 5, 4"):
        Shrinkage.along(x, modes=2).fit(x, x[:4])
    with pytest.raises(dc.ConfigError, match="truth must be finite"):
        Shrinkage.along(x, modes=2).fit(x, x / 0)
    with pytest.raises(dc.ConfigError, match=r"Shrinkage.along\(modes=...\)"):
        Shrinkage.along(x, modes=0)
    with pytest.raises(dc.ShapeError, match=r"takes rows of shape \(3,\)"):
        Shrinkage.along(x, modes=2).fit(x, x)(draw(5, 4))
    with pytest.raises(dc.ShapeError, match=r"x_shape=...\) must agree with its maps: Shrinkage"):
        dc.Deceptron(
            torch.nn.Identity(), torch.nn.Identity(), x_shape=(4,), shrinkage=Shrinkage(3, 2)
        )
