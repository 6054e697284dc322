"""Statistics against values worked out by hand, by enumeration or by scipy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from deceptron import ConfigError
from deceptron_paper import statistics as st

INF, NAN = np.inf, np.nan


# Instance 2 is solved by nobody, instance 3 was not run by b.
COSTS = {"a": [1.0, 4.0, INF, 1.0], "b": [2.0, 1.0, INF, NAN]}


class TestProfiles:
    def test_dolan_more_by_hand(self):
        profile = st.performance_profile(COSTS, [1.0, 2.0, 3.9, 4.0, 100.0])
        np.testing.assert_allclose(profile["a"], np.array([1, 1, 1, 2, 2]) / 3)
        np.testing.assert_allclose(profile["b"], np.array([1, 2, 2, 2, 2]) / 3)

    def test_data_profile_by_hand(self):
        profile = st.data_profile(COSTS, [0.5, 1.0, 2.0, INF])
        np.testing.assert_allclose(profile["a"], np.array([0, 1, 1, 2]) / 3)
        np.testing.assert_allclose(profile["b"], np.array([0, 1, 2, 2]) / 3)

    def test_methods_that_cost_nothing_tie(self):
        profile = st.performance_profile({"a": [0.0], "b": [0.0], "c": [1.0]}, [1.0, 1e9])
        assert [profile[name][0] for name in "abc"] == [1, 1, 0]
        assert profile["c"][1] == 0

    def test_unequal_lengths_are_refused(self):
        with pytest.raises(ConfigError, match=r"a: \(2,\), b: \(1,\)"):
            st.performance_profile({"a": [1, 2], "b": [1]}, [1])

    def test_cost_to_tolerance_takes_the_first_crossing(self):
        instances = pd.DataFrame(
            {"instance": [0, 1], "relative_residual": [0.1, 0.5], "seconds": [9.0, 9.0]}
        )
        steps = pd.DataFrame(
            {
                "instance": [0, 0, 0, 1, 1],
                "step": [0, 1, 2, 0, 1],
                "relative_residual": [1.0, 0.29, 0.1, 1.0, 0.5],
                "seconds": [0.0, 2.0, 5.0, 0.0, 2.0],
            }
        )
        cost = st.cost_to_tolerance(instances, steps, limit=0.3, cost="seconds")
        assert cost.to_dict() == {0: 2.0, 1: INF}
        count = st.cost_to_tolerance(instances, steps, limit=0.3, cost="step")
        assert count.to_dict() == {0: 1.0, 1: INF}

    def test_a_direct_method_costs_its_whole_time(self):
        instances = pd.DataFrame(
            {"instance": [4, 5], "relative_residual": [0.3, 0.31], "seconds": [0.2, 0.2]}
        )
        none = pd.DataFrame(columns=["instance", "step", "relative_residual", "seconds"])
        assert st.cost_to_tolerance(instances, none, limit=0.3, cost="seconds").to_dict() == {
            4: 0.2,
            5: INF,
        }
        assert st.cost_to_tolerance(instances, none, limit=0.3, cost="step")[4] == 1


class TestIntervals:
    def test_bca_of_a_mean_is_scipys(self):
        sample = np.random.default_rng(3).lognormal(size=40)
        ours = st.mean_interval(sample, resamples=20000)
        theirs = scipy.stats.bootstrap(
            (sample,), np.mean, n_resamples=20000, method="BCa", random_state=2
        ).confidence_interval
        width = theirs.high - theirs.low
        assert ours.value == pytest.approx(sample.mean())
        assert abs(ours.low - theirs.low) < 0.03 * width
        assert abs(ours.high - theirs.high) < 0.03 * width
        # A skewed sample reaches further up than down; a percentile interval less so.
        assert ours.high - ours.value > 1.2 * (ours.value - ours.low)

    def test_same_seed_same_interval(self):
        sample = np.arange(20.0) ** 2
        assert st.mean_interval(sample) == st.mean_interval(sample.copy())

    def test_small_and_constant_samples(self):
        assert st.mean_interval([2.0, 2.0, NAN]) == st.Interval(2.0, 2.0, 2.0, 2)
        one = st.mean_interval([3.0])
        assert (one.value, one.count) == (3.0, 1)
        assert np.isnan(one.low)
        assert np.isnan(one.high)
        assert np.isnan(st.mean_interval([]).value)
        assert st.mean_interval([1.0, INF]).value == INF

    def test_rate_is_close_to_the_binomial_one(self):
        outcomes = np.repeat([1.0, 0.0], [60, 20])
        ours = st.rate_interval(outcomes)
        low, high = scipy.stats.binom(80, 0.75).interval(0.95)
        assert ours.value == 0.75
        assert abs(ours.low - low / 80) <= 1 / 80
        assert abs(ours.high - high / 80) <= 1 / 80

    @pytest.mark.parametrize("outcome", [0, 1])
    def test_unanimous_rates_have_the_exact_bound(self, outcome):
        exact = scipy.stats.binomtest(80 * outcome, 80).proportion_ci(method="exact")
        ours = st.rate_interval(np.full(80, outcome))
        assert (ours.low, ours.high) == pytest.approx((exact.low, exact.high))

    def test_outcomes_without_verdict_are_left_out(self):
        assert st.rate_interval([1, 0, NAN, NAN]).count == 2
        assert st.rate_interval([NAN]).count == 0


class TestComparison:
    def test_exact_permutation_by_enumeration(self):
        # Differences 1, 2, 3: of 8 sign patterns only +++ and --- reach |mean| 2.
        paired = st.paired_difference([2, 4, 6], [1, 2, 3])
        assert paired.difference.value == 2
        assert paired.p == pytest.approx(2 / 8)

    def test_sampled_permutation_is_scipys(self):
        rng = np.random.default_rng(0)
        a, b = rng.normal(0.15, 1, (2, 60))
        b -= 0.2
        theirs = scipy.stats.permutation_test(
            (a, b),
            lambda u, v, axis: (u - v).mean(axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20000,
            random_state=1,
        )
        assert st.paired_difference(a, b).p == pytest.approx(theirs.pvalue, abs=0.015)

    def test_pairs_with_a_gap_are_left_out(self):
        assert st.paired_difference([1, NAN, 3], [1, 2, 1]).difference.count == 2
        with pytest.raises(ConfigError, match="one length; got 2 and 1"):
            st.paired_difference([1, 2], [1])

    def test_equal_samples_have_p_one(self):
        assert st.paired_difference(np.ones(30), np.ones(30)).p == 1

    def test_cohens_d_by_hand(self):
        # Means 2 and 5; sums of squares 2 and 2 over 3 + 3 - 2 degrees: pooled sd 1.
        assert st.cohens_d([1, 2, 3], [4, 5, 6]) == pytest.approx(-3.0)

    def test_cohens_d_by_iteration_skips_ended_trials(self):
        a = [[1, 9], [2, NAN], [3, NAN]]
        b = [[4, 1], [5, 2], [6, 3]]
        d = st.cohens_d(a, b)
        assert d[0] == pytest.approx(-3.0)
        assert np.isnan(d[1])

    @pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
    def test_cohens_d_has_no_scale_and_does_not_divide_by_round_off(self, scale):
        a, b = scale * np.array([1, 2, 3]), scale * np.array([4, 5, 6])
        assert st.cohens_d(a, b) == pytest.approx(-3.0)
        # The mean of three times 0.1 is not 0.1: the deviations are 1e-17, not zero.
        same = scale * np.array([0.1, 0.1, 0.1])
        assert np.isnan(st.cohens_d(same, 2 * same))

    def test_spearman_by_hand(self):
        # Ranks 1 2 3 4 against 2 1 4 3: sum d^2 = 4, rho = 1 - 6 * 4 / (4 * 15).
        found = st.spearman([1, 10, 100, 1000, NAN], [2, 1, 4, 3, 0])
        assert (found.rho, found.count) == (pytest.approx(0.6), 4)
        assert found.p == pytest.approx(0.4)  # t = 0.6 sqrt(2 / 0.64), two degrees of freedom

    def test_spearman_without_variation_is_not_a_number(self):
        assert np.isnan(st.spearman([1, 1, 1], [1, 2, 3]).rho)
        assert np.isnan(st.spearman([1, 2], [1, 2]).rho)


class TestRatios:
    def test_two_pairs_by_hand(self):
        # Resamples of two instances: both the first (ratio 2), one of each (6 / 4), both the
        # second (4 / 3).
        found = st.ratio_interval([2, 4], [1, 3])
        assert found.value == pytest.approx(6 / 4)
        assert (found.low, found.high) == pytest.approx((4 / 3, 2))
        assert found.count == 2

    def test_instances_stay_in_their_group(self):
        # Alone in its group an instance is in every resample: there is nothing to vary.
        found = st.ratio_interval([2, 4], [1, 3], groups=[7, 8])
        assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))

    def test_groups_weigh_by_their_instances(self):
        a, b = np.array([1.0, 3.0, 10.0]), np.array([2.0, 2.0, 4.0])
        found = st.ratio_interval(a, b, groups=[7, 7, 8])
        assert found.value == pytest.approx(14 / 8)
        # The group of two gives sums of a between 2 and 6, the other always 10.
        assert (found.low, found.high) == pytest.approx((12 / 8, 16 / 8))

    def test_what_methods_share_cancels(self):
        error = np.random.default_rng(0).lognormal(size=50)
        found = st.ratio_interval(1.1 * error, error)
        assert (found.low, found.high) == pytest.approx((1.1, 1.1))

    def test_it_is_scipys(self):
        rng = np.random.default_rng(1)
        b = rng.lognormal(size=80)
        a = b * rng.lognormal(0.1, 0.3, size=80)
        theirs = scipy.stats.bootstrap(
            (a, b),
            lambda u, v, axis: u.mean(axis) / v.mean(axis),
            paired=True,
            vectorized=True,
            n_resamples=5000,
            method="percentile",
            random_state=2,
        ).confidence_interval
        ours = st.ratio_interval(a, b, resamples=5000)
        width = theirs.high - theirs.low
        assert abs(ours.low - theirs.low) < 0.05 * width
        assert abs(ours.high - theirs.high) < 0.05 * width

    def test_gaps_and_lengths(self):
        assert st.ratio_interval([1, NAN, 3], [1, 2, 1]).count == 2
        assert np.isnan(st.ratio_interval([], []).value)
        assert np.isnan(st.ratio_interval([1.0], [2.0]).low)
        assert st.ratio_interval([1.0, 1.0], [0.0, 0.0]).value == INF
        with pytest.raises(ConfigError, match="one length; got 2, 1 and 2"):
            st.ratio_interval([1, 2], [1])


class TestTrajectories:
    paths = pd.DataFrame([[0.9, 0.2, 0.05], [0.9, 0.4, NAN]])

    def test_the_value_after_a_number_of_steps(self):
        assert st.at_step(self.paths, 1).tolist() == [0.2, 0.4]
        assert st.at_step(self.paths, 10).tolist() == [0.05, 0.4]

    def test_basin_occupancy(self):
        assert st.basin_occupancy(self.paths).tolist() == [True, False]
        assert st.basin_occupancy([[0.095]]).tolist() == [False]  # strictly below

    def test_bundle_width_by_hand(self):
        e = np.e
        # log ratios at t = 2: -1, -3 (sd sqrt 2); at t = 3 half of the trials are left.
        width = st.bundle_width([[1, 1 / e, 0.1], [5, 5 / e**3, NAN]])
        assert width[:2] == pytest.approx([0, np.sqrt(2)])
        assert np.isnan(width[2])

    def test_coefficient_of_variation_by_hand(self):
        assert st.coefficient_of_variation([1, 3, NAN]) == pytest.approx(np.sqrt(2) / 2)
        assert np.isnan(st.coefficient_of_variation([1]))


class TestSuccess:
    limits: ClassVar = {"heat-1d": 0.20, "heat-2d": 0.10}
    rows = pd.DataFrame(
        {
            "problem": ["heat-1d", "heat-1d", "heat-2d", "heat-2d"],
            "set": ["test"] * 4,
            "method": ["d-ipg", "gn-prior", "d-ipg", "d-ipg"],
            "rmse": [0.20, 0.16, 0.11, NAN],
            "relative_residual": [0.30, 0.31, 0.1, NAN],
        }
    )

    def test_rmse_has_its_own_limit_on_heat_1d(self):
        assert st.succeeded(self.rows, "rmse", limits=self.limits).tolist() == [1, 1, 0, 0]
        assert st.succeeded(self.rows, "rmse").isna().all()  # no limit, no verdict

    def test_residual(self):
        assert st.succeeded(self.rows, "residual").tolist() == [1, 0, 1, 0]

    def test_strict_needs_an_oracle(self):
        verdict = st.succeeded(self.rows, "strict")  # limit 1.25 * 0.16 on heat-1d
        assert verdict[:2].tolist() == [1, 1]
        assert verdict[2:].isna().all()
        rough = pd.Series({("heat-2d", "test"): 0.1}).rename_axis(["problem", "set"])
        assert st.succeeded(self.rows, "strict", oracle=rough)[2:].tolist() == [1, 0]

    def test_no_oracle_at_all(self):
        assert st.succeeded(self.rows[self.rows.method == "d-ipg"], "strict").isna().all()

    def test_an_unknown_rule_names_the_nearest(self):
        with pytest.raises(ConfigError, match="Did you mean 'strict'"):
            st.succeeded(self.rows, "strikt")


def test_break_even_of_the_paper():
    assert st.break_even(1238.28, 1.01181, 0.03395) == pytest.approx(1266.33, rel=2e-5)
    assert st.break_even(100, 0.1, 0.1) == INF
    assert st.break_even(100, 0.1, 0.2) == INF
    assert np.isnan(st.break_even(100, NAN, 0.2))
