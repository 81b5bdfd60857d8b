"""What prefix caching saves on this server: the article's test and sweeps, with intervals. `python -m probes bench`."""

from probes.bench.cli import main

__all__ = ["main"]
