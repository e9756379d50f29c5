"""What goes on in the cluster, and how it becomes facts.

Every change of a pod or a node comes through here, once. Nothing is decided, and all that is done
is what was asked for before: an end that was wished is brought about whenever its pod shows up.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota.core.events import NodeLost
from rota.core.model import JobId
from rota.engines.base import Facts, WorkerId
from rota.engines.kubernetes import facts, names
from rota.engines.kubernetes.api import NODES, PODS, Change, Cluster, Object, Scope
from rota.engines.kubernetes.births import Births, Registrar
from rota.engines.kubernetes.bodies import Body, Stage
from rota.engines.kubernetes.claims import Claims
from rota.engines.kubernetes.crew import Crew, News
from rota.engines.kubernetes.endings import ASTRAY, CARD_GONE, NODE_GONE, Ending, Trouble
from rota.engines.kubernetes.ends import Ends
from rota.engines.kubernetes.inquiries import why_unmade
from rota.engines.kubernetes.logs import Followers
from rota.engines.kubernetes.plain_pods import PlainPods
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.sharing import Cards
from rota.engines.kubernetes.stock import Stock
from rota.engines.kubernetes.vigil import Vigil, trouble_with, verdict
from rota.engines.kubernetes.watch import Reflector
from rota.tasks import Tasks

TICK_S = 1.0


class Scene:
    def __init__(self, cluster: Cluster, settings: KubernetesSettings, *, root: Path) -> None:
        self._cluster, self._settings = cluster, settings
        self.crew = Crew()
        self.tasks = Tasks()
        self.followers = Followers(cluster, root, is_over=self.crew.endings.__contains__)
        self.ends = Ends(cluster, self.crew, tasks=self.tasks, collected=self.followers.collected)
        self.stock = Stock(settings, self.crew)
        self.cards = Cards(cluster, settings, crew=self.crew)
        registrar = Registrar(self._see, self._hinder, self.give_up)
        self.births = Births(cluster, self.crew, cards=self.cards, registrar=registrar)
        self.plain = PlainPods(cluster, self.crew, see=self._see, give_up=self.give_up)
        self._vigil, self._claims = Vigil(settings), Claims()
        self._facts: Facts = lambda _: None
        self._names: dict[str, WorkerId] = {}
        self._spared: set[JobId] = set()
        self._is_watching = self._is_live = self._tells_nodes = self._is_node_news_due = False
        self._reflectors = (
            Reflector(cluster, NODES, scope=Scope(None), listener=self._node_changed),
            Reflector(cluster, PODS, scope=Scope(None), listener=self._pod_changed),
        )

    # -- life -----------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look at all there is, and follow it from there on. Nothing is told or done yet."""
        for each in self._reflectors:
            await each.sync()
        for each in self._reflectors:
            self.tasks.rely_on(each.run())
        self._is_watching = True

    async def open(self, tell: Facts) -> None:
        """From now on, all is told, and done what was asked for. What others did up to now has
        been seen by then."""
        if self._is_watching:
            for each in self._reflectors:
                await each.catch_up()
        else:
            await self.watch()
        self.crew.settle()
        self.stock.news()
        self._facts, self._is_live = tell, True
        self.tasks.rely_on(self._tick())

    async def close(self) -> None:
        await self.tasks.close()
        await self.followers.close()

    def adopt(self) -> tuple[WorkerId, ...]:
        """Tell of everything that is there. From now on, of changed nodes as well."""
        self._tells_nodes = True
        for worker, body in list(self.crew.bodies.items()):
            if ending := self.crew.endings.get(worker):
                self.tell_end(worker, ending)
                self._let_go(body)
            elif worker in self.crew.started:
                self._facts(facts.found(worker))
                self.followers.follow(body)
            else:
                self._claims.wait_for(worker, now=asyncio.get_running_loop().time())
        return tuple(body.worker for body in self.crew.alive())

    # -- what was asked for ---------------------------------------------------------------------

    def resume(self, worker: WorkerId) -> None:
        """Report the point of life that a worker is at; bring about the end that it is to have."""
        self._claims.claim(worker)
        if ending := self.crew.endings.get(worker):
            self.tell_end(worker, ending)
        elif worker in self.crew.started:
            self._tell_started(worker)

    def end(self, worker: WorkerId, ending: Ending) -> None:
        """What was asked for is known to the crew already; `ending` is for one that has no pod."""
        self._claims.claim(worker)
        if known := self.crew.endings.get(worker):
            self.tell_end(worker, known)
        elif body := self.crew.bodies.get(worker):
            self.ends.end(body)
        else:
            self._hinder(worker, None)
            self.tell_end(worker, self.crew.end_unborn(worker, ending))
        self.births.notice(worker)

    def give_up(self, worker: WorkerId, verdict: Ending) -> None:
        """It cannot be: its pod goes, and the verdict is told when it is gone."""
        if worker not in self.crew.endings:
            self.crew.judge(worker, verdict)
            self.end(worker, verdict)

    def spare(self, job_ids: frozenset[JobId]) -> None:
        """Their pods are somebody else's from now on: they take room, and are left alone."""
        self._spared |= job_ids
        for body in self.crew.disown(job_ids):
            self._names.pop(body.name, None)
            self._vigil.see(body.worker, None, now=0.0)
            self.stock.see_spared(body, self._cluster.namespace)
        self._tell_nodes()

    # -- what happens ---------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        if pod["metadata"].get("namespace") != self._cluster.namespace:
            self._foreign_changed(change)
        elif change.type == "DELETED":
            self._pod_gone(change)
        elif names.is_placeholder(pod):
            self._orphan(self.cards.see(pod))
        else:
            self._see(pod)

    def _see(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        worker = self._names.get(name) or names.worker_of(pod)
        is_spared = worker is None or worker.job_id in self._spared
        if worker is None or is_spared or (news := self.crew.see(pod, worker)) is None:
            self._foreign_changed(Change("MODIFIED", pod))
            return
        self._names[name] = worker
        self._tell_news(worker, news)
        self.births.notice(worker)

    def _tell_news(self, worker: WorkerId, news: News) -> None:
        body = news.body
        self._hinder(worker, trouble_with(body, news.trouble))
        if not self._is_live:
            return
        if news.has_started:
            self._tell_started(worker)
        if body.stage is Stage.RUNNING or (news.ending and worker in self.crew.started):
            self.followers.follow(body)
        if news.ending is not None:
            self._ended(body, news.ending)
        if body.stage is Stage.OVER:
            self._let_go(body)
        elif body.is_astray:
            self.give_up(worker, ASTRAY)
        elif worker in self.crew.endings or self.crew.is_to_end(worker):
            # A pod that shows up after its end was told, or asked for, never runs.
            self.ends.end(body)

    def _hinder(self, worker: WorkerId, trouble: Trouble | None) -> None:
        self._vigil.see(worker, trouble, now=asyncio.get_running_loop().time())

    def _let_go(self, body: Body) -> None:
        """The pod is the record of its end for a while, unless it keeps others from its place."""
        if body.is_in_the_way:
            self.ends.let_go([body.worker])
        else:
            self.ends.let_go_later(body, after_s=self._settings.keep_finished_s)

    def _pod_gone(self, change: Change) -> None:
        meta = change.object["metadata"]
        worker = self._names.pop(meta["name"], None)
        if worker is None:
            self._orphan(self.cards.vanish(change.object))
            self._foreign_changed(change)
            return
        self._hinder(worker, None)
        self.followers.give_up(worker)
        body = self.crew.bodies.get(worker)
        ending = self.crew.vanish(worker, meta["uid"])
        if not self._is_live:
            self.crew.forget((worker.job_id, worker.attempt))
        elif body is not None and ending is not None:
            self._ended(body, ending)
        self.births.notice(worker)

    def _ended(self, body: Body, ending: Ending) -> None:
        worker = body.worker
        self._claims.claim(worker)
        is_failure = ending.code > 0 and not self.crew.wish(worker).is_stopped
        if is_failure and self.followers.is_following(worker):
            # Whoever asks why it failed reads its output.
            self.tasks.spawn(self._tell_end_with_output(worker, ending), job=worker.job_id)
        else:
            self.tell_end(worker, ending)
        self.stock.look_again(body.node or body.planned)
        self.look_at_nodes()
        self._leave_cards()

    def _orphan(self, sharers: list[WorkerId]) -> None:
        for worker in sharers if self._is_live else ():
            self.give_up(worker, CARD_GONE)

    def _leave_cards(self) -> None:
        for card in self.cards.left():
            self.tasks.spawn(self.cards.let_go(card), pod=card.name)

    # -- nodes ----------------------------------------------------------------------------------

    def _node_changed(self, change: Change) -> None:
        self.stock.see_node(change)
        self.look_at_nodes()

    def _foreign_changed(self, change: Change) -> None:
        self.stock.see_foreign(change)
        self.look_at_nodes()

    def look_at_nodes(self) -> None:
        """Soon: many changes come at once."""
        if self._is_live and not self._is_node_news_due:
            self._is_node_news_due = True
            self.tasks.rely_on_soon(self._tell_nodes)

    def _tell_nodes(self) -> None:
        self._is_node_news_due = False
        for event in self.stock.news():
            if self._tells_nodes:
                self._facts(event)
            if isinstance(event, NodeLost):
                self._bury(event.node_id)

    def _bury(self, node: str) -> None:
        for body in self.crew.alive_on(node):
            self.crew.judge(body.worker, NODE_GONE)
            self.ends.tear_out(body)

    # -- time -----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = asyncio.get_running_loop().time()
            for worker, words in {**self._vigil.untold(now), **self.cards.untold()}.items():
                self._facts(facts.hindered(worker, words))
            for worker, ending in self._vigil.verdicts(now).items():
                self.give_up(worker, ending)
            for worker in self._vigil.unclear(now):
                self.tasks.spawn(self._inquire(worker), job=worker.job_id)
            for worker in self._claims.overdue(now):
                self._facts(facts.found(worker))
            self.ends.let_go_due()
            self._orphan(self.cards.robbed())
            self.cards.look_again()
            self._leave_cards()
            self.stock.look_at_the_clock()
            self.look_at_nodes()

    async def _inquire(self, worker: WorkerId) -> None:
        body = self.crew.bodies.get(worker)
        trouble = await why_unmade(self._cluster, body.uid) if body is not None else None
        body = self.crew.bodies.get(worker)
        if trouble is not None and body is not None and body.stage is Stage.WAITING:
            self.give_up(worker, verdict(trouble))

    # -- facts ----------------------------------------------------------------------------------

    def _tell_started(self, worker: WorkerId) -> None:
        is_found = self._claims.claim(worker)
        self._facts(facts.found(worker) if is_found else facts.started(worker))

    async def _tell_end_with_output(self, worker: WorkerId, ending: Ending) -> None:
        await self.followers.finished(worker)
        self.tell_end(worker, ending)

    def tell_end(self, worker: WorkerId, ending: Ending) -> None:
        self._facts(facts.ended(worker, ending))
