"""What keeps aiohttp from sending a request twice: by itself it does, where the connection breaks, all but a POST."""

import aiohttp


def once() -> aiohttp.ClientMiddlewareType:
    """Lets one request leave once, whatever its method: the first one may have arrived (E1)."""
    has_left = False

    async def sending(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        nonlocal has_left
        if has_left:
            raise aiohttp.ServerDisconnectedError
        has_left = True
        return await send(request)

    return sending
