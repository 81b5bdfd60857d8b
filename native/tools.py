"""Foreign binaries: from PATH, else unpacked from Debian's packages into one folder, without root.

Nothing is installed: no service, no user, no file outside the folder. A tool is unpacked beside its place and then
renamed into it, so that a tool is either whole or absent.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from native.errors import NativeError
from native.report import Step, step
from native.settings import ROOT

FOLDER: Final = ROOT / ".tools"
TICK_SECONDS: Final = 0.5
Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """Binaries that belong together, the one that the stack runs first, and the Debian package that has them."""

    binaries: tuple[str, ...]
    package: str = ""  # none: they are on PATH, or are not to be had
    companions: str = ""  # pattern of the dependencies that are unpacked with it
    waste: tuple[str, ...] = ()  # folders of them that nothing here reads
    assets: tuple[tuple[str, str], ...] = ()  # flag and folder: where it finds its own files once unpacked


TOOLS: Final = {
    "prometheus": Tool(
        ("prometheus", "promtool"),
        package="prometheus",
        companions=r"promtool|libjs-.*|fonts-.*",  # its pages are of these
        waste=("usr/share/doc", "usr/share/javascript/moment-timezone/data"),  # the latter has 212 MB
        assets=(("--web.local-assets", "usr/share/prometheus/web"),),
    )
}


def ensure(name: str, folder: Path = FOLDER) -> dict[str, Argv]:
    """Return the beginning of each binary's argv, fetching what is missing; raises NativeError with the remedy."""
    tool = TOOLS[name]
    with step(f"find or fetch {name}") as running:
        argvs = _on_path(tool) or _unpacked(tool, folder / name) or _fetch(tool, folder / name, running)
        running.title = f"{name} {_version(argvs[0])} from {Path(argvs[0][0]).parent}"
    return dict(zip(tool.binaries, argvs, strict=True))


def _on_path(tool: Tool) -> list[Argv]:
    found = [path for binary in tool.binaries if (path := shutil.which(binary))]
    return [(path,) for path in found] if len(found) == len(tool.binaries) else []


def _unpacked(tool: Tool, root: Path) -> list[Argv]:
    """Return the argvs of an unpacked tool; empty where it is absent or does not run."""
    binaries = [root / "usr" / "bin" / binary for binary in tool.binaries]
    if not all(os.access(binary, os.X_OK) and _version((str(binary),)) for binary in binaries):
        return []
    assets = tuple(f"{flag}={root / path}" for flag, path in tool.assets if (root / path).is_dir())
    return [(str(binaries[0]), *assets), *((str(binary),) for binary in binaries[1:])]


def _version(argv: Argv) -> str:
    try:
        run = subprocess.run([argv[0], "--version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"version (\S+)", run.stdout + run.stderr)
    return match[1] if match else "of unknown version"


def _fetch(tool: Tool, root: Path, running: Step) -> list[Argv]:
    """Unpack the packages into `root`, in place of whatever is there."""
    if not tool.package:
        raise NativeError(f"{' and '.join(tool.binaries)} not found: install what has them and put them on PATH")
    for command in ("apt-get", "apt-cache", "dpkg"):
        if not shutil.which(command):
            raise NativeError(
                f"{tool.package} is not on PATH, and {command}, which would fetch it, is neither: "
                f"install {tool.package} and put {' and '.join(tool.binaries)} on PATH"
            )
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if argvs := _unpacked(tool, root):  # another call was first
            return argvs
        with tempfile.TemporaryDirectory(prefix="new-", dir=root.parent, ignore_cleanup_errors=True) as temporary:
            debs, new = Path(temporary) / "debs", Path(temporary) / "root"
            debs.mkdir()
            _with_lists(lambda: _download(tool, debs, running))
            for deb in sorted(debs.glob("*.deb")):
                _run(["dpkg", "-x", str(deb), str(new)], running)
            for waste in tool.waste:
                shutil.rmtree(new / waste, ignore_errors=True)
            shutil.rmtree(root, ignore_errors=True)
            new.rename(root)
    argvs = _unpacked(tool, root)
    if not argvs:
        raise NativeError(
            f"Debian's package {tool.package} was unpacked into {root}, but {' and '.join(tool.binaries)} do not "
            f"run from there: install {tool.package} by hand and put them on PATH"
        )
    return argvs


def _download(tool: Tool, folder: Path, running: Step) -> None:
    listing = _run(["apt-cache", "depends", "--recurse", "--important", tool.package], running)
    wanted = [name for name in listing.split("\n") if re.fullmatch(tool.companions, name)]
    sandbox = ["-o", "APT::Sandbox::User=root"] if _is_root() else []  # else it warns that _apt cannot write here
    _run(["apt-get", "download", *sandbox, tool.package, *wanted], running, folder)


def _with_lists(download: Callable[[], None]) -> None:
    """Download; where that fails, refresh apt's package lists and try once more."""
    try:
        download()
    except NativeError as error:
        interactive = sys.stdin.isatty()
        sudo = [] if _is_root() else ["sudo"] if interactive else ["sudo", "--non-interactive"]
        update = [*sudo, "apt-get", "update"]
        print(f"\n    {error}\n    apt's package lists are missing or old: this needs `{' '.join(update)}`", flush=True)
        agreed = not interactive or input("    Run it now? [Y/n] ").strip().lower() in {"", "y", "yes"}
        if not agreed or not shutil.which(update[0]) or subprocess.run(update, check=False).returncode:  # noqa: S603
            raise NativeError(
                "Debian's packages cannot be fetched: run `apt-get update` as root, then this again"
            ) from error
        download()


def _run(argv: list[str], running: Step, folder: Path = ROOT) -> str:
    """Run a command in a folder and return its output; raises NativeError with the last of what it said."""
    environment = os.environ | {"LC_ALL": "C"}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603
        while process.poll() is None:
            running.tick(" ".join(argv[:2]))
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK_SECONDS)
        said.seek(0)
        output = said.read()
    if process.returncode:
        last = "\n".join(output.strip().splitlines()[-3:])
        raise NativeError(f"`{' '.join(argv[:2])}` failed: {last}")
    return output


def _is_root() -> bool:
    return os.geteuid() == 0
