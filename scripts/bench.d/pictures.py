"""The pictures on the pages: the cost of a check; what limiters and a window let through, as the module replies on a
clock that is moved."""

import contextlib
import os
import subprocess

from contestants import BASE
from places import ROOT, WORK
from servers import Server

START = 1_790_000_000 * 10**9
WIDTH, HEIGHT, TOP, BOTTOM = 860, 360, 44, 48
# Each colour stands out on a light page and on a dark one. Marks differ in form as well.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #6e7781 }
.title { font-size: 16px; font-weight: 600 }
.blue { stroke: #2f81f7; fill: #2f81f7 }
.orange { stroke: #d9730d; fill: #d9730d }
.green { stroke: #2da44e; fill: #2da44e }
path { fill: none !important; stroke-width: 2 }
.axis { stroke: #6e7781; stroke-opacity: .35; stroke-width: 1 }
text.blue, text.orange, text.green { stroke: none }
.grey { fill: #6e7781; fill-opacity: .5 }
.open { fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #a9b3be } }
"""


@contextlib.contextmanager
def on_a_clock():
    """Runs a server with the module. Yields a function that moves its clock to this many milliseconds after the start,
    and makes a call."""
    library = WORK / "clock.so"
    source = ROOT / "tests/support/clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    clock = WORK / f"clock-{os.getpid()}"
    clock.write_bytes(START.to_bytes(8, "little") + bytes(8))
    server = Server(wrapper=["env", f"LD_PRELOAD={library}", f"CLOCK={clock}"])

    def at(milliseconds, call):
        with clock.open("r+b") as hands:
            hands.write((START + milliseconds * 10**6).to_bytes(8, "little"))
        return server.client.execute_command(*call.split())

    try:
        yield at, server
    finally:
        server.stop()
        clock.unlink()


class Picture:
    """A picture in SVG. `x` and `y` are the least and the greatest value of each axis; `left`, `right` are margins."""

    def __init__(self, x, y, right, title, description, left=40):
        self.x, self.y, self.right, self.left = x, y, right, left
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            ' aria-labelledby="title desc">',
            f'<title id="title">{title}</title>\n<desc id="desc">{description}</desc>\n<style>{STYLE}</style>',
            f'<text class="title" x="8" y="22">{title}</text>',
        ]

    def place(self, x, y):
        across = self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - self.left - self.right)
        up = TOP + (self.y[1] - y) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f}", f"{up:.1f}"

    def text(self, x, y, words, kind="", anchor="start", down=4):
        x, y = self.place(x, y)
        y = f"{float(y) + down:.1f}"
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>')

    def axes(self, across, up, unit):
        for y in up:
            (left, height), (right, _) = self.place(self.x[0], y), self.place(self.x[1], y)
            self.parts.append(f'<path class="axis" d="M{left} {height}H{right}"/>')
            self.parts.append(f'<text x="{self.left - 8}" y="{float(height) + 4:.1f}" text-anchor="end">{y}</text>')
        for x in across:
            self.text(x, self.y[0], f"{x} s", anchor="middle", down=20)
        self.parts.append(f'<text x="{self.left}" y="{HEIGHT - 6}">{unit}</text>')

    def steps(self, points, kind):
        """Draws a line that stays at each value until the next point."""
        first, *others = (self.place(*point) for point in points)
        line = "M{} {}".format(*first) + "".join(f"H{x}V{y}" for x, y in others)
        self.parts.append(f'<path class="{kind}" d="{line}"/>')

    def dot(self, x, y, kind):
        x, y = self.place(x, y)
        self.parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="3.5"/>')

    def save(self, path):
        path.write_text("\n".join([*self.parts, "</svg>", ""]))


# The plot of costs compares these: the server's own commands, this module's, and scripts.
COMPARED = ["PING", BASE, "INCR + EXPIRE", "CL.THROTTLE allowed", "CL.THROTTLE limited", "CL.THROTTLE 2 quotas allowed"]
COMPARED += ["window in Lua, as INCREX has it", "GCRA in Lua"]


def costs(results, path):
    """Draws the CPU time of checks: a bar each, of this module, of another one, and of the server's own commands."""
    bars = [(name, of["cpu"]) for name, of in results["contestants"].items() if "cpu" in of]
    other = lambda name: name.startswith("redis-cell") and name.endswith("allowed")
    bars = [(name, cpu) for name, cpu in bars if name in COMPARED or other(name)]
    bars.sort(key=lambda bar: bar[1])
    about = results["about"]
    title = "CPU time of the server for one check, in ns, pipelined"
    words = "; ".join(f"{name}: {cpu:,.0f}" for name, cpu in bars)
    picture = Picture((0, bars[-1][1]), (len(bars), 0), 60, title, f"{words}.", left=240)
    for row, (name, cpu) in enumerate(bars):
        kind = "blue" if name.startswith("CL.") else "orange" if name.startswith("redis-cell") else "grey"
        (x, y), (end, _) = picture.place(0, row + 0.15), picture.place(cpu, row)
        height = (HEIGHT - TOP - BOTTOM) / len(bars) * 0.7
        width = float(end) - float(x)
        picture.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width:.1f}" height="{height:.1f}"/>')
        picture.text(-bars[-1][1] * 0.01, row + 0.5, name, anchor="end")
        picture.text(cpu + bars[-1][1] * 0.01, row + 0.5, f"{cpu:,.0f}")
    foot = f"{about['module']} on {about['server']}; {about['machine']}; {about['date']}"
    picture.parts.append(f'<text x="8" y="{HEIGHT - 14}">{foot}</text>')
    picture.save(path)


def tokens(path):
    """Draws the tokens of a limiter: 20 calls at once, a pause, and a call a second until the first minute ends."""
    calls = [0] * 20 + list(range(12_000, 60_001, 1_000))
    level, dots = [(0, 16)], []
    with on_a_clock() as (at, _):
        for moment in range(0, 92_001, 250):
            for _ in range(calls.count(moment)):
                limited, _, remaining, *_ = at(moment, "CL.THROTTLE user123 15 30 60")
                dots.append((moment / 1000, remaining, limited))
            level.append((moment / 1000, at(moment, "CL.LOOK user123 15 30 60")[2]))
    allowed = sum(not limited for _, _, limited in dots)
    empty = min(moment for moment, _, limited in dots if moment and limited)
    title = f"15 30 60: a burst of 16, then 30 a minute; {allowed} calls in the first minute"
    picture = Picture(
        (-2, 92),
        (-4, 17),
        16,
        title,
        f"The tokens of a limiter over time. {calls.count(0)} calls at once: 16 are allowed, and the tokens fall from"
        " 16 to 0; the others are limited. In 12 seconds without a call 6 tokens come back. Then a caller makes a call"
        f" each second: all are allowed until {empty:.0f} seconds, and from there every second one. After the first"
        " minute nothing is taken, and in 32 seconds all 16 tokens come back.",
    )
    picture.axes(range(0, 91, 10), (0, 4, 8, 12, 16), "tokens that remain; a dot is a call")
    picture.steps(level, "blue")
    below = {}
    for moment, remaining, limited in dots:
        below[moment] = below.get(moment, 0) + limited
        if limited:
            picture.dot(moment, -0.2 - 0.8 * below[moment], "orange open")
        else:
            picture.dot(moment, remaining, "blue")
    picture.text(2, 14, f"{calls.count(0)} calls at once: 16 allowed, {below[0]} limited")
    picture.text(14, 6.2, "a call each second")
    picture.text(77, 10, "no calls: a token comes back every 2 s", anchor="end")
    picture.dot(41, 14, "blue")
    picture.text(42, 14, "allowed", "blue")
    picture.dot(51, 14, "orange open")
    picture.text(52, 14, "limited", "orange")
    picture.save(path)


# A window's calls before and after its end: 25 a second.
BUSY = range(55_000, 65_000, 40)
LINES = [("window", "orange", "a window of 100 a minute"), ("99 100 60", "blue", "CL.THROTTLE 99 100 60")]
LINES += [("19 80 60", "green", "CL.THROTTLE 19 80 60")]


def window(path):
    """Draws what a window and two limiters let through around the window's end, a minute after its first call."""
    passed = {name: [(54, 0)] for name, *_ in LINES}
    with on_a_clock() as (at, server):
        own = b"increx" in server.client.execute_command("COMMAND LIST")
        script = server.scripts["increx.lua"]
        native = "INCREX window BYINT 1 UBOUND 100 SATURATE EX 60 ENX"
        for moment in [0, *BUSY]:
            for name, *_ in LINES:
                if name == "window":
                    reply = at(moment, native if own else f"EVALSHA {script} 1 window 1 100 60")
                    allowed = int(reply[1])
                else:
                    allowed = 1 - at(moment, f"CL.THROTTLE {name.replace(' ', '-')} {name}")[0]
                if moment:
                    passed[name].append((moment / 1000, passed[name][-1][1] + allowed))
    most = {name: line[-1][1] for name, line in passed.items()}
    picture = Picture(
        (54, 65),
        (0, 210),
        235,
        f"Around a window's end, {most['window']} calls pass in {len(BUSY) * 40 // 1000} seconds; a limiter lets"
        f" {most['99 100 60']} or {most['19 80 60']} pass",
        "The calls allowed from 55 to 65 seconds after a window began, 25 being made a second. The window allows 99"
        f" until it is full, none until it ends at 60 seconds, and then 100 more, {most['window']} in all. The limiter"
        f" of 100 at once and 100 a minute allows {most['99 100 60']}: 100, and then those that come back. The limiter"
        f" of 20 at once and 80 a minute allows {most['19 80 60']}.",
    )
    picture.axes(range(54, 65, 2), (0, 50, 100, 150, 200), "calls allowed, seconds after the window began")
    top, bottom = picture.place(60, 205), picture.place(60, 0)
    picture.parts.append(f'<path class="axis" stroke-dasharray="4 4" d="M{top[0]} {top[1]}V{bottom[1]}"/>')
    picture.text(60, 205, "the window ends", anchor="end", down=0)
    for name, colour, label in LINES:
        picture.steps(passed[name], colour)
        picture.text(65.1, most[name], f"{most[name]}: {label}", colour)
    picture.save(path)


def draw(folder):
    tokens(folder / "tokens.svg")
    window(folder / "window.svg")
