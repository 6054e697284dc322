"""g trained for a range of noise levels: what it is shown, what it learns, how a solve sets it."""

from dataclasses import replace

import pytest
import torch

import deceptron as dc
from deceptron.maps import LinearStart, Wiener
from deceptron.train import recipe
from deceptron.train.data import prepare
from deceptron.train.objectives import CONTINUATION, ReverseObjective
from deceptron.train.streams import stream
from tests.train.small import assert_same, quick, tiny, weights_of

RANGE = (0.5, 4.0)


def chosen(**changes):
    mine = recipe(tiny(), "standard")
    stages = {n: replace(getattr(mine, n), epochs=2) for n in ("forward", "reverse", "jcp")}
    return replace(mine, **{"noise_range": RANGE, **stages, **changes})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return dc.train(tiny(), chosen(), folder, seed=3), folder


def test_every_row_has_a_noise_of_its_own_and_g_is_told():
    mine = chosen()
    data = prepare(tiny(), mine, seed=3, dtype=torch.float32, device=torch.device("cpu"))
    f, g = mine.build(data.problem, data.dataset, torch.Generator(), noise_range=RANGE)
    with torch.no_grad():  # away from its start, so that the level matters to the network too
        for p in g.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    objective = ReverseObjective(data, mine, f, g, stage_number=CONTINUATION, jcp=True)
    objective.begin(5)
    rows = torch.arange(20, 40)
    found = {name: float(value.detach()) for name, _, value in objective.terms(rows)}

    share = torch.rand(
        len(data.train), generator=stream(3, "noise-levels", CONTINUATION, 5), dtype=torch.float64
    )
    ratio = (0.5 * 8**share).float()
    assert 0.5 <= float(ratio.min()) < 0.8 < 3 < float(ratio.max()) <= 4
    clean = data.train.physical
    seen = tiny().add_noise(clean, generator=stream(3, "pairs", CONTINUATION, 5))
    y = data.scaler.normalise(clean + ratio[:, None] * (seen - clean))
    error = torch.cat([g.at_noise(g.noise_level * float(ratio[k]))(y[k : k + 1]) for k in rows])
    wanted = (error - data.train.x[rows]).square().mean().detach()
    assert found["pairs"] == pytest.approx(float(wanted), rel=1e-4)

    objective.begin(5)
    xi, clear = objective._probes.draw(rows[:8], torch.zeros(8))
    objective.begin(5)
    _, louder = objective._probes.draw(rows[:8], ratio[rows[:8]])
    objective.begin(5)
    _, usual = objective._probes.draw(rows[:8])
    scaled = ratio[rows[:8]].reshape(-1, 1, 1) * (usual - clear)
    torch.testing.assert_close(louder - clear, scaled, rtol=1e-3, atol=1e-5)
    defects = []
    for k, row in enumerate(rows[:8]):
        bound = g.at_noise(g.noise_level * float(ratio[row]))
        point = f(data.train.x[row : row + 1])
        _, back = torch.func.jvp(bound, (point,), (louder[k],))
        defects.append((back - xi[k]).square().mean())
    wanted = torch.stack(defects).mean() / objective._probes.variance
    assert found["jcp"] == pytest.approx(float(wanted.detach()), rel=1e-3)


def test_g_is_the_estimate_of_the_noise_that_the_solve_is_told(trained):
    pair, folder = trained
    problem = tiny()
    x, y = problem.dataset(3).test.x, problem.dataset(3).test.y
    answers = {}
    for times in (1, 3):
        noise = times * problem.noise_std
        answers[times] = dc.solve(pair, y, method="one-shot", noise_std=noise).x
        expected = pair.at_noise(noise).g(pair.scaler.normalise(y)).clamp(0, 1)
        torch.testing.assert_close(answers[times], expected)
    assert torch.equal(answers[1], dc.solve(pair, y, method="one-shot").x)
    # More noise, more of the prior: closer to the mean.
    mean = problem.prior.mean.to(x)
    assert float((answers[3] - mean).norm()) < float((answers[1] - mean).norm())
    stored = dc.load(folder / "pair.safetensors")
    assert torch.equal(dc.solve(stored, y, method="one-shot", noise_std=0.03).x, answers[3])


def test_learning_all_levels_beats_one_estimate_for_all():
    """Two epochs, so hardly more than the linear start: a ridge for each noise, not one."""
    problem = tiny(train_count=400, test_count=200)
    pair = dc.train(problem, chosen(), seed=3)
    data = problem.dataset(3)
    train = data.train
    loud = problem.add_noise(
        problem.simulate(data.test.x),
        generator=torch.Generator().manual_seed(0),
        ratio=torch.full((200,), 4.0),
    )

    def error(x):
        return float((x - data.test.x).square().mean().sqrt())

    y = pair.scaler.normalise(loud)
    noise = 4 * problem.noise_std / pair.scaler.scale
    ridge = Wiener.fit(train.x, pair.scaler.normalise(train.y), noise_std=noise)
    told = error(pair.at_noise(4 * problem.noise_std).g(y).detach())
    assert told < 0.9 * error(pair.g(y).detach())
    assert told < 1.05 * error(ridge(y))


def test_a_run_is_resumed_to_the_same_bits(trained, tmp_path):
    class Killed(Exception):
        pass

    def kill(row):
        if (row["stage"], row["epoch"]) == ("reverse", 1):
            raise Killed

    with pytest.raises(Killed):
        dc.train(tiny(), chosen(), tmp_path, seed=3, callback=kill, checkpoint_seconds=0)
    resumed = dc.train(tiny(), chosen(), tmp_path, seed=3)
    assert_same(weights_of(resumed), weights_of(trained[0]))


def test_bars_know_the_noise_too(trained):
    pair = trained[0]
    assert pair.calibration.interval_factor > 0
    assert isinstance(pair.g, LinearStart)
    assert pair.g.noise_ratio == 1.0
    y, settings = tiny().dataset(3).test.y, {"method": "one-shot", "prior": tiny().prior}
    usual, loud = (dc.solve(pair, y, noise_std=k * 0.01, **settings).std for k in (1, 3))
    assert 0 < float(usual.mean()) < float(loud.mean())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: chosen(noise_range=(2.0, 3.0)), "noise_range must be .* got"),
        (lambda: chosen(noisy_pairs=False), "needs noisy_pairs=True"),
        (lambda: quick(noise_range=RANGE), "needs a build that takes noise_range"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(dc.ConfigError, match=message):
        make()
