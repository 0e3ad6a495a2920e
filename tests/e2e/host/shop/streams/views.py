from django.http import HttpResponse
from django.views.decorators.csrf import csrf_exempt

from shop.streams.models import Stream


@csrf_exempt
def start(request):
    Stream.start(request.POST["film"])
    if "unpaid" in request.POST:
        raise PermissionError("the film is not paid for")  # after the send
    return HttpResponse("playing")
