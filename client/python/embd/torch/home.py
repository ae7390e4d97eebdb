"""Where the tables of a module are: on a client, at an address, or among those of a job."""
from __future__ import annotations

from typing import Callable, Union

from ..client import Client, connect
from ..job import Job
from ..table import Table

Home = Union[Client, Job, str, None]


def open_home(home: Home) -> tuple[Client, Callable[..., Table]]:
    """The client, and what creates or opens a table there: (name, dim, **fields)."""
    if isinstance(home, Job):
        return home.client, home.table
    client = home if isinstance(home, Client) else connect(home)
    return client, client.create_table
