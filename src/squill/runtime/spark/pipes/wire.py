"""Arrow Flight between the members of one run: the driver and the tasks of its barrier stage.

Every run has a secret of its own. It goes with every call, is compared in constant time before anything of the call
is read, and is all that makes a member. Servers listen on one address only. With a certificate, made for the run and
known to its members alone, all of it is encrypted, and a member that has another one is not spoken to.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

from squill.errors import ClusterError

__all__ = [
    "MESSAGE", "MOST_BYTES", "Address", "Calls", "Certificate", "Pass", "Server", "connected", "facing", "message",
    "read_messages", "refuse_large",
]  # fmt: skip

HEADER = "squill-run"
NAME = "squill"
"""The name in certificates: members know each other by the certificate, not by their hosts."""

MOST_BYTES = 256 << 20
"""No message is larger. Batches are cut into pieces below that; only a single row can be too large for it."""

MESSAGE = pa.schema([("data", pa.large_binary())])

Address = tuple[str, int]


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM text."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Pass:
    """What makes a member of a run: its secret, and the certificate if there is one."""

    secret: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))
    certificate: Certificate | None = None

    @property
    def options(self) -> flight.FlightCallOptions:
        """What goes with every call."""
        return flight.FlightCallOptions(headers=[(HEADER.encode(), self.secret.hex().encode())])


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Lets calls with the secret pass."""

    def __init__(self, secret: bytes) -> None:
        super().__init__()
        self._expected = secret.hex().encode()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> None:
        given = headers.get(HEADER, [""])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._expected):
            raise flight.FlightUnauthenticatedError("this is no member of the run")


@dataclass(frozen=True)
class Calls:
    """What a server does: each function gets the call's own bytes."""

    put: Callable[[bytes, Iterator[tuple[Any, Any]]], None] | None = None
    get: Callable[[bytes], Iterator[bytes | pa.Buffer]] | None = None
    act: Callable[[str, bytes], Iterator[bytes]] | None = None


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from when it is made to `shutdown`, which waits for the calls that are under way."""

    def __init__(self, host: str, access: Pass, calls: Calls) -> None:
        made = access.certificate
        kind = "grpc" if made is None else "grpc+tls"
        super().__init__(
            f"{kind}://{f'[{host}]' if ':' in host else host}:0",
            tls_certificates=None if made is None else [(made.certificate, made.key)],
            middleware={"guard": _Guard(access.secret)},
        )
        self._calls = calls

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        if self._calls.put is None:
            raise flight.FlightServerError("nothing is taken here")
        self._calls.put(descriptor.command, read_messages(reader))

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        if self._calls.get is None:
            raise flight.FlightServerError("nothing is given here")
        return flight.GeneratorStream(MESSAGE, (message(data) for data in self._calls.get(ticket.ticket)))

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        if self._calls.act is None:
            raise flight.FlightServerError("nothing is done here")
        return self._calls.act(action.type, action.body.to_pybytes())


def connected(address: Address, access: Pass) -> flight.FlightClient:
    """Return a client of a member's server; nothing is sent before its first call."""
    made = access.certificate
    host, port = address
    options = {} if made is None else {"tls_root_certs": made.certificate, "override_hostname": NAME}
    kind = "grpc" if made is None else "grpc+tls"
    return flight.FlightClient(f"{kind}://{f'[{host}]' if ':' in host else host}:{port}", **options)


def message(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return bytes in the form in which they are sent; they are not copied."""
    content = pa.py_buffer(data)
    offsets = pa.array([0, content.size], pa.int64()).buffers()[1]
    value = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays([value], schema=MESSAGE)


def read_messages(reader: Any) -> Iterator[tuple[pa.Buffer | None, pa.Buffer | None]]:
    """Yield (data, header) of what is put, either of which may be missing; larger ones than can be are refused."""
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        data = None
        if chunk.data is not None:
            data = chunk.data.column(0)[0].as_buffer()
            refuse_large(data.size, "a message")
        yield data, chunk.app_metadata


def refuse_large(size: int, what: str) -> None:
    if size > MOST_BYTES:
        raise ClusterError(
            f"progressive: {what} has {size:,} bytes, and at most {MOST_BYTES:,} are sent at once",
            "leave the column with the large values out before rows move, or run the query with sq.local(…).",
        )


def facing(address: Address) -> str:
    """Return the address of this host on the way to another: only there it can be needed."""
    host, port = address
    family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # a datagram socket: nothing is sent
        return str(probe.getsockname()[0])
