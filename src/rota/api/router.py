"""A router whose routes are analysed at their first request, not at the start of the daemon.

FastAPI reads the parameters of a route and builds the models of its body and of its responses when
the route is registered: 5 to 10 ms for each route, a third of the time of a start. Only the OpenAPI
description needs the models of responses, because all routes return finished responses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send


class LazyRouter(APIRouter):
    """An `APIRouter` that registers only the paths of its routes."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        def build(*, has_responses: bool) -> APIRoute:
            router = APIRouter(prefix=self.prefix, tags=self.tags, route_class=self.route_class)
            responses: dict[Any, Any] = {**self.responses, **(options["responses"] or {})}
            bare: dict[str, Any] = {**options, "response_model": None, "responses": None}
            described: dict[str, Any] = {**options, "responses": responses}
            router.add_api_route(path, endpoint, **(described if has_responses else bare))
            route = router.routes[0]
            assert isinstance(route, APIRoute)
            return route

        self.routes.append(LazyRoute(Route(self.prefix + path, endpoint), build))


class LazyRoute(BaseRoute):
    """A route that FastAPI builds when a request has its path."""

    def __init__(self, pattern: Route, build: Callable[..., APIRoute]) -> None:
        """The `pattern` knows the path only."""
        self._pattern, self._build = pattern, build

    def described(self) -> APIRoute:
        """The route with the models of its responses, for the OpenAPI description."""
        return self._build(has_responses=True)

    @cached_property
    def _route(self) -> APIRoute:
        return self._build(has_responses=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if self._pattern.matches(scope)[0] is Match.NONE:
            return Match.NONE, {}
        return self._route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle(scope, receive, send)
