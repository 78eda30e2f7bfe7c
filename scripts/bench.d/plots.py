"""The plots, in SVG."""

import os

from contestants import BASE
from figures import middle_half

# The first plot compares these: the server's own commands, this module's, and scripts.
FIRST = ["PING", BASE, "INCR + EXPIRE", "CL.THROTTLE allowed", "CL.THROTTLE limited", "CL.THROTTLE 2 quotas allowed"]
FIRST += ["GCRA in Lua", "sliding window in Lua, sorted set"]


def plots(results, folder):
    """Writes all plots into the folder."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "font.family": "sans-serif",
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 13,
            "svg.fonttype": "none",  # keeps text as text, and the file small
            "svg.hashsalt": "redis-cell",  # makes the same file from the same figures
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
        }
    )
    # Okabe and Ito's colours, which colour-blind readers can tell apart.
    blue, orange, green, grey, dark = "#0072B2", "#D55E00", "#009E73", "#B0B0B0", "#303030"
    by_name, settings = results["contestants"], results["settings"]
    base, peer = settings["base"], settings["peer"]
    sizes = [int(size) for size in next(iter(results["growth"].values()))]
    about = results["about"]
    foot = f"{about['module']} on {about['server']}; {about['machine']}; {about['date']}"

    def colour(name):
        if peer and name.startswith(f"{peer} "):
            return orange
        return blue if name.startswith("CL.") else "#707070" if name == base else grey

    def whisker(values, halves):
        """Returns the lengths of the whisker below and above the median."""
        return [[v - low for v, (low, _) in zip(values, halves)], [high - v for v, (_, high) in zip(values, halves)]]

    def save(figure, name, *explained):
        figure.supxlabel("\n".join([*explained, foot]), fontsize=8, color="#606060", x=0, ha="left")
        for kind in ("svg", "png") if "PNG" in os.environ else ("svg",):
            figure.savefig(folder / f"{name}.{kind}", metadata={"Date": None} if kind == "svg" else None, dpi=110)
        pyplot.close(figure)

    def bars(axes, key, title, unit, names=None):
        names = [n for n in names or by_name if key in by_name[n]]
        names.sort(key=lambda n: by_name[n][key], reverse=True)
        values = [by_name[n][key] for n in names]
        spread = None
        if key in results["rounds"][BASE][0]:
            halves = [middle_half([figures[key] for figures in results["rounds"][n]]) for n in names]
            spread = whisker(values, halves)
        whiskers = {"ecolor": "black", "elinewidth": 1, "capsize": 2}
        axes.barh(names, values, color=[colour(n) for n in names], height=0.7, xerr=spread, error_kw=whiskers)
        # Leave room for the longest whisker, and for the number to its right.
        axes.set_xlim(0, max(map(sum, zip(values, spread[1])) if spread else values) * 1.12)
        for y, value in enumerate(values):
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            end = value + (spread[1][y] if spread else 0)
            axes.text(end + axes.get_xlim()[1] * 0.01, y, f"{value:,.0f}", va="center", fontsize=10, bbox=paper)
        axes.set_title(title)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(axis="y", length=0)

    timed = [n for n in by_name if "pipelined cpu" in by_name[n]]
    whiskers = f"A whisker is the middle half of {settings['rounds']} rounds, the bar their median."

    first = [n for n in timed if n in FIRST or (peer and n == f"{peer} allowed")]
    figure, axes = pyplot.subplots(figsize=(9, 0.36 * len(first) + 1.2))
    bars(axes, "pipelined cpu", "CPU time of the server for one check", "ns of CPU per call, pipelined", first)
    axes.axvline(by_name[base]["pipelined cpu"], color=dark, linewidth=0.8, linestyle=":", zorder=0)
    save(figure, "cost", whiskers)

    names = [n for n in timed if "key" not in n and "second" not in n and n not in ("PING", "GET")]
    stored = [n for n in by_name if "bytes after 3" in by_name[n] and "MTHROTTLE" not in n and "limited" not in n]
    stored = [n for n in stored if not n.startswith(("CL.P", "CL.C", "CL.TA"))]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 0.42 * 9 + 1))
    bars(left, "bytes after 3", "Memory of one key after 3 calls", "bytes of memory", stored)
    bars(right, "replicated", "Replication traffic of one check", "bytes to each replica", names)
    save(figure, "weight")

    figure, axes = pyplot.subplots(figsize=(9, 0.36 * len(timed) + 1.2))
    names = sorted(timed, key=lambda n: by_name[n]["p50"], reverse=True)
    for y, name in enumerate(names):
        figures = by_name[name]
        axes.plot([figures["p50"], figures["p99.9"]], [y, y], color="#D0D0D0", linewidth=3, zorder=1)
    for key, marker, label in (("p50", "o", "median"), ("p99", "s", "99 %"), ("p99.9", "D", "99.9 %")):
        values = [by_name[n][key] for n in names]
        axes.scatter(values, range(len(names)), marker=marker, s=45, c=[colour(n) for n in names], zorder=2)
        axes.scatter([], [], marker=marker, s=45, c="#404040", label=label)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    least, most = min(by_name[n]["p50"] for n in names), max(by_name[n]["p99.9"] for n in names)
    ticks = [100, 200, 500, 1_000, 2_000, 5_000]
    # A far slower or faster machine needs further ticks.
    ticks = sorted({*ticks, *(10**power for power in range(7) if least / 10 < 10**power < most)})
    axes.set_xticks(ticks)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(min(least * 0.9, 100 * 0.95), max(most * 1.1, 5_000 * 1.05))
    axes.grid(axis="x", color="#F0F0F0", zorder=0)
    axes.set_xlabel("µs to the answer, log scale")
    axes.set_title(f"Latency of one check, with {settings['one by one'][0]} busy clients")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, handletextpad=0.1, columnspacing=1)
    save(figure, "latency", f"Medians of {settings['rounds']} rounds.")

    figure, axes = pyplot.subplots(figsize=(9, 4.8))
    colours, markers = ["#808080", dark, blue, green], "vosD"
    labels = []
    for number, ((name, figures), line, marker) in enumerate(zip(results["growth"].items(), colours, markers)):
        values = [figures[str(size)]["cpu"] for size in sizes]
        halves = [figures[str(size)]["middle half"] for size in sizes]
        # Draw the points side by side, so that no whisker hides another.
        places = [size * 1.12 ** (number - 1.5) for size in sizes]
        yerr = whisker(values, halves)
        axes.errorbar(places, values, yerr=yerr, color=line, marker=marker, linewidth=1.5, elinewidth=1.5, capsize=4)
        labels.append([values[-1], name, line])
    # Write a label at the end of each line, and move labels apart that would overlap.
    apart, last = axes.get_ylim()[1] * 0.06, 0
    for value, name, line in sorted(labels):
        last = max(value, last + apart)
        axes.annotate(name, (sizes[-1], last), (24, 0), textcoords="offset points", va="center", color=line)
    axes.set_xscale("log")
    axes.set_xticks(sizes, ["1" if s == 1 else f"{s // 1000:,} k" if s < 10**6 else f"{s // 10**6} M" for s in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("keys, log scale: from one hot key to many cold ones")
    axes.set_ylabel("ns of CPU per call, pipelined")
    axes.set_title("CPU time of the server for one check, by the number of keys")
    save(figure, "growth", f"A whisker is the middle half of {settings['growth rounds']} rounds.")
