"""`python -m benchmarks.picture PAGE TITLE`: print one plot of a bench page as an SVG file of its own, for a README."""

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from probes.bench.plot import HEIGHT, WIDTH

STYLE: Final = "text { font: 11px system-ui, sans-serif; fill: #24292f } .grid { stroke: #8884 }"


def picture(page: str, title: str) -> str:
    """Return the plot of that title in the page's colours on white; raises ValueError where there is none."""
    found = re.search(rf"<figcaption>{re.escape(title)}</figcaption><svg ([^>]*)>(.*?)</svg>", page)
    if found is None:
        titles = "; ".join(re.findall(r"<figcaption>(.*?)</figcaption>", page))
        raise ValueError(f"no plot of that title; there are: {titles or 'none'}")
    attributes, drawn = found.groups()
    for name, colour in re.findall(r"(--\w+): (#\w+)", page):
        drawn = drawn.replace(f"var({name})", colour)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" {attributes}>'
    return f'{head}<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>{drawn}</svg>\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description="One plot of a page, as SVG.")
    parser.add_argument("page", type=Path, help="written by python -m probes bench --html")
    parser.add_argument("title", help="what stands above the plot")
    chosen = parser.parse_args()
    try:
        print(picture(chosen.page.read_text(encoding="utf-8"), chosen.title), end="")
    except (ValueError, OSError) as error:
        sys.exit(f"picture: {error}")
