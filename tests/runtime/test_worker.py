"""What a Python worker does with the connection that Spark gave it."""

from __future__ import annotations

import socket

import pytest

from anabranch.runtime import worker

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="Linux alone acknowledges at once"
)


def test_received_data_is_acknowledged_at_once_and_the_connection_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, receiver:
        monkeypatch.setattr(worker, "_FIRST_FILES", [receiver.fileno(), receiver.fileno()])
        receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        taken = []
        for each in worker.received(iter("abc")):
            assert receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            receiver.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0
            )  # as it is when the worker has sent something
            taken.append(each)
        assert taken == ["a", "b", "c"]
        sender.sendall(b"more")
        assert receiver.recv(4) == b"more"


def test_files_that_are_no_connection_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other, open("/dev/null") as file:  # noqa: PTH123 - any file
        monkeypatch.setattr(worker, "_FIRST_FILES", [one.fileno(), file.fileno(), 9_999])
        assert list(worker._connections()) == []
        assert list(worker.received([1, 2])) == [1, 2]
        one.sendall(b"x")
        assert other.recv(1) == b"x"
