"""Small drawings for the page, in the colours that its style sheet has for light and dark."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable

import numpy as np
from markupsafe import Markup

from deceptron.geometry.posterior import SAMPLES, quantile
from deceptron.plot.planes import Array, colour_range, is_signed, parts, uneven
from deceptron.view.counting import Histogram

WIDTH, HEIGHT = 420.0, 180.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 8.0, 8.0, 22.0
POINTS = 16
MOST = 512  # values of a line, pixels of a side
LEVEL = 0.9


def answer(x: Array, std: Array | None, name: str) -> Markup:
    """The answer and, where they are known, its 90% intervals; fields as images beside them."""
    found = parts(x)
    spread = None if std is None else parts(std)
    if found[0][1].ndim == 1:
        bars = None if spread is None else spread[0][1]
        return _line(found[0][1], bars, f"Answer of {name}")
    scales = [("answer", found)] + ([] if spread is None else [("standard deviation", spread)])
    images = [
        _plane(plane, f"{what}{', ' + words if words else ''}", f"{what} of {name} {words}")
        for what, planes in scales
        for words, plane in planes
    ]
    return Markup('<div class="planes">{}</div>').format(Markup("").join(images))


def histogram(counted: Histogram, name: str, limit: float | None) -> Markup:
    """Bars; ``limit`` is marked where it lies within."""
    bars = counted.bars(40)
    most = max(count for *_, count in bars)

    def along(value: float) -> float:
        return math.log(value) if counted.logarithmic else value

    low, high = along(bars[0][0]), along(bars[-1][1])

    def across(value: float) -> float:
        return LEFT + (along(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    boxes = [
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            across(start),
            HEIGHT - BOTTOM - (height := count / most * (HEIGHT - TOP - BOTTOM)),
            max(0.5, across(stop) - across(start) - 1),
            height,
        )
        for start, stop, count in bars
    ]
    mark = Markup("")
    if limit is not None and bars[0][0] <= limit <= bars[-1][1]:
        mark = Markup('<line class="limit" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(
            across(limit), TOP, HEIGHT - BOTTOM
        )
    ends = _labels(f"{bars[0][0]:.3g}", f"{bars[-1][1]:.3g}", f"{most:,}", "0")
    words = f"Histogram of {name}, from {bars[0][0]:.3g} to {bars[-1][1]:.3g}, {most} rows at most"
    drawn = Markup('<g class="bars">{}</g>{}').format(Markup("").join(boxes), mark)
    return _svg(words, drawn, ends)


def _line(x: Array, std: Array | None, words: str) -> Markup:
    step = -(-len(x) // MOST)
    x, half = x[::step], None if std is None else quantile(LEVEL, SAMPLES) * std[::step]
    low, high = (x, x) if half is None else (x - half, x + half)
    if len(x) <= POINTS and half is not None and uneven(half):
        return _numbers(x, low, high, words)
    finite = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])
    if not finite.size:
        return Markup('<p class="note">This row has no finite values.</p>')
    bottom, top = float(finite.min()), float(finite.max())
    room = (top - bottom) or 1.0
    margin = 14.0 if len(x) <= POINTS else 0.0
    places = (
        np.linspace(LEFT + margin, WIDTH - RIGHT - margin, len(x)) if len(x) > 1 else [WIDTH / 2]
    )

    def up(value: float) -> float:
        return TOP + (top - value) / room * (HEIGHT - TOP - BOTTOM)

    there = [k for k in range(len(x)) if np.isfinite(x[k])]
    content = Markup("")
    whole = half is not None and bool(np.isfinite(half).all()) and len(there) == len(x)
    if len(x) <= POINTS:
        for k in there:
            if whole:
                content += Markup(
                    '<line class="bar" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>'
                ).format(places[k], up(low[k]), up(high[k]))
            content += Markup('<circle cx="{:.1f}" cy="{:.1f}" r="4"/>').format(places[k], up(x[k]))
    else:
        if whole:
            rim = [*zip(places, high, strict=True), *zip(places[::-1], low[::-1], strict=True)]
            content += Markup('<polygon points="{}"/>').format(_points(rim, up))
        line = [(places[k], x[k]) for k in there]
        content += Markup('<polyline points="{}"/>').format(_points(line, up))
    bars = ", with 90% intervals" if whole else ""
    words = f"{words}: {len(x)} values from {np.nanmin(x):.3g} to {np.nanmax(x):.3g}{bars}"
    ends = _labels("1", str(1 + (len(x) - 1) * step), f"{top:.3g}", f"{bottom:.3g}")
    return _svg(words, content, ends)


def _numbers(x: Array, low: Array, high: Array, words: str) -> Markup:
    """Where units differ no axis fits all."""
    row = Markup("<tr><th>{}</th><td>{:.5g}</td><td>{:.5g} to {:.5g}</td></tr>")
    rows = [row.format(k + 1, x[k], low[k], high[k]) for k in range(len(x))]
    head = Markup("<tr><th></th><th>answer</th><th>90% interval</th></tr>")
    table = Markup('<table aria-label="{}">{}{}</table>')
    return table.format(words, head, Markup("").join(rows))


def _plane(plane: Array, caption: str, words: str) -> Markup:
    import matplotlib
    from PIL import Image

    stride = -(-max(plane.shape) // MOST)
    plane = plane[::stride, ::stride]
    if not np.isfinite(plane).any():
        return Markup('<p class="note">{} has no finite values.</p>').format(words)
    signed = is_signed(plane)
    low, high = colour_range([plane], signed)
    colours = matplotlib.colormaps["RdBu_r" if signed else "viridis"]

    def png(values: Array) -> str:
        pixels = (255 * colours(np.clip(values, 0, 1))).astype(np.uint8)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "PNG", optimize=True)
        return base64.b64encode(content.getvalue()).decode("ascii")

    scaled = (plane - low) / ((high - low) or 1.0)
    return Markup(
        '<figure class="plane"><img alt="{words}, from {low:.3g} to {high:.3g}" '
        'src="data:image/png;base64,{image}"><div class="scale" aria-hidden="true">{low:.3g}'
        '<img alt="" src="data:image/png;base64,{ramp}">{high:.3g}</div>'
        "<figcaption>{caption}</figcaption></figure>"
    ).format(
        words=words,
        low=low,
        high=high,
        image=png(scaled),
        ramp=png(np.linspace(0, 1, 64)[None]),
        caption=caption,
    )


def _points(points: list[tuple[float, float]], up: Callable[[float], float]) -> str:
    return " ".join(f"{across:.1f},{up(value):.1f}" for across, value in points)


def _labels(first: str, last: str, top: str, bottom: str) -> Markup:
    base = HEIGHT - BOTTOM
    return Markup(
        '<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>'
        '<text x="{0}" y="{3}">{4}</text><text class="end" x="{1}" y="{3}">{5}</text>'
        '<text class="end" x="{6}" y="{7}">{8}</text><text class="end" x="{6}" y="{2}">{9}</text>'
    ).format(LEFT, WIDTH - RIGHT, base, HEIGHT - 6, first, last, LEFT - 6, TOP + 10, top, bottom)


def _svg(words: str, content: Markup, labels: Markup) -> Markup:
    return Markup('<svg role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}">{}{}</svg>').format(
        words, WIDTH, HEIGHT, content, labels
    )
