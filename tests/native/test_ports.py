import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from native import ports
from native.errors import SettingsError

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:24AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 8678 1 0000 100 0 0 10 0
   1: 0100007F:24AF 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 8648 1 0000 100 0 0 10 0
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st tx rx tr when uid timeout inode
   0: 00000000000000000000000000000000:24B0 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9001 1 0 100 0 0 10 0
"""


@dataclass
class Wish:
    port: int
    setting: str = "PROMETHEUS_PORT"
    host: str = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_only_listening_sockets_are_read() -> None:
    assert ports.listeners(TABLE) == [ports.Listener(9390, 1000, 8678)]
    assert ports.listeners(TABLE6) == [ports.Listener(9392, 0, 9001)]


def test_the_message_names_holder_setting_and_remedy() -> None:
    assert ports.taken("PROMETHEUS_PORT", 9390, "grafana (pid 7)") == (
        "PROMETHEUS_PORT: port 9390 is taken by grafana (pid 7). Choose another: PROMETHEUS_PORT=9490"
    )
    assert ports.taken("X", 65_500, "a").endswith("X=65400")


def test_a_taken_port_is_told_with_the_process_that_holds_it(taken: int) -> None:
    with pytest.raises(SettingsError, match=rf"PROMETHEUS_PORT: port {taken} is taken by .+ \(pid {os.getpid()}\)"):
        ports.require_free([Wish(taken)], own=())


def test_every_taken_port_is_told(taken: int) -> None:
    with pytest.raises(SettingsError) as caught:
        ports.require_free([Wish(taken), Wish(taken, "OTHER_PORT", "0.0.0.0")], own=())
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["PROMETHEUS_PORT", "OTHER_PORT"]


def test_a_port_of_our_own_and_no_port_at_all_are_fine(taken: int) -> None:
    ports.require_free([Wish(taken), Wish(0, "")], own=[os.getpid()])


def test_a_freed_port_is_free(taken: int) -> None:
    with socket.create_connection(("127.0.0.1", taken)):
        pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ports.require_free([Wish(port)], own=())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_no_taken_port(host: str) -> None:
    with pytest.raises(SettingsError, match=f"PROMETHEUS_PORT: cannot listen on {host}:9390: "):
        ports.require_free([Wish(9390, host=host)], own=())
