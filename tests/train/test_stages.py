"""The stages minimise what the paper writes down, and select what the recipe says."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.train import PRESETS, Stage, TrainingDiverged, Weights, recipe
from deceptron.train.data import TrainingData, prepare
from deceptron.train.loop import StageRun, StageState
from deceptron.train.objectives import (
    CONTINUATION,
    REVERSE,
    ForwardObjective,
    Probes,
    ReverseObjective,
)
from deceptron.train.paper import PROTOCOLS
from deceptron.train.recipe import learning_rate
from deceptron.train.streams import stream
from tests.train.small import Constant, assert_same, quick, tiny, weights_of

ROWS = torch.arange(20)


def data_for(chosen: Any, seed: int = 3) -> TrainingData:
    cpu = torch.device("cpu")
    return prepare(tiny(), chosen, seed=seed, dtype=torch.float64, device=cpu)


def maps(data: TrainingData) -> tuple[nn.Module, nn.Module]:
    pair = dc.maps.mlp_pair(12, generator=torch.Generator().manual_seed(0)).double()
    pair.f.requires_grad_(False)
    return pair.f, pair.g


def terms(objective: Any) -> dict[str, tuple[float, float]]:
    objective.begin(0)
    return {name: (weight, value.item()) for name, weight, value in objective.terms(ROWS)}


def test_forward_loss_is_the_mean_square_in_normalised_units() -> None:
    chosen = quick()
    data = data_for(chosen)
    f, _ = maps(data)
    x, y = data.dataset.train.x[ROWS], data.dataset.train.y[ROWS]
    wanted = (f(x) - data.dataset.scaler.normalise(y)).square().mean()
    found = terms(ForwardObjective(data, chosen, f))
    assert found == {"task": (1.0, pytest.approx(float(wanted)))}


def test_reverse_losses_are_the_formulas() -> None:
    weights = Weights(cycle=0.3, jcp=0.7, pairs=0.5, bias_tie=0.1, composition=0.2)
    chosen = quick(weights=weights, train_probes=3, train_probe_rows=7, cycle_noise=0.05)
    data = data_for(chosen)
    f, g = maps(data)
    objective = ReverseObjective(data, chosen, f, g, stage_number=CONTINUATION, jcp=True)
    found = terms(objective)

    x, y = data.train.x[ROWS], data.train.y[ROWS]
    white = torch.randn(y.shape, generator=stream(3, "cycle", CONTINUATION, 0), dtype=y.dtype)
    near = y + 0.05 * white
    noisy = data.noisy(data.train, stream(3, "pairs", CONTINUATION, 0))[ROWS]
    first_f, first_g = f.layers[0], g.layers[0]
    probes = {"probes": 3, "generator": stream(3, "probes", CONTINUATION, 0)}
    wanted = {
        "reconstruction": (1.0, (g(f(x)) - x).square().mean()),
        "cycle": (0.3, (f(g(near)) - near).square().mean()),
        "pairs": (0.5, (g(noisy) - x).square().mean()),
        "jcp": (0.7, dc.jcp(dc.Deceptron(f, g), x[:7], **probes)),
        "bias_tie": (0.1, (first_f.bias.mean() + first_g.bias.mean()) ** 2),
        "composition": (
            0.2,
            (first_g.weight[:12] @ first_f.weight - torch.eye(12).double()).square().mean(),
        ),
    }
    assert found.keys() == wanted.keys()
    for name, (weight, value) in wanted.items():
        assert found[name] == (weight, pytest.approx(value.item(), rel=1e-9)), name


def test_probes_can_go_through_the_simulator() -> None:
    """The same penalty with the problem itself in the place of f, g asked at the real y."""
    chosen = quick(train_probes=3, train_probe_rows=7, val_probe_rows=9, probe_map="simulator")
    data = data_for(chosen)
    f, g = maps(data)
    objective = ReverseObjective(data, chosen, f, g, stage_number=CONTINUATION, jcp=True)
    found, measured = terms(objective), objective.validate()

    class Simulator(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return data.scaler.normalise(data.problem.simulate(x))

    true = dc.Deceptron(Simulator(), g)
    probes = {"probes": 3, "generator": stream(3, "probes", CONTINUATION, 0)}
    wanted = dc.jcp(true, data.train.x[ROWS[:7]], **probes).item()
    assert found["jcp"] == (0.1, pytest.approx(wanted, rel=1e-9))
    assert wanted != pytest.approx(dc.jcp(dc.Deceptron(f, g), data.train.x[ROWS[:7]]).item())
    rjcp = dc.rjcp(true, data.val.x[:9], probes=4, generator=stream(3, "val-probes")).mean()
    assert measured["rjcp"] == pytest.approx(float(rjcp))


def test_stabilisers_and_jcp_wait_for_stage_three() -> None:
    weights = Weights(cycle=0.3, jcp=0.7, bias_tie=0.1, composition=0.2)
    chosen = quick(weights=weights, noisy_pairs=False)
    data = data_for(chosen)
    f, g = maps(data)
    second = ReverseObjective(data, chosen, f, g, stage_number=REVERSE)
    assert terms(second).keys() == {"reconstruction", "cycle"}
    plain = ReverseObjective(data, chosen, f, g, stage_number=CONTINUATION, jcp=False)
    assert terms(plain).keys() == {"reconstruction", "cycle", "bias_tie", "composition"}


def test_validation_is_rjcp_and_the_state_error() -> None:
    chosen = quick(val_probes=2, val_probe_rows=9, selection_rjcp=0.25, guard=1.5)
    data = data_for(chosen)
    f, g = maps(data)
    objective = ReverseObjective(
        data, chosen, f, g, stage_number=CONTINUATION, jcp=True, guard_limit=1e9
    )
    measured = objective.validate()
    generator = stream(3, "val-probes")
    wanted = dc.rjcp(dc.Deceptron(f, g), data.val.x[:9], probes=2, generator=generator).mean()
    assert measured["rjcp"] == pytest.approx(float(wanted))
    pairs = (g(data.val_noisy) - data.val.x).square().mean()
    assert measured["val_pairs"] == pytest.approx(float(pairs.detach()))
    assert objective.score(measured) == pytest.approx(float(pairs.detach()) + 0.25 * float(wanted))
    assert objective.eligible(measured)
    strict = ReverseObjective(
        data, chosen, f, g, stage_number=CONTINUATION, guard_limit=measured["val_pairs"] / 2
    )
    assert not strict.eligible(measured)


def test_the_bank_holds_exact_images_and_prior_probes_have_the_scale_of_the_prior() -> None:
    chosen = quick(weights=Weights(jcp=1.0), probe_bank=2, train_probes=4)
    data = data_for(chosen)
    f, _ = maps(data)
    probes = Probes(data, chosen, f)
    probes.fill_bank()
    probes.begin(CONTINUATION, 0)
    xi, tangents = probes.draw(ROWS)
    assert xi.shape == (20, 4, 12)
    assert bool((xi.abs() == 1).all())
    _, wanted = torch.func.jvp(f, (data.train.x[ROWS],), (xi[:, 1],))
    torch.testing.assert_close(tangents[:, 1], wanted)

    aware = Probes(data, replace(chosen, probe_law="prior", probe_bank=0), f)
    aware.begin(CONTINUATION, 0)
    xi, tangents = aware.draw(torch.arange(96))
    assert float(xi.var()) == pytest.approx(aware.variance, rel=0.2)
    _, clean = torch.func.jvp(f, (data.train.x,), (xi[:, 0],))
    noise = ((tangents[:, 0] - clean) / data.noise).std()
    assert float(noise) == pytest.approx(1.0, rel=0.1)


def test_schedules() -> None:
    stage = Stage(name="s", epochs=10, learning_rate=0.1, batch_size=4)
    assert learning_rate(stage, 0, 3, 5) == pytest.approx(0.1)
    assert learning_rate(stage, 5, 0, 5) == pytest.approx(0.05)
    assert learning_rate(replace(stage, schedule="constant"), 9, 4, 5) == 0.1
    cycle = replace(stage, schedule="one-cycle", warmup=0.2)
    rates = [learning_rate(cycle, k // 5, k % 5, 5) for k in range(50)]
    assert rates[0] == pytest.approx(0.1 / 25)
    assert rates[-1] == pytest.approx(0.1 / 1000)
    assert max(rates) == pytest.approx(0.1, rel=1e-2)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


def test_cosine_follows_pytorch() -> None:
    stage = Stage(name="s", epochs=7, learning_rate=0.3, batch_size=1)
    optimiser = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7)
    for epoch in range(7):
        assert learning_rate(stage, epoch, 0, 1) == pytest.approx(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()


def test_the_kept_epoch_is_the_best_eligible_one() -> None:
    class Scripted:
        """Scores that a test dictates; the module counts its epochs."""

        stage_number = CONTINUATION

        def __init__(self) -> None:
            self.module = Constant((1,))
            self.scores = [9.0, 5.0, 1.0, 4.0, 6.0]
            self.seen = -1

        def begin(self, epoch: int) -> None: ...

        def terms(self, rows: torch.Tensor, team: Any) -> Any:
            return [("task", 1.0, -self.module.row.sum())]

        def validate(self) -> dict[str, float]:
            self.seen += 1
            return {"rjcp": self.scores[self.seen]}

        def score(self, measured: dict[str, float]) -> float:
            return measured["rjcp"]

        def eligible(self, measured: dict[str, float]) -> bool:
            return measured["rjcp"] != 1.0

    def run(**changes: Any) -> StageRun:
        stage = Stage(name="jcp", epochs=4, learning_rate=1.0, batch_size=8, schedule="constant")
        chosen = quick(**changes)
        made = StageRun("jcp", stage, Scripted(), chosen, row_count=8, seed=0)
        made.run(lambda state: None)
        return made

    kept = run().state
    assert (kept.best_epoch, kept.best_score) == (3, 4.0)
    assert [row["eligible"] for row in kept.rows] == [1, 0, 1, 1]
    assert float(kept.best["row"]) == pytest.approx(3.0, rel=1e-4)


class Cliff:
    """Distance to 1, from 0: NaN as soon as a step has gone beyond 2."""

    stage_number = 3

    def __init__(self) -> None:
        self.module = Constant((1,))

    def begin(self, epoch: int) -> None: ...

    def terms(self, rows: torch.Tensor, team: Any) -> Any:
        x = self.module.row.sum()
        return [("task", 1.0, (x - 1).square() if x < 2 else x * torch.nan)]

    def validate(self) -> dict[str, float]:
        x = self.module.row.detach().sum().item()
        return {"rjcp": (x - 1) ** 2 if x < 2 else float("nan")}

    def score(self, measured: dict[str, float]) -> float:
        return measured["rjcp"]

    def eligible(self, measured: dict[str, float]) -> bool:
        return True


def cliff(rate: float, saved: StageState | None = None, **changes: Any) -> StageRun:
    stage = Stage(name="jcp", epochs=4, learning_rate=rate, batch_size=1, schedule="constant")
    return StageRun("jcp", stage, Cliff(), quick(**changes), row_count=3, seed=0, saved=saved)


def test_an_epoch_that_diverges_is_done_again_more_slowly() -> None:
    run, after_two = cliff(5.0), []

    def keep(state: StageState) -> None:
        if state.epoch == 2:
            after_two.append(copy.deepcopy(run.snapshot()))

    with pytest.warns(UserWarning, match="epoch 1.*done again from .* epoch 0, .* of 1.7"):
        state = run.run(keep)
    assert state.setbacks >= 1
    assert len(state.rows) == 4
    assert state.best_score < 0.5
    # A run that was killed meanwhile goes on at the rate it had come down to.
    again = cliff(5.0, saved=after_two[0]).run(lambda _: None)
    assert again.rows[2:] == [{**row, "seconds": ANY} for row in state.rows[2:]]
    assert_same(again.best, state.best)


def test_a_stage_that_diverges_at_any_rate_or_has_no_start_ends_with_the_error() -> None:
    with pytest.warns(UserWarning, match="done again"), pytest.raises(TrainingDiverged):
        cliff(1e6).run(lambda _: None)
    with pytest.raises(TrainingDiverged):
        cliff(5.0, start_counts=False).run(lambda _: None)


def test_when_no_epoch_is_eligible_stage_two_stays() -> None:
    problem = tiny()
    strict = quick(problem, guard=1.0, start_counts=False)
    stage = replace(strict.jcp, learning_rate=1.0)  # ruins the map at once
    pair = dc.train(problem, replace(strict, jcp=stage), None)
    assert pair.provenance["selected_epoch"]["jcp"] == 0
    alone = dc.train(problem, replace(strict, jcp=replace(stage, epochs=0)), None)
    assert_same(weights_of(pair), weights_of(alone))


class Saturating(nn.Module):
    """Learns until its input is told to be far too large; then its answer is flat."""

    def __init__(self, alive: bool) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(12, 12), 0.0 if alive else 1e4

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(rows) + self.shift)


@pytest.mark.parametrize("alive", [True, False])
def test_a_stage_ends_where_nothing_is_left_to_learn_from(alive: bool, tmp_path: Path) -> None:
    def build(*_: object) -> tuple[nn.Module, nn.Module]:
        return nn.Linear(12, 12), Saturating(alive)

    seen: list[dict[str, Any]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dc.train(tiny(), quick(build=build), tmp_path, callback=seen.append)
    told = [str(w.message) for w in caught if "exactly zero" in str(w.message)]
    reverse = [row for row in seen if row["stage"] == "reverse"]
    if alive:
        assert not told
        assert len(reverse) == quick().reverse.epochs
    else:
        assert "stage 'reverse' ends after epoch 1 of" in told[0]
        assert len(reverse) == 1


def test_branches_start_alike_and_differ_only_by_jcp() -> None:
    problem = tiny()
    chosen = quick(problem, weights=Weights(cycle=0.1, jcp=0.0), selection_rjcp=0.0)
    with_jcp = dc.train(problem, chosen, None)
    without = dc.train(problem, chosen, None, jcp=False)
    assert_same(weights_of(with_jcp), weights_of(without))
    stronger = replace(chosen, weights=Weights(cycle=0.1, jcp=1.0), start_counts=False)
    with_jcp = dc.train(problem, stronger, None)
    without = dc.train(problem, stronger, None, jcp=False)
    assert_same(weights_of(with_jcp.f), weights_of(without.f))
    assert not torch.equal(with_jcp.g.inner.layers[0].weight, without.g.inner.layers[0].weight)
    assert with_jcp.provenance["jcp"] is True
    assert without.provenance["jcp"] is False


def test_training_learns() -> None:
    problem = tiny(train_count=256)
    longer = {
        name: replace(getattr(quick(problem), name), epochs=30, learning_rate=1e-2)
        for name in ("forward", "reverse", "jcp")
    }
    seen: list[dict[str, Any]] = []
    pair = dc.train(problem, quick(problem, **longer), None, callback=seen.append)
    validation = pair.provenance["validation"]
    assert validation["forward"]["val_task"] < 0.3
    assert validation["jcp"]["val_pairs"] < 0.06
    assert [row["epoch"] for row in seen] == 3 * list(range(1, 31))
    test = problem.dataset(7).test
    one_shot = (dc.solve(pair, test.y, method="one-shot").x - test.x).square().mean().sqrt()
    assert float(one_shot) < 0.25
    linear = (dc.solve(pair, test.y, method="wiener").x - test.x).square().mean().sqrt()
    assert float(linear) < 0.25


def test_the_linear_estimate_knows_which_components_are_noisy() -> None:
    noise = torch.full((12,), 1e-3)
    noise[::2] = 0.2
    problem = tiny(noise_std=noise, train_count=400, test_count=200)
    pair = dc.train(problem, quick(problem, train_rows=None), None)
    data = problem.dataset(7)
    generator = torch.Generator().manual_seed(0)
    noisy = torch.cat([problem.add_noise(data.train.y, generator=generator) for _ in range(20)])
    x, y = data.train.x.repeat(20, 1), data.scaler.normalise(noisy)
    oracle = dc.maps.Wiener.fit(x, y, noise_std=1e-4)
    isotropic = dc.maps.Wiener.fit(
        data.train.x,
        data.scaler.normalise(data.train.y),
        noise_std=data.scaler.noise_level(noise, (12,)),
    )
    target = data.scaler.normalise(data.test.y)
    assert pair.wiener is not None
    ours, best, worse = (
        float((estimate(target) - data.test.x).square().mean())
        for estimate in (pair.wiener, oracle, isotropic)
    )
    assert ours < 1.1 * best
    assert ours < 0.9 * worse


@pytest.mark.parametrize("name", dc.problems.names())
def test_the_paper_has_a_recipe_for_each_problem(name: str) -> None:
    problem = dc.problems.get(name)
    chosen = recipe(problem, "paper")
    assert chosen.both
    assert not chosen.start_counts
    assert (chosen.weight_decay, chosen.clip) == (1e-6, 5.0)
    f, g = chosen.build(problem, problem.dataset(0), torch.Generator().manual_seed(0))
    assert f(torch.zeros(1, *problem.x_shape)).shape[1:] == problem.y_shape
    assert g(torch.zeros(1, *problem.y_shape)).shape[1:] == problem.x_shape
    assert chosen.forward.schedule == ("constant" if name == "heat-1d" else "cosine")


def test_table_seven() -> None:
    epochs = {
        name: tuple(
            getattr(recipe(dc.problems.get(name), "paper"), stage).epochs
            for stage in ("forward", "reverse", "jcp")
        )
        for name in PROTOCOLS
    }
    assert epochs == {
        "heat-1d": (140, 100, 120),
        "heat-2d": (160, 120, 140),
        "heat-3d": (140, 100, 120),
        "darcy-2d": (140, 60, 80),
        "allen-cahn-2d": (120, 80, 40),
        "advection-diffusion-2d": (120, 80, 40),
        "navier-stokes-2d": (120, 80, 15),
    }
    assert PRESETS == ("standard", "paper", "paper-reduced", "smoke")


@pytest.mark.parametrize("name", dc.problems.names())
def test_the_reduced_protocol_differs_in_size_and_length_only(name: str) -> None:
    problem = dc.problems.get(name, train_count=4, val_count=2, test_count=2)
    full, reduced = (recipe(problem, preset) for preset in ("paper", "paper-reduced"))
    stages = ("forward", "reverse", "jcp")
    for stage in stages:
        before, after = getattr(full, stage), getattr(reduced, stage)
        assert after.epochs == max(before.epochs // 10, 2)
        assert replace(after, epochs=before.epochs) == before
    same = {stage: getattr(full, stage) for stage in stages}
    assert replace(reduced, name="paper", build=full.build, **same) == full
    f, g = reduced.build(problem, problem.dataset(0), torch.Generator().manual_seed(0))
    if name != "heat-1d":
        assert f.channels == g.channels == (12 if name == "heat-3d" else 16)
        assert f.blocks == g.blocks == 2
