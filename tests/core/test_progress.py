"""Progress in a log, a terminal and a notebook."""

import sys
from types import ModuleType, SimpleNamespace

from deceptron.core.progress import progress
from deceptron.train.watch import watchers


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr("deceptron.core.progress.LINE", 0.0)
    with progress("solving") as show:
        show(0, None, "")
        show(5, 10, "pass 3")
        show(10, 10, "")
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "solving: 0, 0 s"
    assert lines[1].startswith("solving: 5 of 10 rows (pass 3), 0 s, about 0 s left")
    assert lines[2] == "solving: 10 of 10 rows, 0 s"


def test_training_tells_one_time_that_is_left(monkeypatch, capsys):
    """That of all stages; the bar's own would be of the present stage and the time of all."""
    monkeypatch.setattr("deceptron.core.progress.LINE", 0.0)
    plan = {"forward": 4, "reverse": 4}
    with watchers(plan=plan, done=[], progress=True, tensorboard=None, callback=None) as tell:
        tell({"stage": "forward", "epoch": 1, "seconds": 10.0, "loss": 0.5})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "training: 1 of 4 epochs (1/3 forward  loss 0.5  about 1:10 left in all)"
    )
    assert line.count("left") == 1


def test_work_that_is_soon_done_is_silent_in_a_log(capsys):
    with progress("solving") as show:
        for done in range(100):
            show(done, 100, "")
    assert capsys.readouterr() == ("", "")


def test_what_was_told_of_is_told_to_the_end(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 31.0, 32.0])
    monkeypatch.setattr("deceptron.core.progress.time", SimpleNamespace(monotonic=clock.__next__))
    with progress("solving") as show:
        for done in (1, 9, 10):
            show(done, 10, "")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["solving: 9 of 10 rows, 31 s, about 3 s left", "solving: 10 of 10 rows, 32 s"]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with progress("solving") as show:
        show(5, 10, "")
    assert "5/10" in capsys.readouterr().err


def test_a_notebook_gets_one_output_that_changes(monkeypatch):
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content)

    def display(content, display_id):
        shown.append(content)
        return Handle()

    class ZMQInteractiveShell:
        pass

    fake, inner = ModuleType("IPython"), ModuleType("IPython.display")
    fake.get_ipython = ZMQInteractiveShell
    inner.HTML, inner.display = (lambda text: text), display
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    monkeypatch.setattr("deceptron.core.progress.FRAME", 0.0)
    with progress("<solving>") as show:
        show(1, 4, "")
        show(2, 4, "")
    assert len(shown) == 2
    assert '<progress value="0.5000">' in shown[1]
    assert "&lt;solving&gt;: 2 of 4 rows" in shown[1]


def test_a_solve_can_be_watched(monkeypatch, capsys):
    import torch

    import deceptron as dc

    monkeypatch.setattr("deceptron.core.progress.LINE", 0.0)
    pair = SimpleNamespace(f=lambda x: x, g=lambda y: y)
    dc.solve(pair, torch.ones(3, 2), method="gd", tolerance=0.1, progress=True)
    assert "3 of 3 rows (pass" in capsys.readouterr().err
