"""Jobs that succeed, fail and kill their process: one failure never ends the others."""

import os
import signal
import subprocess
import sys
import time

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


LONG_JOB = """
import os, sys, time
from deceptron.study.executor import LocalProcesses

def work(path):
    with open(path, "w") as file:
        print(os.getpid(), file=file)
    time.sleep(300)

if __name__ == "__main__":
    with LocalProcesses(1) as processes:
        list(processes.run(work, [sys.argv[1]]))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to see processes")
def test_a_study_that_is_killed_takes_its_processes_with_it(tmp_path):
    script, note = tmp_path / "long_job.py", tmp_path / "pid"
    script.write_text(LONG_JOB)
    study = subprocess.Popen([sys.executable, str(script), str(note)])
    try:
        _until(lambda: note.exists() and note.read_text().endswith("\n"))
    finally:
        study.send_signal(signal.SIGKILL)
        study.wait()
    worker = int(note.read_text())
    _until(lambda: not _alive(worker))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_no_workers_are_refused():
    with pytest.raises(dc.ConfigError, match="workers must be an integer >= 1; got 0"):
        LocalProcesses(0)
