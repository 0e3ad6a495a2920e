"""Judges what one failover has shown."""

from __future__ import annotations

from dataclasses import dataclass

NOTICED_SECONDS = 2.0


@dataclass(frozen=True)
class Result:
    """Holds what one failover has shown."""

    acked: int
    acked_before: int
    acked_after: int  # since the fault was over
    handled_after: int
    lost: int  # acknowledged, and not in the log
    unhandled: int  # acknowledged, in the log and not handled, by both groups
    unknown: int
    unknown_there: int
    failed: int
    failed_there: int
    twice: int  # handled again, by both groups
    reused: int  # offsets that handlers have seen with two messages
    no_send: float  # the longest time, in seconds, in which nothing was acknowledged
    no_handled: float  # and in which nothing was handled
    ended: int  # consumers that have ended by themselves
    findings: list[str]
    rewound: float | None  # seconds from the promotion until a consumer said so

    def failures(self, *, lossless: bool) -> list[str]:
        """Return the broken promises, in words."""
        wrong = []
        if not self.acked_after or not self.handled_after:
            counts = f"{self.acked_after} acknowledged, {self.handled_after} handled"
            wrong.append(f"it did not go on after the fault: {counts}")
        if lossless and self.lost:
            wrong.append(f"{self.lost} acknowledged messages lost")
        if self.unhandled:
            wrong.append(f"{self.unhandled} messages of the log not handled")
        if lossless and self.rewound is not None:
            wrong.append("a rewound log was reported, and none was rewound")
        if not lossless and self.lost and self.rewound is None:
            wrong.append("the log was rewound, and nobody has said so")
        if self.rewound is not None and self.rewound > NOTICED_SECONDS:
            wrong.append(f"that the log was rewound was only noticed after {self.rewound} s")
        if self.reused:
            wrong.append(f"{self.reused} offsets were given to two messages")
        if self.failed_there:
            wrong.append(f"{self.failed_there} messages are there that send() said had failed")
        if self.ended:
            wrong.append(f"{self.ended} consumers ended")
        return wrong + self.findings
