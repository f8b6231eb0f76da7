"""Charts as SVG: ratios (run), a dot for the median, a line for the quartiles, on a logarithmic axis; and lines over time (ring)."""
import math
from xml.sax.saxutils import escape

COLOURS = {"raw": "#333333", "qcow2": "#d55e00", "qcow2-nbd": "#e69f00", "qcow2-chain": "#cc79a7", "xfs": "#0072b2", "btrfs": "#009e73", "fio": "#999999",
           "classic": "#d55e00", "thin": "#0072b2"}
LEFT, WIDTH, LINE, TOP, RIGHT = 210, 560, 15, 46, 90


def ticks(low, high):
    steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    return [step for step in steps if low <= step <= high]


def draw(rows):
    low = min([0.5] + [row["low"] for row in rows]) / 1.1
    high = max([2] + [row["high"] for row in rows]) * 1.1

    def x(ratio):
        return LEFT + WIDTH * math.log(max(ratio, low) / low) / math.log(high / low)

    bottom, parts, y, name = TOP + LINE * (len(rows) + 0.5 * len({row["name"] for row in rows})), [], TOP, None
    for tick in ticks(low, high):
        weight = 2 if tick == 1 else 0.5
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 8}" y2="{bottom:.1f}" stroke="#bbb" stroke-width="{weight}"/>'
                     f'<text x="{x(tick):.1f}" y="{TOP - 12}" text-anchor="middle">{tick:g}</text>')
    for row in rows:
        if row["name"] != name:
            name, y = row["name"], y + LINE / 2
            parts.append(f'<text x="8" y="{y + 4:.1f}">{escape(name)}</text>')
        colour = COLOURS.get(row["peer"], "#000")
        parts.append(f'<line x1="{x(row["low"]):.1f}" x2="{x(row["high"]):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>'
                     f'<circle cx="{x(row["ratio"]):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
                     f'<text x="{LEFT + WIDTH + 8}" y="{y + 4:.1f}" fill="{colour}">{escape(row["peer"])} {row["ratio"]:.2f}</text>')
        y += LINE
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{bottom + 10:.0f}" '
            'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
            '<text x="8" y="18" font-size="13">How many times as fast as each peer Parallax is (right of 1: faster)</text>'
            + "".join(parts) + "</svg>\n")


def round_step(largest):
    """The distance of about five lines of a grid."""
    step = 10 ** math.floor(math.log10(max(largest, 1e-9) / 5))
    return next(step * factor for factor in (1, 2, 5, 10) if largest / (step * factor) <= 6)


def lines(title, across, up, curves):
    """curves: (name, [(x, y), ...]), each from 0 on."""
    width, height, left, top, colours = 640, 300, 60, 40, ["#0072b2", "#009e73", "#e69f00", "#d55e00"]
    largest = [max(point[axis] for _, points in curves for point in points) or 1 for axis in (0, 1)]
    parts = []

    def place(x, y):
        return left + width * x / largest[0], top + height * (1 - y / largest[1])

    for axis, unit in ((0, across), (1, up)):
        step = round_step(largest[axis])
        for n in range(int(largest[axis] / step) + 1):
            at, to = (place(n * step, 0), place(n * step, largest[1])) if axis == 0 else (place(0, n * step), place(largest[0], n * step))
            text = f'x="{at[0]:.1f}" y="{at[1] + 14:.1f}" text-anchor="middle"' if axis == 0 else f'x="{at[0] - 5:.1f}" y="{at[1] + 4:.1f}" text-anchor="end"'
            parts.append(f'<line x1="{at[0]:.1f}" y1="{at[1]:.1f}" x2="{to[0]:.1f}" y2="{to[1]:.1f}" stroke="#ddd"/><text {text}>{n * step:g} {unit}</text>')
    for number, (name, points) in enumerate(curves):
        path, colour = " ".join("%.1f,%.1f" % place(*point) for point in points), colours[number % len(colours)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{left + width + 12}" y="{top + 10 + 16 * number}" fill="{colour}">{escape(name)}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 300}" height="{top + height + 30}" font-family="sans-serif" '
            f'font-size="11"><rect width="100%" height="100%" fill="white"/><text x="8" y="18" font-size="13">{escape(title)}</text>'
            + "".join(parts) + "</svg>\n")
