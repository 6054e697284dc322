import pytest
import torch

import deceptron as dc
from deceptron.maps import Wiener


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("noise_std", [1e-4, 0.1, 3.0, "per component"])
@pytest.mark.parametrize("count", [50, 7])
def test_equals_ridge_regression_by_least_squares(noise_std, count):
    x, y = 3 + draw(count, 2, 3), 5 + draw(count, 3, 4, seed=1)
    if noise_std == "per component":
        noise_std = torch.linspace(0.05, 2.0, 12, dtype=y.dtype).reshape(3, 4)
    wiener = Wiener.fit(x, y, noise_std=noise_std)
    # min |x - m_x - (y - m_y) K'|^2 / N + |K diag(s)|^2, as one tall least-squares problem
    centred_x, centred_y = (t.flatten(1) - t.flatten(1).mean(0) for t in (x, y))
    s = torch.as_tensor(noise_std, dtype=y.dtype).expand(3, 4).flatten()
    tall = torch.cat([centred_y, count**0.5 * s.diag()])
    right = torch.cat([centred_x, torch.zeros(12, 6, dtype=y.dtype)])
    gain = torch.linalg.lstsq(tall, right, driver="gelsd").solution.T
    torch.testing.assert_close(wiener.gain, gain, rtol=1e-5, atol=1e-7)
    new = draw(5, 3, 4, seed=2)
    expected = x.flatten(1).mean(0) + (new.flatten(1) - y.flatten(1).mean(0)) @ gain.T
    torch.testing.assert_close(wiener(new).flatten(1), expected, rtol=1e-5, atol=1e-6)


def test_is_the_best_linear_estimate_under_noise():
    # x ~ N(0, I), y = H x + noise: the gain tends to H' (H H' + s^2)^-1
    h = draw(4, 3)
    x = draw(200_000, 3, seed=1)
    wiener = Wiener.fit(x, x @ h.T, noise_std=0.5)
    expected = h.T @ torch.linalg.inv(h @ h.T + 0.25 * torch.eye(4, dtype=h.dtype))
    torch.testing.assert_close(wiener.gain, expected, rtol=0, atol=0.01)


def test_float32_pairs_are_fitted_in_float64():
    x, y = draw(40, 3, dtype=torch.float32), 1000 + draw(40, 5, dtype=torch.float32, seed=1)
    single = Wiener.fit(x, y, noise_std=1e-3)
    double = Wiener.fit(x.double(), y.double(), noise_std=1e-3)
    assert single.gain.dtype == torch.float32
    assert torch.equal(single.gain, double.gain.float())


def test_bad_input_is_named():
    x, y = draw(5, 3), draw(5, 8, seed=1)
    with pytest.raises(dc.ConfigError, match=r"noise_std must be finite and >= 0; got -1.0"):
        Wiener.fit(x, y, noise_std=-1.0)
    with pytest.raises(
        dc.ShapeError, match=r"noise_std must broadcast to one row of y, shape \(8,\)"
    ):
        Wiener.fit(x, y, noise_std=torch.ones(5))
    with pytest.raises(dc.ConfigError, match="covariance is singular; got 0"):
        Wiener.fit(x, torch.ones_like(y), noise_std=0.0)
    with pytest.raises(dc.ShapeError, match="same number of rows; got 5, 4"):
        Wiener.fit(x, y[:4], noise_std=1.0)
    with pytest.raises(dc.ConfigError, match=r"Wiener.fit\(y=...\) must be finite"):
        Wiener.fit(x, y / 0, noise_std=1.0)
    with pytest.raises(dc.ShapeError, match="y must have dtype"):
        Wiener.fit(x, y.float(), noise_std=1.0)
