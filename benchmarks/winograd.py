"""The published networks of the periodic problems, trained in half the time on a CPU.

Nine tenths of that training are 3x3 convolutions with 48 channels, on which PyTorch reaches 80% of
what a core can multiply: only fewer products are faster. ``winograd.c`` does with a quarter of
them, to a relative error of 1e-6 (weight gradients: 1e-5) where PyTorch has 2e-7. It is compiled
with the machine's C compiler when asked for: ``python -m benchmarks.paper --winograd NAME``.
``python -m benchmarks.winograd`` times both and compares them with float64.

Products with Jacobians (dual numbers) and shapes that do not fit take PyTorch's convolutions.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.functional import conv2d

from benchmarks.common import publish
from deceptron.maps import ResidualCNN
from deceptron.maps.convolution import wrapped

SOURCE = Path(__file__).with_name("winograd.c")
LANES, TILE, TILES_AT_ONCE, ENTRIES = 16, 4, 8, 36
# Of F(4x4, 3x3): the weights at the points 0, 1, -1, 2, -2 and infinity.
G = torch.tensor(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)


@cache
def compiled(channels: int) -> ctypes.CDLL:
    """The routines of ``winograd.c`` for so many channels, made for this processor."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("--winograd needs a C compiler (cc, gcc or clang)")
    place = Path(tempfile.mkdtemp(prefix="winograd-")) / "winograd.so"
    flags = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", f"-DC={channels}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(place)], check=True)
    library = ctypes.CDLL(str(place))
    shutil.rmtree(place.parent)
    return library


def fits(network: ResidualCNN, x: Tensor) -> bool:
    """Whether the routines can take these rows through this network."""
    grid = x.shape[-2:]
    tiles = grid[0] * grid[1] // TILE**2
    return (
        network.padding == "circular"
        and network.dimensions == 2
        and network.channels % LANES == 0
        and isinstance(network.act, nn.LeakyReLU)
        and all(side % TILE == 0 for side in grid)
        and tiles % TILES_AT_ONCE == 0
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and forward_ad._current_level < 0
    )


class Periodic(torch.autograd.Function):
    """``LeakyReLU(w * images + bias + beside)``, images ``(B, H, W, C)``; slope 1: no activation.

    One function, because PyTorch's sums and activations take as long as these convolutions. A
    backward pass that will itself be differentiated (``J v`` of a ``Linearisation``) is PyTorch's.
    """

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None, slope: float
    ) -> Tensor:
        ctx.slope = slope
        out = _convolved(images, weight, bias, beside, slope)
        ctx.save_for_backward(images, weight, out, bias, beside)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, out, bias, beside = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Views: images may depend on beside, and that is not this function's to differentiate.
            given = [t if t is None else t.view_as(t) for t in (images, weight, bias, beside)]
            wanted = [t for t, need in zip(given, ctx.needs_input_grad, strict=False) if need]
            again = _direct(*given, ctx.slope)
            found = iter(torch.autograd.grad(again, wanted, gradient, create_graph=True))
            return *(next(found) if need else None for need in ctx.needs_input_grad[:4]), None
        gradient = gradient.contiguous()
        if ctx.slope != 1:
            # The sign of the result is that of what was activated.
            gradient = torch.ops.aten.leaky_relu_backward(gradient, out, ctx.slope, True)
        back = around = level = None
        if ctx.needs_input_grad[0]:
            turned = weight.transpose(0, 1).flip(2, 3)
            back = _convolved(gradient, turned, weight.new_zeros(len(turned)))
        if ctx.needs_input_grad[1]:
            around = _correlated(images, gradient)
        if ctx.needs_input_grad[2]:
            level = gradient.sum((0, 1, 2))
        return back, around, level, gradient if ctx.needs_input_grad[3] else None, None


def _direct(
    images: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None, slope: float
) -> Tensor:
    padded = nn.functional.pad(images.movedim(-1, 1), (1, 1, 1, 1), mode="circular")
    out = nn.functional.conv2d(padded, weight, bias).movedim(1, -1)
    return nn.functional.leaky_relu(out if beside is None else out + beside, slope)


def _convolved(
    images: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None = None, slope: float = 1.0
) -> Tensor:
    u = torch.einsum("ia,ocab,jb->ijco", G, weight, G).contiguous()
    images, out = images.contiguous(), torch.empty_like(images)
    beside = None if beside is None else beside.contiguous()
    _call("convolve", images, u, bias, beside, slope, out)
    return out


def _correlated(images: Tensor, gradient: Tensor) -> Tensor:
    channels = images.shape[-1]
    m = images.new_empty(6, 6, channels, channels)
    _call("correlate", images.contiguous(), gradient, m)
    return torch.einsum("ia,ijco,jb->ocab", G, m, G)


def _call(routine: str, images: Tensor, *others: Tensor | float | None) -> None:
    count, height, width, channels = images.shape
    work = images.new_empty(2 * ENTRIES * (height * width // TILE**2) * channels)
    sizes = [ctypes.c_int(size) for size in (count, height, width)]
    given = [_c_value(value) for value in (images, *others)]
    getattr(compiled(channels), routine)(*given, *sizes, _c_value(work))


def _c_value(value: Tensor | float | None) -> ctypes.c_void_p | ctypes.c_float:
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None if value is None else value.data_ptr())


@contextmanager
def fewer_products() -> Iterator[None]:
    """Every ``ResidualCNN`` that fits uses the routines within this block."""
    direct = ResidualCNN.forward

    def forward(self: ResidualCNN, x: Tensor) -> Tensor:
        if not fits(self, x):
            return direct(self, x)
        self.check_rows(x)
        h = self.act(_entered(self.entry, x.reshape(len(x), -1, *x.shape[-2:]).movedim(1, -1)))
        slope = self.act.negative_slope
        for first, second in zip(self.first, self.second, strict=True):
            inner = Periodic.apply(h, first.weight, first.bias, None, slope)
            h = Periodic.apply(inner, second.weight, second.bias, h, slope)
        y: Tensor = self.out_act(_left(self.exit, h).movedim(-1, 1))
        return y.reshape(len(x), *self.out_shape)

    with mock.patch.object(ResidualCNN, "forward", forward):
        yield


SHIFTS = [(1 - i, 1 - j) for i in range(3) for j in range(3)]  # of a 3x3 kernel, in its order


def _entered(convolution: nn.Conv2d, images: Tensor) -> Tensor:
    """A convolution of few channels into many: one matrix product with the nine shifted images."""
    shifted = torch.stack([images.roll(shift, (1, 2)) for shift in SHIFTS], dim=-1)
    return nn.functional.linear(shifted.flatten(3), convolution.weight.flatten(1), convolution.bias)


def _left(convolution: nn.Conv2d, images: Tensor) -> Tensor:
    """One of many channels into few: one matrix product, and its nine results are shifted."""
    weight = convolution.weight  # (out, in, 3, 3)
    parts = images @ weight.permute(1, 2, 3, 0).flatten(1)
    parts = parts.unflatten(-1, (len(SHIFTS), len(weight)))
    moved = [part.roll(s, (1, 2)) for part, s in zip(parts.unbind(3), SHIFTS, strict=True)]
    return torch.stack(moved).sum(0) + convolution.bias


def main(rows: int = 64, grid: int = 32, channels: int = 48, times: int = 10) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(rows, grid, grid, channels)
    weight = (torch.randn(channels, channels, 3, 3) / (9 * channels) ** 0.5).requires_grad_()
    bias = torch.randn(channels).requires_grad_()
    cotangent = torch.randn_like(images)

    def direct(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return conv2d(wrapped(images.movedim(-1, 1)), weight, bias).movedim(1, -1)

    def winograd(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return Periodic.apply(images, weight, bias, None, 1.0)

    def passes(way: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [value.detach().requires_grad_() for value in inputs]
        out = way(*leaves)
        return (out.detach(), *torch.autograd.grad(out, leaves, cotangent.to(out.dtype)))

    exact = passes(direct, images.double(), weight.double(), bias.double())
    lines = []
    for name, way in {"PyTorch": direct, "Winograd": winograd}.items():
        found = passes(way, images, weight, bias)
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
        began = time.process_time()
        for _ in range(times):
            passes(way, images, weight, bias)
        labels = ("result", "input_gradient", "weight_gradient", "bias_gradient")
        spent = (time.process_time() - began) / times
        lines.append({"way": name, "seconds": spent, **dict(zip(labels, errors, strict=True))})
    for line in lines:
        line["over_pytorch"] = line["seconds"] / lines[0]["seconds"]
    publish("winograd", "One convolution, both passes; relative errors against float64", lines)


if __name__ == "__main__":
    main()
