"""A small simulated vLLM with faults on demand: `python -m demo.engine --port 9000 [--fault NAME[=VALUE]]...`.

It serves the OpenAI endpoints and `/metrics` of a vLLM that runs `demo.tiny_model`: one token per UTF-8 byte and per
special marker, the same prefix cache, and times that grow with the tokens computed. What it writes means nothing.

    GET  /demo/faults                    the faults that are on, and all that there are
    POST /demo/faults {"wedge": true}    switches on; null switches off
"""

import argparse
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import Any, Final

from demo.exposition import engine_text, process_text
from demo.faults import FAULTS, checked_faults
from demo.protocol import RefusedError, failure
from demo.rank import Rank, Settings
from demo.server import Server
from exporter.engine import Dialect, Version

RESIDENCY_FIELDS: Final = {"block_lifetime", "block_idle", "block_reuse_gap"}


class Engine:
    """The ranks behind one server, and the faults that are on. `run` serves until `close`."""

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        """Bind the address, port 0 for a free one. Raise OSError."""
        self.settings = settings
        self.faults: dict[str, Any] = {}
        self.closing = threading.Event()
        self.changed = threading.Condition()
        self._turn = 0
        self._down_for = 0.0
        self._frozen = ""
        self._start()
        self._server = Server((host, port), self)
        self.host, self.port = host, self._server.server_port

    @property
    def url(self) -> str:
        """The base URL, without /v1."""
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"  # noqa: S104

    def run(self) -> None:
        """Accept connections; after a restart, on a new socket."""
        while not self.closing.is_set():
            self._server.handle_request()
            if self._server.down.is_set():
                self._server.server_close()
                self.pause(self._down_for)
                self._server = Server((self.host, self.port), self)
        self._server.server_close()

    def close(self) -> None:
        """Let `run` and whatever waits in a request return."""
        self.closing.set()
        self.switch({"wedge": None})

    def pause(self, seconds: float) -> None:
        """Sleep, though not beyond `close`."""
        if seconds:
            self.closing.wait(seconds)

    def switch(self, values: Mapping[str, object]) -> None:
        """Set faults; None switches off. Raise ValueError, having changed nothing."""
        checked = checked_faults(values)
        if checked.get("dead"):
            self._frozen = self.metrics()
        restart = checked.pop("restart", None)
        with self.changed:
            active = self.faults | checked
            self.faults = {name: value for name, value in active.items() if value is not None}
            self.changed.notify_all()
        if restart is not None:
            self._down_for = restart
            self._start()
            self._server.down.set()
        elif self._configured() != self.ranks[0].settings:
            for rank in self.ranks:
                rank.configure(self._configured())

    def hold(self, fault: str) -> None:
        """Return once the fault is off."""
        with self.changed:
            self.changed.wait_for(lambda: fault not in self.faults)

    def chooser(self, header: str | None) -> Callable[[], Rank]:
        """Return what chooses: the rank that the header names, else the idlest. Raise RefusedError if it is unknown."""
        if not header or not re.fullmatch(r"-?\d+", header):
            return self._idlest_rank
        number, count = int(header), len(self.ranks)
        if not 0 <= number < count:
            raise RefusedError(failure(400, f"data_parallel_rank {number} is out of range [0, {count})."))
        return lambda: self.ranks[number]

    def reset_prefix_cache(self) -> bool:
        """Empty the caches; False if one of them is in use."""
        done = []
        for rank in self.ranks:
            with rank.changed:
                done.append(rank.cache.reset())
        return all(done)

    def metrics(self) -> str:
        """Return the exposition."""
        if "dead" in self.faults:
            return self._frozen
        text = process_text(self.started, dict(self.requests))
        if "no_metrics" in self.faults:
            return text
        hidden = {self.faults.get("rename", "")} | (RESIDENCY_FIELDS if "no_kv_metrics" in self.faults else set())
        with ExitStack() as locks:
            for rank in self.ranks:
                locks.enter_context(rank.changed)
                rank.refresh()
            stats = [rank.stats for rank in self.ranks]
            return text + engine_text(stats[0].configuration, stats, self.started, hidden)

    def _idlest_rank(self) -> Rank:
        self._turn += 1  # ties go round
        start = self._turn % len(self.ranks)
        return min(self.ranks[start:] + self.ranks[:start], key=lambda rank: rank.load)

    def _start(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.ranks = [Rank(self._configured(), self.pause) for _ in range(self.settings.ranks)]

    def _configured(self) -> Settings:
        return replace(
            self.settings,
            prefix_caching=self.settings.prefix_caching and "apc_off" not in self.faults,
            speculative="spec_decode" in self.faults,
            blocks=self.faults.get("blocks", self.settings.blocks),
            block_size=self.faults.get("block_size", self.settings.block_size),
        )


@contextmanager
def serving(
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    faults: Mapping[str, object] | None = None,
) -> Iterator[Engine]:
    """Serve in a thread of its own and yield the engine, whose `url` is the base URL. Raise OSError, ValueError."""
    engine = Engine(settings or Settings(), host, port)
    engine.switch(faults or {})
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.close()
        thread.join()


DIALECTS: Final = {"v1": Dialect.VLLM_V1, "v0": Dialect.VLLM_V0, "sglang": Dialect.SGLANG}
DEFAULT_VERSIONS: Final = {Dialect.VLLM_V0: (0, 8, 5)}


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.engine", description="A simulated vLLM.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="0 for a free one")
    parser.add_argument("--api-key")
    parser.add_argument("--dialect", choices=DIALECTS, default="v1")
    parser.add_argument("--version", type=_version, help="whose /metrics to imitate; 0.32.0, with v0 0.8.5")
    for name in ("model", "block_size", "blocks", "ranks", "prefill_us_per_token", "base_ms", "decode_ms"):
        default = getattr(Settings, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help="default %(default)s")
    for name in ("prefix_caching", "prompt_tokens_details"):
        parser.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_false")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]", help=", ".join(FAULTS))
    return parser


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status, 3 if that cannot start."""
    options = vars(_parser().parse_args(argv))
    options["dialect"] = DIALECTS[options["dialect"]]
    options["version"] = options["version"] or DEFAULT_VERSIONS.get(options["dialect"], Settings.version)
    settings = Settings(**{known.name: options[known.name] for known in fields(Settings) if known.name in options})
    faults = {name: value or True for name, _, value in (fault.partition("=") for fault in options["fault"])}
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with serving(settings, host=options["host"], port=options["port"], faults=faults) as engine:
            print(f"demo.engine: {settings.model} on {engine.url}, faults under /demo/faults", flush=True)
            stop.wait()
    except (OSError, ValueError) as error:
        print(f"demo.engine: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
