"""Many look-ups at once: an `async def` operator calls a service that takes 20 ms to answer.

One task has up to `concurrency` calls under way. Results leave in the order in which calls finish. The service is a
small server on loopback that this example starts itself.
"""

import asyncio
import threading
import time
from functools import partial

import tailrace as tr

CALLS = 200
ANSWER_S = 0.02


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    name = (await reader.readline()).decode().strip()
    await asyncio.sleep(ANSWER_S)
    writer.write(f"HELLO {name.upper()}\n".encode())
    writer.close()


async def serve(port: list[int], started: threading.Event) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=CALLS)
    port.append(server.sockets[0].getsockname()[1])
    started.set()
    await server.serve_forever()


async def look_up(port: int, name: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{name}\n".encode())
    reply = (await reader.readline()).decode().strip()
    writer.close()
    return reply


def main() -> None:
    port: list[int] = []
    started = threading.Event()
    threading.Thread(target=lambda: asyncio.run(serve(port, started)), daemon=True).start()
    started.wait()

    topology = tr.Topology("async-look-up")
    names = topology.source("names", tr.from_iterable([f"user-{n}" for n in range(CALLS)]))
    replies: list[str] = []
    names.map("look_up", partial(look_up, port[0]), concurrency=64).sink("out", tr.to_list(replies))
    run = topology.run(workers=2)
    run.awaitRunning()
    begun = time.monotonic()
    run.awaitTermination()
    faster = time.monotonic() - begun < CALLS * ANSWER_S
    print(f"{len(replies)} replies, smallest {min(replies)}, faster than one after the other: {faster}")


if __name__ == "__main__":
    main()
