"""Foreign binaries: from PATH, else unpacked from Debian's packages into one folder, without root.

Nothing is installed: no service, no user, no file outside the folder but the templates that Debian's Alertmanager
looks for at a fixed place. A tool is unpacked beside its place and then renamed into it: it is whole or absent.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from native.errors import NativeError
from native.report import Step, step
from native.settings import ROOT

FOLDER: Final = ROOT / ".tools"
SYSTEM: Final = Path("/")
TICK_SECONDS: Final = 0.5
Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """Binaries that belong together, the one that the stack runs first, and the Debian package that has them."""

    binaries: tuple[str, ...]
    package: str = ""  # none: they are on PATH, or are not to be had
    aliases: Mapping[str, str] = field(default_factory=dict)  # what that calls a binary, where it is another name
    companions: str = r"(?!)"  # pattern of the dependencies that are unpacked with it
    waste: tuple[str, ...] = ()  # folders of them that nothing here reads
    assets: tuple[tuple[str, str], ...] = ()  # flag and folder: where it finds its own files once unpacked
    remedy: str = "install what has them and put them on PATH"  # where there is no package
    launch: tuple[str, ...] = ()  # the subcommand that serves
    home: str = ""  # a file in the folder that --homepath has to name: near the binary, or in HOMES
    templates: str = ""  # folder of files that it looks for under / and no flag moves


TOOLS: Final = {
    "prometheus": Tool(
        ("prometheus", "promtool"),
        package="prometheus",
        companions=r"promtool|libjs-.*|fonts-.*",  # its pages are of these
        waste=("usr/share/doc", "usr/share/javascript/moment-timezone/data"),  # the latter has 212 MB
        assets=(("--web.local-assets", "usr/share/prometheus/web"),),
    ),
    "alertmanager": Tool(
        ("alertmanager", "amtool"),
        package="prometheus-alertmanager",
        aliases={"alertmanager": "prometheus-alertmanager"},
        waste=("usr/share/doc", "usr/share/bash-completion"),
        assets=(("--web.ui-path", "usr/share/prometheus/alertmanager/no-ui"),),
        templates="usr/share/prometheus/alertmanager",
    ),
    "grafana": Tool(
        ("grafana",),
        remedy="install it from https://grafana.com/grafana/download; the dashboards are in dashboards/out",
        launch=("server",),
        home="conf/defaults.ini",
    ),
}
PLACES: Final = ":/usr/sbin:/usr/local/sbin"  # where packages put servers, and a user's PATH may not look
HOMES: Final = (Path("/usr/share/grafana"),)


def ensure(name: str, folder: Path = FOLDER) -> dict[str, Argv]:
    """Return the beginning of each binary's argv, fetching what is missing; raises NativeError with the remedy."""
    tool = TOOLS[name]
    with step(f"find or fetch {name}") as running:
        argvs = _on_path(tool)
        if not argvs:
            argvs = _unpacked(tool, folder / name) or _fetch(tool, folder / name, running)
            _place_templates(tool, folder / name)
        running.title = f"{name} {version(argvs[0])} from {Path(argvs[0][0]).parent}"
    return dict(zip(tool.binaries, argvs, strict=True))


def version(argv: Argv) -> str:
    """Return what a program says that its version is, such as 2.42.0; empty where it does not run."""
    try:
        run = subprocess.run([argv[0], "--version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"version[ =(]+([^\s,]+)", run.stdout + run.stderr)
    return match[1] if match else "of unknown version"


def _on_path(tool: Tool) -> list[Argv]:
    found = [path for name in tool.binaries if (path := _which(name) or _which(tool.aliases.get(name, name)))]
    if len(found) < len(tool.binaries):
        return []
    return [(found[0], *tool.launch, *_home(tool, Path(found[0]))), *((path,) for path in found[1:])]


def _which(binary: str) -> str | None:
    return shutil.which(binary, path=os.environ.get("PATH", os.defpath) + PLACES)


def _home(tool: Tool, binary: Path) -> list[str]:
    """Return the flag that tells a tool where its own files are; none where it knows."""
    folders = (*binary.resolve().parents, *HOMES) if tool.home else ()
    return [f"--homepath={folder}" for folder in folders if (folder / tool.home).is_file()][:1]


def _unpacked(tool: Tool, root: Path) -> list[Argv]:
    """Return the argvs of an unpacked tool; empty where it is absent or does not run."""
    binaries = [root / "usr" / "bin" / tool.aliases.get(name, name) for name in tool.binaries]
    if not all(os.access(binary, os.X_OK) and version((str(binary),)) for binary in binaries):
        return []
    assets = tuple(f"{flag}={root / path}" for flag, path in tool.assets if (root / path).is_dir())
    return [(str(binaries[0]), *assets), *((str(binary),) for binary in binaries[1:])]


def _place_templates(tool: Tool, root: Path) -> None:
    """Copy what an unpacked tool looks for at a fixed place, if that is empty; raises NativeError with the remedy."""
    place = SYSTEM / tool.templates
    if not tool.templates or place.exists():
        return
    try:
        shutil.copytree(root / tool.templates, place, ignore=shutil.ignore_patterns("*ui*"))
    except OSError as error:
        raise NativeError(
            f"Debian's {tool.binaries[0]} reads its templates from {place}, which cannot be written "
            f"({error.strerror}): apt-get install {tool.package} as root, or run this once as root"
        ) from error
    print(
        f"\n    copied the templates of Debian's {tool.binaries[0]} to {place}, where alone it looks for them",
        flush=True,
    )


def _fetch(tool: Tool, root: Path, running: Step) -> list[Argv]:
    """Unpack the packages into `root`, in place of whatever is there."""
    if not tool.package:
        raise NativeError(f"{' and '.join(tool.binaries)} not found: {tool.remedy}")
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
