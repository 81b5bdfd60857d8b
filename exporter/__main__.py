"""Command line of the exporter."""

import argparse
import gc
import logging
import os
import sys
from contextlib import closing
from pathlib import Path

from exporter.checks import ConfigError, listing
from exporter.collector import Collector
from exporter.config import SETTINGS, Settings, load
from exporter.metrics import families
from exporter.read import read
from exporter.scrape import Scrape, ScrapeError
from exporter.server import address, application, cannot_listen, exposition, run_until_stopped, serve

log = logging.getLogger("exporter")
FINE, WRONG_SETTINGS, COULD_NOT_RUN = 0, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code: 0 fine, 2 wrong call or settings, 3 could not run."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.check and args.from_file:
        parser.error("--check reads the settings and --from-file a saved text: give one of them")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if args.from_file:
        return _from_file(args.from_file)
    try:
        settings = load(os.environ)
    except ConfigError as error:
        error.tell()
        return WRONG_SETTINGS
    if args.check:
        _print_settings(settings)
        return FINE
    if args.once:
        with closing(Collector(settings)) as collector:
            _print(collector.scrape())
        return FINE
    return _serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exporter",
        description="Serve the prefix-cache figures of vLLM or SGLang engines to Prometheus.",
        epilog="settings, from the environment:\n" + listing(SETTINGS) + "\n\nexit codes: 0 fine, "
        "2 the call or the settings are wrong, 3 could not run\n\nexample:\n"
        "  VLLM_URL=http://localhost:8000 python -m exporter --once",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--once", action="store_true", help="print the exposition once and exit, also when the engine is down"
    )
    what.add_argument("--check", action="store_true", help="check the settings, name every fault, and exit")
    parser.add_argument(
        "--from-file",
        metavar="F",
        help="read a saved /metrics text ('-' = standard input) in place of an engine; implies --once",
    )
    return parser


def _from_file(path: str) -> int:
    try:
        body = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        print(f"--from-file: {path} cannot be read: {error.strerror}", file=sys.stderr)
        return COULD_NOT_RUN
    try:
        scrape = Scrape("file", 0.0, read(body))
    except ScrapeError as error:
        scrape = Scrape("file", 0.0, error=error)
    _print([scrape])
    return FINE


def _print(scrapes: list[Scrape]) -> None:
    sys.stdout.write(exposition(families(scrapes))[0].decode())
    for scrape in scrapes:
        if scrape.error:
            print(f"target {scrape.target}: {scrape.error}", file=sys.stderr)


def _print_settings(settings: Settings) -> None:
    where = address(settings.host, settings.port)
    print(f"The settings are fine. Listening on {where}, {settings.timeout:g} s for an engine.")
    for target in settings.targets:
        print(f"  {target.name}: {target.metrics_url}{' with a key' if target.metrics_key else ''}")


def _serve(settings: Settings) -> int:
    collector = Collector(settings)
    try:
        server = serve(settings.host, settings.port, application(collector.collect))
    except OSError as error:
        print(cannot_listen(error, settings.host, settings.port, "APC_EXPORTER", 9491), file=sys.stderr)
        return COULD_NOT_RUN
    gc.freeze()  # what lives as long as the process need not be looked at in each scrape
    where = address(settings.host, server.server_port)
    log.info("serving http://%s/metrics for %d target(s)", where, len(settings.targets))
    run_until_stopped(server)
    collector.close()
    return FINE


if __name__ == "__main__":
    sys.exit(main())
