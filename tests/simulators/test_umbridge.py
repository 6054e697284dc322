"""A real UM-Bridge server, and servers that are away, late, wrong or die."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import Linearisation
from deceptron.simulators import from_umbridge
from tests.simulators.physics import in_torch, rows

pytest.importorskip("umbridge")
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def url() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.simulators.server", str(port)], cwd=ROOT
    )
    try:
        for _ in range(3600):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_real_server_gives_what_it_says_it_supports(url: str) -> None:
    simulator = from_umbridge(url, "tanh", workers=2)
    x, w = rows(4), torch.ones(4, 5, dtype=torch.float64)
    torch.testing.assert_close(simulator(x), in_torch(x))
    found, truth = Linearisation(simulator, x), Linearisation(in_torch, x)
    torch.testing.assert_close(found.vjp(w), truth.vjp(w))
    torch.testing.assert_close(found.jvp(x), truth.jvp(x))
    assert (simulator.calls.values, simulator.calls.vjps, simulator.calls.jvps) == (8, 4, 4)
    assert not from_umbridge(url, "values").differentiable
    twice = from_umbridge(url, "tanh", config={"factor": 2.0})
    torch.testing.assert_close(twice(x), 2 * in_torch(x))
    with pytest.raises(dc.ConfigError, match=r"unknown model of http.* Did you mean 'tanh'"):
        from_umbridge(url, "tan")
    with pytest.warns(RuntimeWarning, match="x must have rows of 3 numbers"):
        assert bool(simulator(torch.zeros(1, 4)).isnan().all())
    # A model that raises is one row's failure; a server that dies is that of the rows after.
    x[1, 0] = 5
    simulator.reset()
    with pytest.warns(RuntimeWarning, match="1 of 4 rows failed"):
        assert simulator(x).isnan().all(1).tolist() == [False, True, False, False]
    x[:, 0] = torch.tensor([0.1, 0.95, 0.2, 0.3])
    mortal = from_umbridge(url, "tanh", config={"dies above": True}, timeout=10)
    with pytest.warns(RuntimeWarning, match="row 1.*the server is away, or went away"):
        y = mortal(x)
    torch.testing.assert_close(y[0], in_torch(x[:1])[0])
    assert bool(y[1:].isnan().all())
    with pytest.raises(dc.SimulatorError, match="no UM-Bridge server answers at"):
        from_umbridge(url, "tanh")


class Strange(BaseHTTPRequestHandler):
    """Answers as a server should, until Evaluate: the first component says what to do then."""

    def do_GET(self) -> None:
        self._say({"protocolVersion": 1.0, "models": ["m"]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/ModelInfo":
            return self._say({"support": {"Evaluate": True}})
        if self.path in ("/InputSizes", "/OutputSizes"):
            return self._say({f"{self.path[1:7].lower().rstrip('s')}Sizes": [1]})
        kind = asked["input"][0][0]
        if kind == 1:
            time.sleep(10)
        if kind == 2:
            return self._say({"output": [[1.0, 2.0]]})
        if kind == 3:
            return self._send(b'{"output": [[1.')
        if kind == 4:
            return self._say({"output": [[1.0], [2.0]]})
        if kind == 5:
            return self._send(b"null")
        if kind == 6:
            return self._say({"error": "no memory left"})
        if kind == 7:
            return self._say({"outputs": []})
        return self._say({"output": [[kind]]})

    def _say(self, content: dict[str, Any]) -> None:
        self._send(json.dumps(content).encode())

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_late_and_damaged_answers_are_rows_that_failed() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        simulator = from_umbridge(f"http://127.0.0.1:{server.server_port}", "m", timeout=3)
        with pytest.warns(RuntimeWarning, match="7 of 9 rows failed"):
            y = simulator(torch.tensor([[0.5, 1, 2, 3, 4, 5, 6, 7, 0.25]], dtype=torch.float64).T)
        simulator.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert y[[0, -1]].flatten().tolist() == [0.5, 0.25]
    assert bool(y[1:8].isnan().all())
    for words, sentence in zip(
        (
            "Evaluate was not answered in timeout=3 s",
            "returned shape (2,); 1 numbers were announced",
            "the answer is not JSON or damaged",
            "returned 2 vectors; 1 were announced",
            "the answer is not an object of JSON; got None",
            "the model says no memory left",
            "the answer has no output; it has outputs",
        ),
        simulator.failures,
        strict=True,
    ):
        assert words in sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "127.0.0.1:4242"}, r"url=\.\.\.\) must start with http://"),
        ({"timeout": 0.0}, "timeout must lie in"),
        ({"timeout": torch.inf}, "timeout must lie in"),
        ({"workers": 0}, "workers must be an integer >= 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(dc.ConfigError, match=words):
        from_umbridge(**{"url": "http://127.0.0.1:1", "model": "m", **arguments})


@pytest.mark.parametrize("support", [None, ["Evaluate"], 3])
def test_a_server_that_does_not_say_what_it_supports(support: Any) -> None:
    class Vague(Strange):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say({"support": support})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Vague)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(dc.SimulatorError, match="no UM-Bridge server answers"):
            from_umbridge(f"http://127.0.0.1:{server.server_port}", "m", timeout=60)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_that_is_away_is_an_error_in_words() -> None:
    with pytest.raises(dc.SimulatorError, match=r"no UM-Bridge server answers .* Invalid IPv6"):
        from_umbridge("http://[::", "m")
    with pytest.raises(dc.SimulatorError, match=r"no UM-Bridge server answers .* is away"):
        from_umbridge(f"http://127.0.0.1:{free_port()}", "m")
