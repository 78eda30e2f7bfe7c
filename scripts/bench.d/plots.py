"""The plots, in SVG."""

import os
import statistics


def plots(results, folder):
    """All of them, into the folder."""
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
            "svg.fonttype": "none",  # text stays text, and the file small
            "svg.hashsalt": "redis-cell",  # the same figures make the same file
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
        }
    )
    # Okabe and Ito's colours, which everybody can tell apart.
    blue, orange, green, grey, dark = "#0072B2", "#D55E00", "#009E73", "#B0B0B0", "#303030"
    by_name, settings = results["contestants"], results["settings"]
    base, peer = settings["base"], settings["peer"]
    sizes = [int(size) for size in next(iter(results["growth"].values()))]
    foot = f"{results['about']['server']}; {results['about']['machine']}"

    def colour(name):
        if peer and name.startswith(f"{peer} "):
            return orange
        return blue if name.startswith("CL.") else dark if name == base else grey

    def save(figure, name):
        figure.supxlabel(foot, fontsize=8, color="#606060", x=0, ha="left")
        for kind in ("svg", "png") if "PNG" in os.environ else ("svg",):
            figure.savefig(folder / f"{name}.{kind}", metadata={"Date": None} if kind == "svg" else None, dpi=110)
        pyplot.close(figure)

    def bars(axes, key, title, unit, names=None):
        names = [n for n in names or by_name if key in by_name[n]]
        names.sort(key=lambda n: by_name[n][key], reverse=True)
        values = [by_name[n][key] for n in names]
        spread = None
        if key in results["rounds"][names[0]][0]:
            rounds = [[figures[key] for figures in results["rounds"][n]] for n in names]
            # The middle half of them.
            quartiles = [statistics.quantiles(r, n=4) if len(r) > 1 else r * 3 for r in rounds]
            spread = [[v - q[0] for v, q in zip(values, quartiles)], [q[2] - v for v, q in zip(values, quartiles)]]
        whiskers = {"ecolor": "#606060", "elinewidth": 1}
        axes.barh(names, values, color=[colour(n) for n in names], height=0.7, xerr=spread, error_kw=whiskers)
        for y, value in enumerate(values):
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            end = value + (spread[1][y] if spread else 0)
            axes.text(end + max(values) * 0.01, y, f"{value:,.0f}", va="center", fontsize=10, bbox=paper)
        axes.set_title(title)
        axes.set_xlabel(unit)
        axes.set_xlim(0, max(values) * 1.1)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(axis="y", length=0)

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(by_name) + 1))
    bars(axes, "pipelined cpu", "What one check costs the server", "ns of CPU per call, pipelined")
    axes.axvline(by_name[base]["pipelined cpu"], color=dark, linewidth=0.8, linestyle=":", zorder=0)
    axes.text(by_name[base]["pipelined cpu"], len(by_name) - 0.4, f" {base}", fontsize=9, color=dark)
    save(figure, "cost")

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 0.42 * 9 + 1))
    names = [n for n in by_name if "new key" not in n and "PTHROTTLE" not in n and n not in ("PING", "GET")]
    stored = [n for n in names if "MTHROTTLE" not in n and "limited" not in n]
    bars(left, "bytes after 10", "What one key weighs after 10 calls", "bytes of memory", stored)
    bars(right, "replicated", "What one check replicates", "bytes to each replica", names)
    save(figure, "weight")

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(by_name) + 1))
    names = sorted(by_name, key=lambda n: by_name[n]["p50"], reverse=True)
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
    axes.set_xlabel("µs to the answer, log scale")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"How long {settings['one by one'][0]} busy clients wait")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, handletextpad=0.1, columnspacing=1)
    save(figure, "latency")

    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    colours, markers = ["#808080", dark, blue, green], "vosD"
    labels = []
    for (name, figures), line, marker in zip(results["growth"].items(), colours, markers):
        values = [figures[str(size)]["cpu"] for size in sizes]
        low = [value - figures[str(size)]["low"] for size, value in zip(sizes, values)]
        high = [figures[str(size)]["high"] - value for size, value in zip(sizes, values)]
        axes.errorbar(sizes, values, yerr=[low, high], color=line, marker=marker, linewidth=2, elinewidth=1, capsize=3)
        labels.append([values[-1], name, line])
    # Labels at the lines' ends, moved apart where they would meet.
    apart, last = axes.get_ylim()[1] * 0.06, 0
    for value, name, line in sorted(labels):
        last = max(value, last + apart)
        axes.annotate(name, (sizes[-1], last), (10, 0), textcoords="offset points", va="center", color=line)
    axes.set_xscale("log")
    axes.set_xticks(sizes, ["1" if s == 1 else f"{s // 1000:,} k" if s < 10**6 else f"{s // 10**6} M" for s in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("keys, log scale: from one hot key to many cold ones")
    axes.set_ylabel("ns of CPU per call, pipelined")
    axes.set_title("What a check costs as keys grow in number")
    save(figure, "growth")
