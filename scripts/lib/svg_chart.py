"""A line chart as SVG: straight lines, points, whiskers from least to greatest, and crosses where
there is nothing to show but a failure. No library, no script, no style sheet."""

import dataclasses
import html
import math

WIDTH, HEIGHT = 860, 500
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 84, 64
COLOURS = ("#0b6e99", "#c2491d", "#5b7f2b", "#7b4fa3", "#8a6d1f", "#5f6368")
INK, FAINT = "#222222", "#dddddd"


@dataclasses.dataclass
class Series:
    name: str
    points: list                  # (x, y, least, greatest)
    failures: tuple = ()          # (x, what happened): a cross on the x axis
    is_bound: bool = False        # dashed and grey, without points


def tick_step(greatest, count):
    """The round number (1, 2 or 5 times a power of ten) that makes about `count` steps."""
    rough = greatest / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough)


def line_chart(title, x_label, y_label, series):
    """x and y are linear from 0; raises ValueError when no series has a point."""
    points = [point for one in series for point in one.points]
    if not points:
        raise ValueError("nothing was measured, so there is nothing to draw")
    xs = [point[0] for point in points] + [x for one in series for x, _ in one.failures]
    scale = _Scale(max(xs) * 1.04, max(point[3] for point in points) * 1.08)
    body = [_text(LEFT, 26, title, size=17, weight="bold")]
    body += _axes(scale, x_label, y_label) + _legend(series)
    for index, one in enumerate(series):
        body += _draw(scale, one, _colour(series, index))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) +
            "\n</svg>\n")


class _Scale:
    def __init__(self, x_max, y_max):
        self.x_max, self.y_max = x_max, y_max

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.y_max


def _colour(series, index):
    if series[index].is_bound:
        return "#888888"
    return COLOURS[sum(not one.is_bound for one in series[:index]) % len(COLOURS)]


def _text(x, y, text, size=13, anchor="start", weight="normal", rotate=False):
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if rotate else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{INK}"{turn}>{html.escape(text)}</text>')


def _line(x1, y1, x2, y2, colour, width=1.0, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{dashes}/>')


def _steps(greatest, count):
    step = tick_step(greatest, count)
    return [step * i for i in range(int(greatest / step) + 1)]


def _axes(scale, x_label, y_label):
    floor = scale.y(0)
    out = []
    for value in _steps(scale.y_max, 6):
        out.append(_line(LEFT, scale.y(value), WIDTH - RIGHT, scale.y(value), FAINT))
        out.append(_text(LEFT - 8, scale.y(value) + 4, f"{value:g}", anchor="end"))
    for value in _steps(scale.x_max, 8):
        out.append(_line(scale.x(value), floor, scale.x(value), floor + 5, INK))
        out.append(_text(scale.x(value), floor + 20, f"{value:g}", anchor="middle"))
    out.append(_line(LEFT, floor, WIDTH - RIGHT, floor, INK))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, x_label, anchor="middle"))
    out.append(_text(20, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", rotate=True))
    return out


def _legend(series):
    out, x = [], LEFT
    for index, one in enumerate(series):
        colour = _colour(series, index)
        out.append(_line(x, 52, x + 26, 52, colour, 2.5, "6 4" if one.is_bound else ""))
        out.append(_text(x + 32, 56, one.name))
        x += 32 + 7.5 * len(one.name) + 26
    return out


def _draw(scale, one, colour):
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y, _, _ in sorted(one.points))
    dash = ' stroke-dasharray="6 4"' if one.is_bound else ""
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    if one.is_bound:
        return out
    for x, y, least, greatest in one.points:
        out.append(_line(scale.x(x), scale.y(least), scale.x(x), scale.y(greatest), colour, 1.5))
        out.append(f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="4" fill="{colour}">'
                   f"<title>{html.escape(one.name)}: {y:.3g} at {x:g}</title></circle>")
    for x, what in one.failures:
        left, top = scale.x(x), scale.y(0)
        out.append(f'<g stroke="{colour}" stroke-width="2.5"><title>{html.escape(one.name)}: '
                   f"{html.escape(what)} at {x:g}</title>"
                   f'<path d="M{left - 5:.1f} {top - 5:.1f} l10 10 m0 -10 l-10 10"/></g>')
    return out
