"""Scrape the engines at these ports seven times; print the median seconds and the peak MB of this process."""

import resource
import statistics
import sys
import time

from benchmarks.exporter import settings
from exporter.collector import Collector
from exporter.server import exposition

RUNS = 7

if __name__ == "__main__":
    collector = Collector(settings([f"http://127.0.0.1:{port}" for port in sys.argv[1:]]))
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        body = exposition(collector.collect())[0]
        seconds.append(time.perf_counter() - start)
        assert body.count(b"} 1.0\n") >= len(sys.argv) - 1
        assert b'"} 0.0\napc_engine_up' not in body
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(statistics.median(seconds), megabytes)
    collector.close()
