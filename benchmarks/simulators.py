"""What a simulator from elsewhere costs beside itself: overhead of each way in, per row.

``wrap`` and ``from_jax`` are compared with the bare function on the same 64 rows, in value and in
J' w; the bare side of JAX is its own compiled, mapped function. ``from_command`` is compared with
running the same program by ``subprocess`` alone, UM-Bridge with its own client. Ratios are medians
of pairs of calls, one after the other, since a shared machine only ever adds time.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import publish
from deceptron.simulators import from_command, from_jax, from_umbridge, wrap

ROWS, CELLS, STEPS = 64, 256, 200
REPEATS = 21
SLOW_ROWS, SLOW_REPEATS = 16, 5

PROGRAM = "import sys, numpy as np; np.save(sys.argv[2], np.tanh(np.load(sys.argv[1])))"


def waves(x: np.ndarray) -> np.ndarray:
    """Leapfrog steps of a nonlinear string, all rows at once."""
    before = now = x
    for _ in range(STEPS):
        pull = np.roll(now, 1, -1) - 2 * now + np.roll(now, -1, -1)
        before, now = now, 2 * now - before + 0.2 * pull - 0.01 * np.sin(now)
    return now


def waves_adjoint(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The transpose of all steps, over states that are kept on the way."""
    states, before = [x], x
    for _ in range(STEPS):
        now = states[-1]
        pull = np.roll(now, 1, -1) - 2 * now + np.roll(now, -1, -1)
        states.append(2 * now - before + 0.2 * pull - 0.01 * np.sin(now))
        before = now
    ahead, here = w, np.zeros_like(w)
    for now in reversed(states[:-1]):
        pull = np.roll(ahead, 1, -1) - 2 * ahead + np.roll(ahead, -1, -1)
        ahead, here = here + 2 * ahead + 0.2 * pull - 0.01 * np.cos(now) * ahead, -ahead
    return ahead + here


def pairs_of_calls(
    bare: Callable[[], object], wrapped: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Median seconds of the bare call and median ratio."""
    for function in (bare, wrapped):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        bare()
        middle = time.perf_counter()
        wrapped()
        times.append((middle - start, time.perf_counter() - middle))
    alone = sorted(a for a, _ in times)[repeats // 2]
    return alone, sorted(b / a for a, b in times)[repeats // 2]


def row_of(
    name: str, against: str, rows: int, found: tuple[float, float], limit: float | None = None
) -> dict[str, object]:
    alone, ratio = found
    return {
        "way_in": name,
        "against": against,
        "rows": rows,
        "bare_ms_a_row": 1e3 * alone / rows,
        "ratio": ratio,
        "target": "none" if limit is None else limit,
    }


def of_numpy() -> list[dict[str, object]]:
    simulator = wrap(waves, waves_adjoint)
    x = torch.rand(ROWS, CELLS, dtype=torch.float64)
    w = torch.rand(ROWS, CELLS, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    y = simulator(leaf)

    def pull() -> None:
        torch.autograd.grad(y, leaf, w, retain_graph=True)

    value = pairs_of_calls(lambda: waves(x.numpy()), lambda: simulator(x), REPEATS)
    vjp = pairs_of_calls(lambda: waves_adjoint(x.numpy(), w.numpy()), pull, REPEATS)
    return [
        row_of("wrap, value", "the function", ROWS, value, 1.1),
        row_of("wrap, vjp", "the adjoint", ROWS, vjp, 1.1),
    ]


def of_jax() -> list[dict[str, object]]:
    import jax
    import jax.numpy as jnp

    def string(x: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array], _: None) -> tuple[object, None]:
            before, now = state
            pull = jnp.roll(now, 1) - 2 * now + jnp.roll(now, -1)
            return (now, 2 * now - before + 0.2 * pull - 0.01 * jnp.sin(now)), None

        return jax.lax.scan(step, (x, x), length=STEPS)[0][1]

    mapped = jax.vmap(string)
    value = jax.jit(mapped)
    vjp = jax.jit(lambda a, b: jax.vjp(mapped, a)[1](b)[0])
    simulator = from_jax(string, float64=False)
    x, w = torch.rand(ROWS, CELLS), torch.rand(ROWS, CELLS)
    a, b = jnp.asarray(x.numpy()), jnp.asarray(w.numpy())
    leaf = x.clone().requires_grad_()
    y = simulator(leaf)

    def pull() -> None:
        torch.autograd.grad(y, leaf, w, retain_graph=True)

    return [
        row_of(
            "from_jax, value",
            "jit(vmap(f))",
            ROWS,
            pairs_of_calls(lambda: value(a).block_until_ready(), lambda: simulator(x), REPEATS),
            1.1,
        ),
        row_of(
            "from_jax, vjp",
            "jit(vjp)",
            ROWS,
            pairs_of_calls(lambda: vjp(a, b).block_until_ready(), pull, REPEATS),
            1.1,
        ),
    ]


def of_command() -> dict[str, object]:
    x = torch.rand(SLOW_ROWS, 8, dtype=torch.float64)
    simulator = from_command([sys.executable, "-c", PROGRAM, "{input}", "{output}"])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "x.npy", Path(folder) / "y.npy"
        np.save(source, x[0].numpy())
        command = [sys.executable, "-c", PROGRAM, source, target]

        def bare() -> None:
            for _ in range(SLOW_ROWS):
                subprocess.run(command, check=True)

        found = pairs_of_calls(bare, lambda: simulator(x), SLOW_REPEATS)
    return row_of("from_command", "subprocess.run", SLOW_ROWS, found)


def of_umbridge() -> dict[str, object]:
    import umbridge

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "tests.simulators.server", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"{url}/Info") as reply:
                json.load(reply)
                break
            time.sleep(0.05)
        client, simulator = umbridge.HTTPModel(url, "tanh"), from_umbridge(url, "tanh")
        x = torch.rand(SLOW_ROWS, 3, dtype=torch.float64)

        def bare() -> None:
            for row in x.tolist():
                client([row[:1], row[1:]])

        found = pairs_of_calls(bare, lambda: simulator(x), SLOW_REPEATS)
    finally:
        server.kill()
        server.wait()
    return row_of("from_umbridge", "umbridge.HTTPModel", SLOW_ROWS, found)


def main() -> None:
    rows = [*of_numpy(), *of_jax(), of_command(), of_umbridge()]
    publish("simulators", "time of a simulator from elsewhere over its own, one thread", rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
