"""How fast rota is on a cluster of 500 nodes with 8 GPUs each, beside the cluster's own scheduler.

    python -m benchmarks.kubernetes [--nodes N] [--gang N]

The control plane is a real one, as the tests of the Kubernetes engine have it; KWOK plays the
nodes. Everything runs on this machine and is gone at the end. Prints and writes
`docs/results/kubernetes.md`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable

from benchmarks.decide import machine
from benchmarks.page import NO_VALUE, page, publish, table
from benchmarks.runs import flags
from benchmarks.scale.daemon import daemon
from benchmarks.scale.ground import NAMESPACE, Ground, ground
from benchmarks.scale.measures import Found, Size, Stand, What, memory
from benchmarks.scale.sight import Sight
from rota.engines.kubernetes.api import connect

INTRODUCTION = """\
{n_nodes:,} nodes with {gpus} GPUs each, which KWOK plays; the API server, etcd, the scheduler and
the controllers are real, on the same machine as rota's daemon and as the one who measures. Running
is what the API server tells of a pod. A job is of one GPU, and comes in batches of a thousand
through the daemon's own door. A gang that can never run asks for more GPUs in each worker than a
node has; one that has to wait asks for ten whole nodes, and the time is until its reason can be
read. KAI's figures are its own, on 500 nodes of KWOK
and a machine that we do not know; that for the fill is worked out from the rate that it gives. Its
gang is one that could not be placed: ours that can never run is refused by a check at the submit,
which is less work, so that these two do not compare. The standby has
a disk of its own, with nothing on it; it is asked to let go of a job that was held, for which
another one has to give way.
Made by `python -m benchmarks.kubernetes` on a machine with {machine}."""
CPU = """\
## Where the time goes

Seconds of CPU that each process used, from the first submit until all were running."""


def main() -> None:
    parser = flags(__doc__ or "", page="kubernetes.md")
    parser.add_argument("--nodes", type=int, default=Size().n_nodes, help="how many (%(default)s)")
    parser.add_argument("--gang", type=int, default=Size().n_gang, help="workers (%(default)s)")
    arguments = parser.parse_args()
    size = Size(n_nodes=arguments.nodes, n_gang=arguments.gang)
    with ground(f"scale-{os.getpid()}", n_nodes=size.n_nodes, gpus=size.gpus) as made:
        found = asyncio.run(_measure(made, size))
    publish(render(found, size), arguments.out)


async def _measure(made: Ground, size: Size) -> Found:
    cluster, found = connect(made.kubeconfig, namespace=NAMESPACE), Found()
    stand = Stand(made, cluster, Sight(cluster), size)
    following = asyncio.create_task(stand.sight.follow())
    try:
        await stand.stock(found)
        _tell(found, (What.LOAD, What.STOCK))
        with daemon(made) as running:
            await stand.gang(running, found)
            _tell(found, (What.GANG,))
            await stand.fill(running, found)
            _tell(found, (What.FILL,))
            await stand.takeovers(running, found)
            _tell(found, (What.TAKEOVER,))
            await stand.answers(running, found)
            memory(running, found)
            _tell(found, (What.IMPOSSIBLE, What.CROWDED, What.MEMORY))
            with daemon(made, is_standby=True) as standby:
                await stand.handover(running, found, standby=standby)
            _tell(found, (What.HANDOVER,))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await cluster.close()
    return found


def _tell(found: Found, news: Iterable[What]) -> None:
    for what in news:
        spent = " ".join(f"{name} {used:.0f}" for name, used in found.cpu.get(what, {}).items())
        print(f"{what.title}: {found.figures[what]} {spent}", file=sys.stderr)


def render(found: Found, size: Size) -> str:
    figures = found.figures
    rows = [
        (what.title, what.aim or NO_VALUE, str(figures.get(what, NO_VALUE)), what.kai or NO_VALUE)
        for what in What
    ]
    ratio = figures[What.FILL].value / figures[What.STOCK].value
    spent = (What.STOCK, What.FILL)
    names = list(dict.fromkeys(name for what in spent for name in found.cpu[what]))
    return page(
        "# How fast a cluster fills",
        INTRODUCTION.format(n_nodes=size.n_nodes, gpus=size.gpus, machine=machine()),
        table(("what", "aim", "rota", "KAI"), rows),
        f"A job for each GPU takes {ratio:.1f} times as long as a bare pod for each GPU. A job is"
        " more than its pod: an object that outlives it, and what is kept in that of its life.",
        CPU,
        table(
            ("process", *(what.title for what in spent)),
            [
                (
                    name,
                    *(
                        f"{found.cpu[what][name]:.0f}" if name in found.cpu[what] else NO_VALUE
                        for what in spent
                    ),
                )
                for name in names
            ],
        ),
    )


if __name__ == "__main__":
    main()
