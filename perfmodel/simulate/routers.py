"""Which replica a request goes to when it arrives."""

from collections.abc import Callable

from perfmodel.simulate.engine import Engine
from perfmodel.simulate.job import Job

Router = Callable[[list[Engine], Job], int]


def round_robin(engines: list[Engine], job: Job) -> int:
    """The replicas in turn."""
    return job.index % len(engines)


def least_loaded(engines: list[Engine], job: Job) -> int:
    """The replica with the fewest requests, the first of those that are equal."""
    return min(range(len(engines)), key=lambda place: engines[place].scheduler.jobs)


def prefix_aware(engines: list[Engine], job: Job) -> int:
    """The replica that has the most of the prompt cached; of those, the least loaded."""
    return min(range(len(engines)), key=lambda place: (-engines[place].pool.found(job), engines[place].scheduler.jobs))


ROUTERS: dict[str, Router] = {"round-robin": round_robin, "least-loaded": least_loaded, "prefix-aware": prefix_aware}
