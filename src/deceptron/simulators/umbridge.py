"""Models behind an HTTP server that speaks UM-Bridge as a simulator.

The protocol, version 1.0: ``/Info`` lists models, ``/ModelInfo`` what one supports, ``/InputSizes``
and ``/OutputSizes`` the lengths of its vectors, which are here laid end to end; ``/Evaluate``,
``/Gradient`` (J' w of one output and one input vector) and ``/ApplyJacobian`` (J v of one) compute.
The client that UM-Bridge publishes waits for ever, so the requests are made here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from deceptron.core.checks import check_count, check_range
from deceptron.core.errors import ConfigError, SimulatorError, unknown_name
from deceptron.simulators.engines import LONGEST, Array, Threads
from deceptron.simulators.simulator import Simulator

PROTOCOL = 1.0
LOCAL = ("localhost", "127.0.0.1", "::1")


def from_umbridge(
    url: str,
    model: str,
    *,
    config: dict[str, Any] | None = None,
    workers: int = 1,
    timeout: float = 60.0,
    accuracy: float = 1e-14,
    scale: float = 1.0,
) -> Simulator:
    """A simulator from a model on a UM-Bridge server, with the derivatives that the server has.

    A server that cannot be reached now is an error. Later, a request that fails, is late or returns
    the wrong length is that row's failure, with the reason in ``failures``.

    Args:
        url: of the server, for example ``http://127.0.0.1:4242``.
        model: its name there.
        config: passed to the model with every request.
        workers: requests at a time; a server may answer them one by one nevertheless.
        timeout: seconds to wait for an answer.
        accuracy: as in ``wrap``, for a model without ApplyJacobian.
        scale: as in ``wrap``, likewise.
    """
    check_count("workers", workers)
    check_range("timeout", timeout, low=0.0, high=LONGEST, open_low=True)
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"from_umbridge(url=...) must start with http:// or https://; got {url!r}"
        )
    server = _Server(url.rstrip("/"), timeout)
    support: dict[str, bool]
    try:
        info = server.ask("Info")
        if float(info["protocolVersion"]) != PROTOCOL:
            raise SimulatorError(
                f"{url} speaks version {info['protocolVersion']} of UM-Bridge; this is {PROTOCOL}"
            )
        if model not in info["models"]:
            raise unknown_name(f"model of {url}", model, info["models"])
        support = dict(server.ask("ModelInfo", name=model)["support"])
        common = {"name": model, "config": config or {}}
        inputs, outputs = (
            tuple(map(int, server.ask(f"{side.capitalize()}Sizes", **common)[f"{side}Sizes"]))
            for side in ("input", "output")
        )
    except (Unanswered, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise SimulatorError(f"no UM-Bridge server answers at {url}: {error}") from error
    if not support.get("Evaluate", False):
        raise SimulatorError(f"{model!r} of {url} does not support Evaluate")
    remote = _Model(server, common, inputs, outputs)
    return Simulator(
        f"from_umbridge({model})",
        Threads(workers),
        value=remote.value,
        vjp=remote.vjp if support.get("Gradient", False) else None,
        jvp=remote.jvp if support.get("ApplyJacobian", False) else None,
        accuracy=accuracy,
        scale=scale,
        y_shape=(sum(outputs),),
    )


@dataclass(frozen=True)
class _Model:
    """One row through the server."""

    server: _Server
    common: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def value(self, x: Array) -> Array:
        found = self._ask("Evaluate", input=self._split(x))
        if len(found) != len(self.outputs):
            raise Unanswered(f"returned {len(found)} vectors; {len(self.outputs)} were announced")
        return np.concatenate(
            [_vector(part, size) for part, size in zip(found, self.outputs, strict=True)]
        )

    def vjp(self, x: Array, w: Array) -> Array:
        parts = [part.tolist() for part in np.split(w, np.cumsum(self.outputs)[:-1])]
        given = self._split(x)

        def block(i: int, o: int) -> Any:
            return self._ask("Gradient", outWrt=o, inWrt=i, input=given, sens=parts[o])

        return _product(block, self.inputs, len(parts))

    def jvp(self, x: Array, v: Array) -> Array:
        parts, given = self._split(v), self._split(x)

        def block(o: int, i: int) -> Any:
            return self._ask("ApplyJacobian", outWrt=o, inWrt=i, input=given, vec=parts[i])

        return _product(block, self.outputs, len(parts))

    def _split(self, x: Array) -> list[list[float]]:
        if x.shape != (sum(self.inputs),):
            raise Unanswered(
                f"x must have rows of {sum(self.inputs)} numbers, as the model says; "
                f"got shape {x.shape}"
            )
        return [part.tolist() for part in np.split(x, np.cumsum(self.inputs)[:-1])]

    def _ask(self, what: str, **content: Any) -> Any:
        found = self.server.ask(what, **self.common, **content)
        if "output" not in found:
            raise Unanswered(f"{what}: the answer has no output; it has {', '.join(found)}")
        return found["output"]


class Unanswered(RuntimeError):
    """A request that came to nothing, in words."""


@dataclass
class _Server:
    """Requests with a time limit, over connections that each thread keeps open."""

    url: str
    timeout: float
    _local: Any = field(default_factory=threading.local, repr=False)

    def ask(self, what: str, **content: Any) -> Any:
        requests = _requests()
        session = self._session()
        try:
            if content:
                reply = session.post(f"{self.url}/{what}", json=content, timeout=self.timeout)
            else:
                reply = session.get(f"{self.url}/{what}", timeout=self.timeout)
            found = reply.json()
        except requests.Timeout:
            raise Unanswered(f"{what} was not answered in timeout={self.timeout:g} s") from None
        except requests.ConnectionError:
            raise Unanswered(f"{what}: the server is away, or went away") from None
        except (requests.RequestException, ValueError) as error:
            raise Unanswered(f"{what}: the answer is not JSON or damaged ({error})") from None
        if not isinstance(found, dict):
            raise Unanswered(f"{what}: the answer is not an object of JSON; got {found!r:.99}")
        if "error" in found:
            said = found["error"]
            known = isinstance(said, dict) and {"type", "message"} <= said.keys()
            words = f"{said['type']}: {said['message']}" if known else said
            raise Unanswered(f"{what}: the model says {words}")
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "timeout": self.timeout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _local=threading.local())

    def _session(self) -> Any:
        if not hasattr(self._local, "session"):
            session = _requests().Session()
            # What is on this machine is not behind a proxy, whatever the environment says.
            session.trust_env = urlsplit(self.url).hostname not in LOCAL
            self._local.session = session
        return self._local.session


def _product(block: Callable[[int, int], Any], sizes: tuple[int, ...], parts: int) -> Array:
    """Vectors of these sizes end to end, each the sum of as many products with blocks of J."""
    return np.concatenate(
        [
            sum((_vector(block(k, part), size) for part in range(parts)), np.zeros(size))
            for k, size in enumerate(sizes)
        ]
    )


def _vector(values: Any, size: int) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (size,):
        raise Unanswered(f"returned shape {found.shape}; {size} numbers were announced")
    return found


def _requests() -> Any:
    try:
        import requests
    except ImportError:
        raise ConfigError(
            "from_umbridge needs the extra: pip install 'deceptron[umbridge]'"
        ) from None
    return requests
