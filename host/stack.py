"""Start the stack and wait for it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from host import docker, engines, files, ports, reach
from host.services import PROFILES, SERVICES, Placed
from host.settings import Project, Settings
from native import envfile, web
from native.errors import NativeError
from native.report import Step, step

POLL_SECONDS: Final = 0.25
MOST_RESTARTS: Final = 2
ALL_PROFILES: Final = [f"--profile={profile}" for profile in PROFILES]
KEY_ENDINGS: Final = ("_KEY", "_PASSWORD", "_TOKEN", "_SECRET")


def up(settings: Settings) -> tuple[list[Placed], str]:
    """Start what does not run or changed, and wait until all is healthy.

    Returns what is healthy, and the engine's address in a container's terms. Raises SettingsError before anything is
    started, NativeError where a service that is not optional does not get healthy.
    """
    ports.require_free(settings.services, docker.containers(), settings.project.name)
    found = engines.translate(settings.environ | {"VLLM_URL": settings.values["VLLM_URL"]})
    for said, inside in found.rewritten:
        print(f"  {said} is asked for as {inside}: in a container localhost is the container itself")
    url = found.settings["VLLM_URL"]
    if not settings.values["APC_TARGETS"] and (finding := reach.foresee(url, docker.gateway())):
        print(f"  VLLM_URL: {finding.code}: {finding.text}")  # no reason to stop: the engine may come later
    password = _password(settings)
    files.write(settings.folder, settings.environ, found.files, found.keys)
    files.write_alertmanager(settings.folder, settings.environ)
    interval, extra = (settings.values[name] for name in ("APC_SCRAPE_INTERVAL", "PROMETHEUS_EXTRA_CONFIG"))
    config = files.write_prometheus(settings.folder, interval, extra)
    _tell_password(settings, password)
    environ = environment(settings, found, config)
    _stop_others(settings, environ)
    names = [place.service.name for place in settings.services] if settings.values["APC_WITHOUT"] else []
    argv = [*settings.project.options, "up", "--detach", "--remove-orphans", *names]
    with step("build, pull and create what is missing or changed") as running:
        docker.compose(argv, environ, running)
    return [place for place in settings.services if _started(settings.project.name, place)], url


def _stop_others(settings: Settings, environ: Mapping[str, str]) -> None:
    """Remove what an earlier call started and the settings no longer name; Compose leaves it running."""
    wanted = {place.service.name for place in settings.services}
    ours = {service.name for service in SERVICES}
    others = sorted({c.service for c in docker.containers(settings.project.name)} & ours - wanted)
    if others:
        argv = [*settings.project.options, *ALL_PROFILES, "rm", "--stop", "--force", *others]
        with step(f"stop {', '.join(others)}") as running:
            docker.compose(argv, environ, running)


def environment(settings: Settings, found: engines.Engines, config: Path) -> dict[str, str]:
    """Return what compose.yaml is filled in with: the settings, and no variable that is called or used as a key."""
    known = {
        name: value
        for name, value in settings.environ.items()
        if not name.endswith(KEY_ENDINGS) and name not in found.keys
    }
    values = {name: value for name, value in settings.values.items() if value}
    own = {"APC_RUN_DIR": str(settings.run), "APC_PROMETHEUS_CONFIG": str(config)}
    if settings.values["APC_IMAGE"]:
        own["APC_PULL_POLICY"] = "missing"
    return {**known, **values, **found.settings, **own, **files.marks(settings.folder)}


def down(project: Project, environ: Mapping[str, str], *, volumes: bool = False) -> None:
    """End the stack; the volumes only where it is said."""
    flags = ["--volumes"] if volumes else []
    with step("stop and remove the containers" + (" and volumes" if volumes else "")) as running:
        docker.compose([*project.options, *ALL_PROFILES, "down", "--remove-orphans", *flags], environ, running)


def _password(settings: Settings) -> str:
    """Return the password that Grafana was started with; empty where it never was."""
    path = settings.folder / "secrets" / "grafana" / envfile.PASSWORD
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _tell_password(settings: Settings, before: str) -> None:
    path, project = settings.project.env_file, settings.project.name
    if settings.new_password:
        print(f"  Grafana's user is admin, its random password is in {path}")
    elif envfile.others_may_read(path):
        print(f"  {path} may be read by others of this machine: chmod 600 {path}")
    if before not in {"", _password(settings)} and f"{project}_grafana" in docker.volumes(project):
        print(
            f"  {envfile.PASSWORD} changed, but Grafana keeps the one of its first start. To set it there too:\n"
            "    docker compose exec -T grafana grafana cli admin reset-admin-password --password-from-stdin < "
            f"{settings.folder / 'secrets' / 'grafana' / envfile.PASSWORD}"
        )


def _started(project: str, place: Placed) -> bool:
    """Wait for a service; where it is not needed and does not get healthy, say so and go on."""
    if place.service.slow:
        print(f"    {place.service.name} may take many minutes to load; `make status` shows when it is healthy")
        return True
    try:
        with step(f"start {place.service.name}") as running:
            _await_healthy(project, place, running)
            running.title = f"{place.service.name} is healthy"
    except NativeError as error:
        if not place.service.optional:
            raise
        print(f"    {error}\n    The rest works without {place.service.name}.")
        return False
    return True


def _await_healthy(project: str, place: Placed, running: Step) -> None:
    deadline = time.monotonic() + place.service.start_seconds
    name = place.service.name
    while True:
        found = next((c for c in docker.containers(project) if c.service == name), None)
        if found and found.state == "running" and (not place.health_url or web.is_healthy(place.health_url)):
            return
        if found and found.health == "healthy":  # its page wants TLS or a password, which its own check has
            return
        if found and (found.restarts >= MOST_RESTARTS or found.state in {"exited", "dead"}):
            raise NativeError(f"{name} ends by itself, exit code {found.exit_code}; its log:\n{docker.log(found.name)}")
        if time.monotonic() > deadline:
            end = docker.log(found.name) if found else "    (no container)"
            raise NativeError(f"{name} is not healthy after {place.service.start_seconds:.0f} s; its log:\n{end}")
        running.tick(f"{place.health_url} does not answer yet" if found else "no container yet")
        time.sleep(POLL_SECONDS)
