"""The two groups; a run consumes with one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from streams import ReceivedMessage, consumer
from tests.lab.peers.apps.common import handle

if os.environ.get("PEER_GROUP", "one") == "one":

    @consumer("peers", group="one", start="earliest", max_retries=20)
    def one(message: ReceivedMessage) -> None:
        handle(message.body)

else:

    @consumer("peers", group="batch", batch=100, start="earliest", max_retries=20)
    def batch(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            handle(message.body)
