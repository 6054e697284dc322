"""A large batch stays small in memory."""

import subprocess
import sys

import deceptron as dc

PROGRAM = """
import resource, torch
import deceptron as dc
torch.manual_seed(0)
class Pair:
    f = staticmethod(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LeakyReLU(0.1)))
    g = staticmethod(torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.LeakyReLU(0.1), torch.nn.Linear(128, 64)))
y = torch.randn(10_000, 64)
torch.set_num_threads(1)
for method, steps in (("d-ipg", 120), ("l-bfgs", 10), (dc.methods.published("lm"), 2)):
    solution = dc.solve(Pair(), y, method=method, max_iterations=steps, bounds=(0.0, 1.0))
    assert solution.x.shape == (10_000, 64)
    solution.history
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_ten_thousand_rows_stay_under_two_gib():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    peak_kib = int(run.stdout)
    assert peak_kib < 2 * 1024**2


def test_rows_whose_gradient_nobody_asks_for_keep_no_graph():
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    taped = []

    def forward(x):
        taped.append(len(x) if x.requires_grad else 0)
        return problem.simulate(x)

    y = problem.dataset(seed=7).test.y[:100]
    dc.solve(pair, y, forward=forward, max_iterations=0)
    assert max(taped) == 1  # one row shows that the simulator has derivatives
