"""A real UM-Bridge server on the loopback interface: ``python -m tests.simulators.server PORT``."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import numpy as np
import umbridge

from tests.simulators import physics


class Tanh(umbridge.Model):  # type: ignore[misc]
    """Two input vectors, two output vectors; ``config`` may scale, delay or kill."""

    def __init__(self, name: str, *, derivatives: bool) -> None:
        super().__init__(name)
        self._derivatives = derivatives

    def get_input_sizes(self, config: Any = None) -> list[int]:
        return [1, 2]

    def get_output_sizes(self, config: Any = None) -> list[int]:
        return [3, 2]

    def supports_evaluate(self) -> bool:
        return True

    def supports_gradient(self) -> bool:
        return self._derivatives

    def supports_apply_jacobian(self) -> bool:
        return self._derivatives

    def __call__(self, parameters: Any, config: Any = None) -> Any:
        x = np.concatenate(parameters)
        if (config or {}).get("dies above") and x[0] > 0.9:
            os._exit(1)
        if x[0] == 5:
            raise ArithmeticError("no steady state")
        y = (config or {}).get("factor", 1.0) * physics.value(x)
        return [y[:3].tolist(), y[3:].tolist()]

    def gradient(
        self, out_wrt: int, in_wrt: int, parameters: Any, sens: Any, config: Any = None
    ) -> Any:
        w = np.zeros(5)
        w[_part(out_wrt, 3)] = sens
        return physics.vjp(np.concatenate(parameters), w)[_part(in_wrt, 1)].tolist()

    def apply_jacobian(
        self, out_wrt: int, in_wrt: int, parameters: Any, vec: Any, config: Any = None
    ) -> Any:
        v = np.zeros(3)
        v[_part(in_wrt, 1)] = vec
        return physics.jvp(np.concatenate(parameters), v)[_part(out_wrt, 3)].tolist()


def _part(which: int, middle: int) -> slice:
    return slice(middle, None) if which else slice(0, middle)


if __name__ == "__main__":
    umbridge.um.web.run_app = partial(umbridge.um.web.run_app, host="127.0.0.1", print=None)
    models = [Tanh("tanh", derivatives=True), Tanh("values", derivatives=False)]
    umbridge.serve_models(models, int(sys.argv[1]), max_workers=2)
