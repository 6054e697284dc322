"""The page about a solved file: its numbers, its rows, what it refuses, and how much it reads."""

import tracemalloc

import numpy as np
import pytest

import deceptron as dc
from deceptron.core.status import Reason, Status
from deceptron.geometry.posterior import SAMPLES, quantile
from deceptron.view import write_page
from deceptron.view.counting import WIDTHS, Histogram, Largest
from deceptron.view.drawing import LEVEL
from deceptron.view.survey import survey
from tests.view.solved import FLAGGED, UNSOLVED, columns, write


@pytest.mark.parametrize("kind", [".zarr", ".npz", ".h5"])
def test_a_survey_counts_and_picks(kind, tmp_path):
    found = survey(write(tmp_path / f"x{kind}", columns(101)))
    assert found.rows == 101
    assert found.reasons == {Reason.DISCREPANCY: 49, Reason.SURROGATE_LIMIT: 51, Reason.NO_DATA: 1}
    assert found.statuses == {Status.CONVERGED: 49, Status.STALLED: 51, Status.NONFINITE: 1}
    numbers = {name: [row.number for row in rows] for name, rows in found.groups.items()}
    assert numbers["worst"] == list(range(100, 92, -1))
    assert numbers["flagged"] == [FLAGGED[1], FLAGGED[0]]  # the infinite one first
    assert numbers["unsolved"] == list(UNSOLVED)
    assert set(numbers["median"]) <= set(range(48, 54))
    assert len(numbers["median"]) == 4
    assert found.flagged == 2
    assert found.explained == int(columns(101)["explained"].sum())
    worst = found.groups["worst"][0]
    np.testing.assert_array_equal(worst.x, columns(101)["x"][100])
    assert worst.evaluations == 15
    assert worst.over_noise == pytest.approx(3.5)


def test_the_page_says_it_in_words_and_escapes_names(tmp_path):
    path = write(tmp_path / "x.zarr", columns(101), notes={"method": "<script>alert(1)</script>"})
    page, _ = write_page(path)
    assert page == tmp_path / "x.html"
    text = page.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert Reason.SURROGATE_LIMIT.words.replace("'", "&#39;") in text
    assert Status.STALLED.advice.split(".")[0] in text
    assert "http://" not in text
    assert "https://" not in text


def test_without_noise_trust_and_bars_the_page_says_so(tmp_path):
    data = columns(20, noise=False)
    del data["std"], data["trust"]
    page, found = write_page(write(tmp_path / "x.npz", data), tmp_path / "page.html")
    text = page.read_text()
    assert "The noise is not known" in text
    assert "the pair was not calibrated" in text
    assert [row.number for row in found.groups["worst"]][:2] == [19, 18]


@pytest.mark.parametrize("shape", [(), (3,), (600,), (1, 9, 9), (2, 9, 9), (1, 5, 6, 7)])
def test_answers_of_every_shape_are_drawn(shape, tmp_path):
    data = columns(12, shape)
    data["x"][11] = np.nan
    text = write_page(write(tmp_path / "x.zarr", data))[0].read_text()
    assert "no finite values" in text
    fields = {4: 3, 3: shape[0] if shape else 0}.get(len(shape), 0)
    assert text.count('<figure class="plane">') % max(1, fields) == 0
    assert ("<polyline" in text) == (shape == (600,))
    assert ("data:image/png" in text) == (fields > 0)


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("deceptron.view.survey.PIECE", 1000)
    path = write(tmp_path / "x.zarr", columns(40_000, (100,)))  # 16 MB of x, as much of std
    write_page(path)  # what is imported and cached is not the file's
    tracemalloc.start()
    try:
        write_page(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data.pop("reason"), "must be a result of deceptron solve; it has no reason"),
        (lambda data: data.update(reason=np.full(20, -1, np.int8)), "is not whole"),
    ],
)
def test_files_that_are_no_results_are_refused(damage, words, tmp_path):
    data = columns(20)
    damage(data)
    with pytest.raises(dc.ConfigError, match=words):
        write_page(write(tmp_path / "x.npz", data))
    assert not (tmp_path / "x.html").exists()


def test_a_page_does_not_replace_its_result(tmp_path):
    path = write(tmp_path / "x.npz", columns(20))
    before = path.read_bytes()
    with pytest.raises(dc.ConfigError, match="page must not be the result"):
        write_page(path, tmp_path / "." / "x.npz")
    assert path.read_bytes() == before


def test_quantiles_are_right_to_a_bin_and_pieces_do_not_matter():
    values = np.random.default_rng(0).lognormal(size=9973)
    values[:3] = np.nan, np.inf, 0.0
    whole, pieces, largest = Histogram(), Histogram(), Largest(5)
    whole.add(values)
    for first in range(0, len(values), 100):
        pieces.add(values[first : first + 100])
        largest.add(np.where(np.isinf(values), np.nan, values)[first : first + 100], first)
    assert (whole.counts == pieces.counts).all()
    assert whole.nonfinite == 2
    finite = values[np.isfinite(values)]
    for share in (0.05, 0.5, 0.95):
        assert whole.quantile(share) == pytest.approx(np.quantile(finite, share), rel=0.02)
    assert sum(count for *_, count in whole.bars(40)) == whole.total
    expected = np.argsort(-np.where(np.isfinite(values), values, -1))[:5]
    assert largest.rows.tolist() == expected.tolist()
    scores = Histogram(WIDTHS)
    scores.add(np.linspace(-1, 3, 401))
    assert scores.quantile(0.5) == pytest.approx(1.0, abs=0.02)


def test_numbers_of_different_units_are_a_table(tmp_path):
    made = columns(21)
    made["x"] = np.tile([0.0123, 456.0], (21, 1))
    made["std"] = np.tile([0.001, 10.0], (21, 1))
    text = write_page(write(tmp_path / "x.npz", made))[0].read_text()
    half = quantile(LEVEL, SAMPLES)
    assert f"<td>0.0123</td><td>{0.0123 - 0.001 * half:.5g} to {0.0123 + 0.001 * half:.5g}" in text
    assert f"<td>456</td><td>{456 - 10 * half:.5g} to {456 + 10 * half:.5g}" in text
