"""
A compiled program
==================

``burgers.c`` solves the viscous Burgers equation: it reads the amplitudes of six sines from one
``.npy`` file and writes the steepened wave to another. ``dc.simulators.from_command`` runs it once
a row, with a time limit, in a folder of its own. The initial wave is wanted from the final one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from common import compare, options, scipy_answers, show_bars, with_gaps

import deceptron as dc

SINES = 6

if __name__ == "__main__":
    asked = options()
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("skipped: this example needs a C compiler, and there is no `cc` here")
    folder = tempfile.TemporaryDirectory()
    program = Path(folder.name) / "burgers"
    source = Path(sys.argv[0]).with_name("burgers.c")
    subprocess.run([compiler, "-O2", "-o", program, source, "-lm"], check=True)

    simulator = dc.simulators.from_command([program, "{input}", "{output}"], workers=2, timeout=10)
    # The second half of the ring is seen through fog.
    noise = torch.tensor([0.02, 0.06]).repeat_interleave(16)
    problem = dc.problems.define(
        "burgers",
        simulate=simulator,
        sample=lambda count, generator: torch.rand(count, SINES, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=asked.train_rows,
        val_count=asked.val_rows,
    )
    dc.problems.verify(problem, rows=8)
    pair = dc.train(problem, preset=asked.preset)

    x = problem.sample(asked.rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    y = with_gaps(y, asked)
    compare(
        f"initial wave of {SINES} sines, {asked.rows} fresh rows",
        x,
        {
            "one-shot network": lambda: dc.solve(pair, y, method="one-shot", noise_std=noise),
            "dc.solve": lambda: dc.solve(pair, y, forward=problem.simulate, noise_std=noise),
            "SciPy least_squares": lambda: scipy_answers(
                simulator, y, noise, problem.prior, (0.0, 1.0)
            ),
        },
        simulator,
    )
    solution = dc.solve(pair, y, forward=problem.simulate, noise_std=noise)
    show_bars(solution, x, [f"sine {k + 1}" for k in range(SINES)], asked.picture)
    simulator.close()
    folder.cleanup()
