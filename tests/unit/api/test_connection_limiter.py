"""Connections are shared fairly between their holders."""

from rota.api.connection_limiter import ConnectionLimiter


class Line:
    def __init__(self) -> None:
        self.is_open = True

    def hang_up(self) -> None:
        self.is_open = False


def opened(limiter: ConnectionLimiter, holder: str, n: int, *, busy: bool = False) -> list[Line]:
    lines = [Line() for _ in range(n)]
    for line in lines:
        limiter.add(line, holder)
        if busy:
            limiter.mark_busy(line)
    return lines


def n_open(lines: list[Line]) -> int:
    return sum(line.is_open for line in lines)


def test_the_largest_holder_loses_a_connection_and_never_the_newcomer():
    limiter = ConnectionLimiter(10, most_of_user=100)
    flood = opened(limiter, "eve", 8, busy=True)
    mine = opened(limiter, "ada", 2)
    newcomers = opened(limiter, "bob", 3)
    assert (n_open(flood), n_open(mine), n_open(newcomers)) == (5, 2, 3)
    assert not any(line.is_open for line in flood[:3])


def test_idle_connections_of_the_holder_are_closed_first():
    limiter = ConnectionLimiter(4, most_of_user=100)
    busy = opened(limiter, "eve", 2, busy=True)
    idle = opened(limiter, "eve", 2)
    opened(limiter, "ada", 1)
    assert (n_open(busy), [line.is_open for line in idle]) == (2, [False, True])


def test_one_user_has_a_limit():
    limiter = ConnectionLimiter(100, most_of_user=3)
    lines = opened(limiter, "eve", 5, busy=True)
    assert [line.is_open for line in lines] == [False, False, True, True, True]
    assert limiter.n_open("eve") == 3


def test_requests_decide_whose_connection_it_is():
    limiter = ConnectionLimiter(100, most_of_user=2)
    lines = opened(limiter, "host 10.0.0.1", 2)
    for line in lines:
        limiter.assign(line, "ada")
    assert (limiter.n_open("ada"), limiter.n_open("host 10.0.0.1")) == (2, 0)
    third = opened(limiter, "host 10.0.0.1", 1)[0]
    limiter.assign(third, "ada")
    assert (limiter.n_open("ada"), third.is_open, lines[0].is_open) == (2, True, False)
    for line in (*lines, third, third):
        limiter.remove(line)
    assert limiter.n_open("ada") == 0
