"""Exclamation: four operators in a row with five tasks each, all edges shuffle; and a sink.

Shows the shape that papers on latency tails like to measure, at an open-loop rate: a word is due every 2 ms whether
or not the words before it are done, and its latency counts from when it was due.
"""

import tailrace as tr

COUNT = 500
PER_SECOND = 500
TASKS = 5


def exclaim(word: str) -> str:
    return f"{word}!"


def main() -> None:
    topology = tr.Topology("exclamation")
    words = [f"word-{number}" for number in range(COUNT)]
    stream = topology.source("words", tr.at_rate(words, PER_SECOND), tasks=TASKS)
    for number in (1, 2, 3):
        stream = stream.map(f"exclaim{number}", exclaim, tasks=TASKS)
    out: list[str] = []
    stream.sink("out", tr.to_list(out))

    run = topology.run(workers=2)
    run.awaitTermination()
    latency = run.lastProgress["latencyMs"]["complete"]
    print(f"{len(out)} words, all with three marks: {all(word.endswith('!!!') for word in out)}")
    print(f"latency p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms, p99.9 {latency['p999']:.2f} ms")


if __name__ == "__main__":
    main()
