"""What comes of three clients' samples: lines beside the socket's, and the engine's account."""

from benchmarks.beside import OURS, SOCKET, VLLM, account, lines, sample
from benchmarks.ttft import COLD, WARM
from probes.bench.counters import Mean, Window
from probes.bench.servers import Sample

SECONDS = {SOCKET: 0.100, OURS: 0.101, VLLM: 0.110}
CACHED = {COLD: 0, WARM: 960}


def requests(client: str, slower: float = 0.0) -> list[Sample]:
    """Return two requests of each kind in six rounds, each round slower than the one before."""
    return [
        sample(
            (client, kind, place, number),
            SECONDS[client] + slower + 0.01 * number,
            1000,
            None if client == VLLM else CACHED[kind],
        )
        for number in range(6)
        for kind in (COLD, WARM)
        for place in (1, 2)
    ]


def test_lines_are_beside_the_socket_s() -> None:
    found = lines([one for client in SECONDS for one in requests(client)])
    assert [(one.client, one.kind) for one in found[:3]] == [(SOCKET, COLD), (OURS, COLD), (VLLM, COLD)]
    socket, bench, vllm = found[3:]
    assert (socket.requests, socket.prompt_tokens, socket.cached_tokens) == (12, [1000], [960])
    assert vllm.cached_tokens == []
    assert socket.difference is None
    assert bench.difference
    assert vllm.difference
    told = (bench.difference.value, bench.difference.low, bench.difference.high)
    assert [round(seconds or 0, 6) for seconds in told] == [0.001, 0.001, 0.001]  # what moved both rounds is not in it
    assert round(vllm.difference.value, 6) == 0.01
    assert all(one.within_bound for one in found)  # the bound is the bench's alone


def test_the_bench_s_bound() -> None:
    samples = requests(SOCKET) + requests(VLLM)
    for slower, within in ((0.002, True), (0.004, False)):  # 3 % of 125 ms, one of them used up
        found = lines(samples + requests(OURS, slower))
        assert found[1].within_bound == within


def test_the_engine_s_account() -> None:
    samples = [one for client in SECONDS for one in requests(client)]
    window = Window(VLLM, "", "hitting", 24, 24_000, None, 24, 24_000, 11_520, ttft=Mean(0.13, 24))
    found = account(window, samples)
    assert found.hit_tokens == (12 * 960, 11_520)
    assert found.requests == (24, 24)
    assert round(found.mean_ttft[0], 6) == 0.135
    assert found.agrees
    assert account(Window(f"{OURS}, {SOCKET}", "", "hitting", 0, 0, None, 48, 48_000, 23_039), samples).agrees is False
