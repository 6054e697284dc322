"""NumPy functions, with or without an adjoint, as a simulator."""

from __future__ import annotations

from deceptron.core.checks import check_count, check_flags
from deceptron.core.errors import ConfigError
from deceptron.simulators.engines import Engine, Function, Inline, Processes, check_picklable
from deceptron.simulators.simulator import Simulator


def wrap(
    value: Function,
    vjp: Function | None = None,
    jvp: Function | None = None,
    batched: bool = True,
    workers: int = 1,
    *,
    accuracy: float = 1e-14,
    scale: float = 1.0,
) -> Simulator:
    """A simulator from functions of float64 NumPy arrays.

    Each function gets copies, which it may write to. A row that raises, or returns NaN or another
    shape than its neighbours, is NaN; if a batch raises, its rows are tried one by one.

    Args:
        value: ``x -> y``, all rows at once, or with ``batched=False`` one.
        vjp: ``(x, w) -> J(x)' w``, the adjoint: w is like y, the result like x.
        jvp: ``(x, v) -> J(x) v``, the tangent: v is like x, the result like y. With a vjp alone it
            is replaced by a central difference of values, two for each product. With a jvp alone,
            J' takes one jvp for each component of x. With neither there are no derivatives, and the
            solver uses values only.
        batched: whether the functions take ``(B, *x)``, or one row ``(*x,)``.
        workers: processes that share the rows. The functions must then be importable or picklable,
            and a script must do its work below ``if __name__ == "__main__":``.
        accuracy: relative accuracy of the values; chooses the step of differences. Say 1e-7 for a
            program in single precision, or the tolerance of an iterative one.
        scale: typical size of the components of x, if that is far below 1; for differences too.
    """
    for argument, function in (("value", value), ("vjp", vjp), ("jvp", jvp)):
        if not callable(function) and (function is not None or argument == "value"):
            kind = type(function).__name__
            raise ConfigError(f"wrap({argument}=...) must be a function of arrays; got {kind}")
    check_count("workers", workers)
    check_flags(batched=batched)
    engine: Engine = Inline(batched=batched)
    if workers > 1:
        check_picklable(value=value, vjp=vjp, jvp=jvp)
        engine = Processes(workers, batched=batched)
    name = getattr(value, "__name__", type(value).__name__)
    return Simulator(
        f"wrap({name})",
        engine,
        value=value,
        vjp=vjp,
        jvp=jvp,
        accuracy=accuracy,
        scale=scale,
        advice=". Functions of one row need batched=False" if batched else "",
    )
