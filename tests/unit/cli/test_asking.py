"""What answers on the daemon's port: an answer of any size a daemon gives, and nothing else."""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from rltuned.cli import asking
from rltuned.cli.asking import ask_daemon
from rltuned.settings.service import HttpKeys

Serve = Callable[[bytes], HttpKeys]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answers one request with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def served(body: bytes, status: str = "200 OK") -> HttpKeys:
            def answer() -> None:
                with listener.accept()[0] as peer:
                    peer.recv(65_536)
                    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
                    try:
                        peer.sendall(head.encode() + body)
                    except OSError:
                        return  # it has read enough

            threads.append(threading.Thread(target=answer, daemon=True))
            threads[-1].start()
            return HttpKeys(address="127.0.0.1", port=listener.getsockname()[1])

        yield served
        for thread in threads:
            thread.join(10)


def test_the_plan_of_a_long_queue_is_read_whole(serve: Serve) -> None:
    plan = {"rltuned": "0.3.0", "plan": {"jobs": [{"why": "x" * 600}] * 10_000}}
    found, why = ask_daemon(serve(json.dumps(plan).encode()), "/plan.json")
    assert (found, why) == (plan, "")


def test_what_is_longer_than_any_answer_is_one_sentence(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_MOST", 1_024 * 1_024)
    found, why = ask_daemon(serve(b"[" + b"1," * 1_000_000))
    assert found is None
    assert why.endswith("its answer is longer than 1 MiB")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff\xfe", b"", b"[]", b"null", b'{"a": 1}'])
def test_what_is_no_daemon_is_one_sentence(serve: Serve, body: bytes) -> None:
    found, why = ask_daemon(serve(body))
    assert found is None
    assert why.startswith("127.0.0.1:")
    assert "\n" not in why
