# SPDX-License-Identifier: Apache-2.0
"""One shape on every implementation: each peer's best way is found first, then all take turns."""

import statistics
import time

from .shapes import TOLERANCE, Inputs, Problem, Refused, row_error

LEAST_ROUNDS, MOST_ROUNDS = 5, 1000
PAUSE = 0.002  # seconds, in which the threads of the one before stop to wait busily
SHORT = 0.02  # calls up to here have one before them that is not timed: it wakes threads and fetches inputs


class Side:
    """What is known of one implementation of a row."""

    def __init__(self, name, status="skipped", reason="", way=""):
        self.name, self.status, self.reason, self.way = name, status, reason, way
        self.runner, self.fastest, self.error = None, None, None
        self.seconds, self.ways = [], []

    @property
    def median(self):
        return statistics.median(self.seconds) if self.seconds else None


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def turn(side):
    time.sleep(PAUSE)
    if side.fastest is not None and side.fastest <= SHORT:
        side.runner.call()
    return side.runner.call()


def try_way(name, make, want, tolerance, seconds):
    """A way of a peer: made, compared with clattn's result, and called a few times."""
    way = Side(name)
    try:
        way.runner = make()
        way.runner.call()
        way.error = row_error(way.runner.output(), want)
        if not way.error <= tolerance:
            way.status = "wrong"
            way.reason = f"differs from clattn by {way.error:.3g} of a row; {tolerance:g} is allowed"
            return way
        begin = time.perf_counter()
        times = [way.runner.call()]
        while len(times) < 3 or (len(times) < 50 and time.perf_counter() - begin < seconds):
            times.append(way.runner.call())
            if time.perf_counter() - begin > 4 * seconds:
                break
        way.status, way.fastest = "ok", min(times)
    except Exception as error:  # whatever a peer raises is its answer to this shape
        way.status, way.reason = "skipped", first_line(error)
    return way


def best_way(peer, problem, inputs, want, seconds):
    side = Side(peer.name)
    for name, make in peer.candidates(problem, inputs):
        way = try_way(name, make, want, TOLERANCE[problem.type], seconds)
        side.ways.append(way)
        if way.status == "ok" and (side.fastest is None or way.fastest < side.fastest):
            if side.runner is not None:
                side.runner.close()
            side.status, side.way, side.runner = "ok", name, way.runner
            side.fastest, side.error = way.fastest, way.error
        elif way.runner is not None:
            way.runner.close()
        way.runner = None
    if side.status != "ok":
        wrong = [way for way in side.ways if way.status == "wrong"]
        side.status = "wrong" if wrong else "skipped"
        side.reason = (wrong or side.ways)[0].reason
    return side


class Row:
    def __init__(self, shape, reason=""):
        self.shape, self.reason = shape, reason  # why it is left out
        self.plan, self.probe = None, None
        self.enqueue = None  # the host's part of a call of clattn, seconds
        self.sides = []  # clattn first

    @property
    def clattn(self):
        return self.sides[0] if self.sides and self.sides[0].status == "ok" else None

    def wrong(self):
        return [side for side in self.sides if side.status == "wrong"]

    def fastest_peer(self):
        timed = [side for side in self.sides[1:] if side.seconds]
        return min(timed, key=lambda side: side.median) if timed else None

    def ratio(self, side=None):
        """How many times as long the fastest peer, or this one, takes; above 1, clattn is faster."""
        side = side or self.fastest_peer()
        return side.median / self.clattn.median if side and side.seconds and self.clattn else None

    def ratio_of_minima(self):
        """The same of the fastest calls, which programs beside this one disturb less than medians."""
        least = [min(side.seconds) for side in self.sides[1:] if side.seconds]
        return min(least) / min(self.clattn.seconds) if least and self.clattn and self.clattn.seconds else None


def take_turns(clattn, sides, seconds):
    """Rounds in which each has a turn; returns the FMA probes between them."""
    probes, begin, rounds = [], time.perf_counter(), 0
    while rounds < MOST_ROUNDS and (rounds < LEAST_ROUNDS or time.perf_counter() - begin < seconds):
        time.sleep(PAUSE)
        probes.append(clattn.probe())
        ready = [side for side in sides if side.status == "ok"]
        # each round begins with another one, so that nobody always follows the same
        for i in range(len(ready)):
            side = ready[(i + rounds) % len(ready)]
            try:
                side.seconds.append(turn(side))
            except Exception as error:  # what worked before, and failed now
                side.status, side.reason, side.seconds = "failed", first_line(error), []
        rounds += 1
    return probes


def measure(clattn, peers, row, seconds):
    """Fills the row."""
    line = row.shape["problem"]
    try:
        problem = Problem(line)
        inputs = Inputs(problem)
        row.plan, want = clattn.open(line, inputs)
    except (Refused, MemoryError) as error:
        row.reason = first_line(error)
        return
    own = Side("clattn", "ok", way=row.plan["variant"])
    own.runner, own.fastest = clattn, min(clattn.call() for _ in range(3))
    row.sides = [own] + [best_way(peer, problem, inputs, want, 0.05 * seconds) for peer in peers]
    row.probe = statistics.median(take_turns(clattn, [side for side in row.sides if side.status == "ok"], seconds))
    row.enqueue = statistics.median(clattn.enqueues)
    for side in row.sides[1:]:
        if side.runner is not None:
            side.runner.close()
            side.runner = None
    clattn.close()
