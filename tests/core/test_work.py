"""Jobs that succeed, fail and kill their process: one failure never ends the others."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import deceptron as dc
from deceptron.core.processes import LocalProcesses
from deceptron.core.work import Engine, InProcess, engine, seed_of, succeed


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


def test_a_job_that_kills_its_process_again_and_again_costs_itself_alone():
    with LocalProcesses(1) as processes:
        finished = {entry.job: entry.failure for entry in processes.run(work, [0, 1, 2, 5])}
        again = [entry.failure for entry in processes.run(work, [6])]
    assert finished == {
        0: None,
        1: "ValueError: one is\nnot welcome",
        2: "its worker was lost 5 times: its process died with exit code 3",
        5: None,
    }
    assert again == [None]


def kills_or_waits(job: int) -> None:
    if job == 2:
        os._exit(3)
    time.sleep(0.3)


def test_the_company_of_a_job_that_kills_is_done_and_not_blamed():
    with LocalProcesses(2) as processes:
        finished = {entry.job: entry.failure for entry in processes.run(kills_or_waits, range(6))}
    assert sorted(finished) == list(range(6))
    assert [job for job, failure in finished.items() if failure is not None] == [2]


UNGUARDED = """
import deceptron as dc
from deceptron.core.work import engine
from tests.core.test_work import draw

try:
    with engine("local", workers=1) as processes:
        list(processes.run(draw, [("nowhere", 0)]))
except dc.ConfigError as error:
    print(error)
"""


def test_a_script_whose_work_is_not_below_main_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    found = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert "workers=1: its process died with exit code 1 as it started, 5 times" in found.stdout
    assert "must begin below `if __name__ == '__main__':`" in found.stdout


def dies_once(job: tuple[str, int]) -> None:
    """The first attempt at each job is killed before it has written anything."""
    folder, number = job
    tried, done = Path(folder) / f"tried-{number}", Path(folder) / f"done-{number}"
    if not tried.exists():
        tried.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    assert not done.exists()
    done.write_text(f"{torch.get_num_threads()} {torch.rand(1).item()}")


@pytest.mark.fixed_draws
def test_a_job_whose_process_is_killed_is_done_again(tmp_path):
    jobs = [(str(tmp_path), number) for number in range(3)]
    with engine("local", workers=2) as processes:
        assert sorted(succeed(processes.run(dies_once, jobs))) == jobs
    for job in jobs:
        torch.manual_seed(seed_of(job))
        assert (tmp_path / f"done-{job[1]}").read_text() == f"1 {torch.rand(1).item()}"


def draw(job: tuple[str, int]) -> None:
    (Path(job[0]) / str(job[1])).write_text(f"{torch.get_num_threads()} {torch.rand(1).item()}")


class Submits:
    """What submitit's executors are like: no futures that one could wait for."""

    class Job:
        def __init__(self, value):
            self._value = value

        def done(self):
            return True

        def result(self):
            return self._value

    def submit(self, function, *arguments, **settings):
        return self.Job(function(*arguments, **settings))


@pytest.mark.fixed_draws
@pytest.mark.parametrize(
    "make", [lambda: None, lambda: ThreadPoolExecutor(1), Submits], ids=["here", "pool", "submitit"]
)
def test_what_a_job_draws_depends_on_the_job_alone(tmp_path, make):
    jobs = [(str(tmp_path), number) for number in range(3)]
    before = torch.get_rng_state()
    executor = make()
    with engine(executor) as crew:
        assert isinstance(crew, Engine)
        assert sorted(succeed(crew.run(draw, jobs[::-1]))) == jobs
    if isinstance(executor, ThreadPoolExecutor):
        executor.shutdown()
    assert torch.equal(torch.get_rng_state(), before)
    for job in jobs:
        torch.manual_seed(seed_of(job))
        assert (tmp_path / str(job[1])).read_text() == f"1 {torch.rand(1).item()}"


def draw_twice(job):
    """With time for another thread in between."""
    folder, number = job
    first = torch.rand(1).item()
    time.sleep(0.01)
    (Path(folder) / str(number)).write_text(f"{first} {torch.rand(1).item()}")


@pytest.mark.fixed_draws
def test_threads_of_one_process_draw_what_their_jobs_draw(tmp_path):
    jobs = [(str(tmp_path), number) for number in range(8)]
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with ThreadPoolExecutor(4) as pool, engine(pool) as crew:
        assert sorted(succeed(crew.run(draw_twice, jobs))) == jobs
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    for job in jobs:
        torch.manual_seed(seed_of(job))
        expected = f"{torch.rand(1).item()} {torch.rand(1).item()}"
        assert (tmp_path / str(job[1])).read_text() == expected


def test_a_pool_that_breaks_fails_its_jobs_and_hangs_nowhere(tmp_path):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool, engine(pool) as crew:
        failures = [entry.failure for entry in crew.run(work, [2, 5])]
    assert len(failures) == 2
    assert all("the executor" in str(failure) for failure in failures)


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def complain(job: int) -> None:
    raise Stubborn("words", job) if job else dc.ShapeError("y must be flat")


def test_errors_come_back_from_other_processes():
    with engine("local", workers=1) as processes:
        first, second = processes.run(complain, [0, 1])
    assert isinstance(first.error, dc.ShapeError)
    assert str(first.error) == "y must be flat"
    assert second.failure == "tests.core.test_work.Stubborn: words"


def test_mistakes_about_engines_are_named():
    with pytest.raises(dc.ConfigError, match=r"unknown engine 'rai'\. Did you mean 'ray'"):
        engine("rai")
    with pytest.raises(dc.ConfigError, match="is for the engine 'ray'; got 'local'"):
        engine("local", address="127.0.0.1:6379")
    with pytest.raises(dc.ConfigError, match="workers=2 is for an engine by name"):
        engine(None, workers=2)
    with pytest.raises(dc.ConfigError, match="executor must be 'local', 'ray', or have submit"):
        engine(3)
    with (
        engine("local", workers=1) as processes,
        pytest.raises(dc.ConfigError, match="must be picklable: give functions that a module"),
    ):
        list(processes.run(lambda job: None, [1]))


LONG_JOB = """
import os, sys, time
from deceptron.core.processes import LocalProcesses

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
