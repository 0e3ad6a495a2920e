from shop.monitoring.models import Play
from streams import Reject, consumer


@consumer("streams", group="charts")
def chart(message):
    Play.objects.create(group="charts", film=message.body["film"], attempt=message.attempt)
    if message.attempt == 1 and message.body["film"] == "Shaky":
        raise RuntimeError("not the first time")


@consumer("streams", group="billing", batch=10, atomic=True)
def bill(messages):
    odd = [message for message in messages if message.body["film"] == "Free"]
    for message in messages:
        if message not in odd:
            film = message.body["film"]
            Play.objects.create(group="billing", film=film, attempt=message.attempt)
    return {message: Reject("nothing to bill") for message in odd}
