"""Every act is done once, and said to be done, also if the reply to what writes it is lost."""

from __future__ import annotations

import pytest

from streams.errors import StreamsError
from streams.operate.acts.act import Consent
from streams.operate.acts.forget import ForgetReader
from streams.operate.acts.topic import RetireTopic
from tests.contract.stages import STAGES, AnyAct
from tests.contract.test_acts import PREVIEWED
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.usefixtures("clean_registry"),
]

# What writes those that are one statement.
STATEMENTS: dict[AnyAct, bytes] = {
    ForgetReader: b"DELETE FROM `ems_reader`",
    RetireTopic: b"UPDATE `ems_topic`",
}


@pytest.mark.parametrize("act", PREVIEWED, ids=lambda act: act.__name__)
def test_an_act_whose_reply_is_lost_is_done_once(act: AnyAct, proxied: Proxy) -> None:
    stage = STAGES[act]
    row = stage.make()
    asked = act.of(stage.arguments)
    shown = asked.preview(row, "default").shown
    written = STATEMENTS.get(act, b"COMMIT")
    proxied.lose_reply_to(written)
    assert asked.carry_out(row, "default", Consent("ann", shown)).texts()
    assert proxied.fired == [written]
    if not act.deletes:  # no face finds a row that is gone
        with pytest.raises(StreamsError):
            asked.carry_out(row, "default", Consent("ann", shown))
