"""Jobs that succeed, fail and kill their process: one failure never ends the others."""

import os

import pytest

import deceptron as dc
from deceptron.study.executor import InProcess, LocalProcesses


def work(job: int) -> None:
    if job == 1:
        raise ValueError("one is\nnot welcome")
    if job == 2:
        os._exit(3)


def test_in_process_a_failure_is_a_sentence():
    finished = list(InProcess().run(work, [0, 1, 4]))
    assert [(entry.job, entry.failure is None) for entry in finished] == [
        (0, True),
        (1, False),
        (4, True),
    ]
    assert finished[1].failure == "ValueError: one is\nnot welcome"


def test_a_process_that_dies_costs_one_job():
    with LocalProcesses(1) as processes:
        finished = {entry.job: entry.failure for entry in processes.run(work, [0, 1, 2, 5])}
        again = [entry.failure for entry in processes.run(work, [6])]
    assert finished == {
        0: None,
        1: "ValueError: one is\nnot welcome",
        2: "its process died with exit code 3",
        5: None,
    }
    assert again == [None]


def test_no_workers_are_refused():
    with pytest.raises(dc.ConfigError, match="workers must be an integer >= 1; got 0"):
        LocalProcesses(0)
