"""One thread per test process, and draws that can be changed: ``pytest --other-draws 3``.

Pytest-xdist runs two processes on two cores. With ``--other-draws`` every seed that a test gives to
a ``torch.Generator`` or to ``torch.manual_seed`` is another one; a test that passes for one draw
and fails for the next has too thin a margin. Seeds that the library draws from stay as they are,
and so do those of a test marked ``fixed_draws``, which compares draws across processes. What a test
draws without a seed does not depend on the tests before it.
"""

import os
import sys

import pytest
import torch

torch.set_num_threads(int(os.environ.get("DECEPTRON_TEST_THREADS", "1")))

PRIME = 1_000_003
ROOT = os.path.dirname(os.path.abspath(__file__))
FOLDERS = tuple(os.path.join(ROOT, *place, "") for place in (["tests"], ["paper", "tests"]))

plain_manual_seed = torch.manual_seed
plain_generator = torch.Generator
shift = 0


def shifted(seed: int) -> int:
    asked_by_a_test = sys._getframe(2).f_code.co_filename.startswith(FOLDERS)
    return seed + shift if asked_by_a_test else seed


class AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    """What was made before the seeds were shifted is a generator, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, plain_generator)


class Generator(torch.Generator, metaclass=AnyGenerator):
    def manual_seed(self, seed: int) -> torch.Generator:
        return super().manual_seed(shifted(seed))


def manual_seed(seed: int) -> torch.Generator:
    return plain_manual_seed(shifted(seed))


def set_shift(config: pytest.Config, *, fixed: bool) -> None:
    global shift
    shift = 0 if fixed else PRIME * config.getoption("--other-draws")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--other-draws", type=int, default=0, help="shift the seeds that tests use")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--other-draws"):
        set_shift(config, fixed=False)
        torch.Generator = Generator  # type: ignore[misc]
        torch.manual_seed = manual_seed  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    set_shift(item.config, fixed=item.get_closest_marker("fixed_draws") is not None)
    plain_manual_seed(shift)
