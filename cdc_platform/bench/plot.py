"""The benchmark's stages as a picture: a bar per format, its stages one after another, beside the raw copy."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cdc_platform.bench.figures import RAW
from cdc_platform.chain import STAGES
from cdc_platform.errors import ConfigError

KINDS = (".svg", ".png", ".pdf")


def check(file: Path) -> None:
    """Before anything is measured: whether the picture can be saved. Raises ConfigError."""
    if file.suffix not in KINDS:
        raise ConfigError("--plot", f"{file.name} is no picture", KINDS)
    if not file.absolute().parent.is_dir():
        raise ConfigError("--plot", f"there is no folder {file.absolute().parent}")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot", "needs matplotlib: pip install 'cdc-platform[dev]'")


def save(result: dict[str, Any], file: Path) -> None:
    """`stages` of run_bench's result, medians in seconds."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    stages = result["stages"]
    formats = list(dict.fromkeys(s["format"] for s in stages))
    seconds = {(s["format"], s["stage"]): s for s in stages}
    figure = Figure(figsize=(9, 1.2 + 0.8 * len(formats)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(formats))
    left = [0.0] * len(formats)
    for stage in STAGES:
        wide = [seconds[f, stage]["seconds"] if (f, stage) in seconds else 0.0 for f in formats]
        axes.barh(places, wide, 0.4, left, label=stage)
        left = [a + b for a, b in zip(left, wide, strict=True)]
    raw = [seconds[f, RAW]["seconds"] if (f, RAW) in seconds else 0.0 for f in formats]
    axes.barh([p + 0.32 for p in places], raw, 0.18, color="0.6", label=RAW)
    axes.set_yticks(list(places), formats)
    axes.invert_yaxis()
    axes.set_xlabel("seconds, medians")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    with rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(file, dpi=150)
