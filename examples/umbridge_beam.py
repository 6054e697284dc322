"""
A model behind a UM-Bridge server
=================================

A cantilever bends under its load, (E(s) w'')'' = 1, clamped at the left. Its stiffness E is
constant on five pieces; fifteen gauges measure the deflection. The model is a UM-Bridge server,
here started by this script on the loopback interface, with the adjoint as ``Gradient``; it might as
well be a container on a cluster. ``dc.simulators.from_umbridge`` uses what the server supports.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from functools import partial

import numpy as np
import torch
from common import compare, options, scipy_answers, show_bars, with_gaps

import deceptron as dc

NODES, PIECES = 61, 5
step = 1.0 / (NODES - 1)
s = np.linspace(0, 1, NODES)
MOMENT = 0.5 * (1 - s) ** 2  # of the load right of s
piece = np.minimum((s * PIECES).astype(int), PIECES - 1)
GAUGES = np.arange(4, NODES, 4)
# Deflection is the curvature MOMENT / E integrated twice from the clamp.
TWICE = np.tril(np.ones((NODES, NODES))) @ np.tril(np.ones((NODES, NODES)), -1) * step**2


def serve(port: int) -> None:
    """The server's side: nothing of deceptron is needed there."""
    import umbridge

    class Beam(umbridge.Model):
        def get_input_sizes(self, config=None):
            return [PIECES]

        def get_output_sizes(self, config=None):
            return [len(GAUGES)]

        def supports_evaluate(self):
            return True

        def supports_gradient(self):
            return True

        def __call__(self, parameters, config=None):
            stiffness = 0.5 + 1.5 * np.array(parameters[0])
            return [(8 * TWICE @ (MOMENT / stiffness[piece]))[GAUGES].tolist()]

        def gradient(self, out_wrt, in_wrt, parameters, sens, config=None):
            stiffness = 0.5 + 1.5 * np.array(parameters[0])
            by_node = 8 * TWICE[GAUGES].T @ np.array(sens) * -MOMENT / stiffness[piece] ** 2
            return (1.5 * np.bincount(piece, by_node, PIECES)).tolist()

    umbridge.um.web.run_app = partial(umbridge.um.web.run_app, host="127.0.0.1", print=None)
    umbridge.serve_models([Beam("beam")], port, max_workers=2)


def started() -> tuple[subprocess.Popen, str]:
    """A server process, once it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, sys.argv[0], "--serve", str(port)])
    began = time.monotonic()
    while time.monotonic() < began + 180 and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    return process, f"http://127.0.0.1:{port}"


def run(url: str) -> None:
    asked = options()
    simulator = dc.simulators.from_umbridge(url, "beam", workers=2)
    # The gauges near the clamp are better.
    noise = torch.where(torch.arange(len(GAUGES)) < 8, 0.003, 0.012)
    problem = dc.problems.define(
        "beam",
        simulate=simulator,
        sample=lambda count, generator: torch.rand(count, PIECES, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=asked.train_rows,
        val_count=asked.val_rows,
    )
    dc.problems.verify(problem, rows=16)
    pair = dc.train(problem, preset=asked.preset)

    x = problem.sample(asked.rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    y = with_gaps(y, asked)
    compare(
        f"stiffness of {PIECES} pieces, {asked.rows} fresh rows",
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
    show_bars(solution, x, [f"piece {k + 1}" for k in range(PIECES)], asked.picture)
    simulator.close()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(int(sys.argv[-1]))
    else:
        server, address = started()
        try:
            run(address)
        finally:
            server.terminate()
            server.wait()
