"""A chart of ratios (run), as SVG: a dot for the median, a line for the quartiles, on a logarithmic axis."""
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
