"""Public traces: over HTTP or from a folder; nothing is kept that is not what is published."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.errors import TraceError
from rltuned.lab.replay import fetch as fetching
from rltuned.lab.replay.fetch import SOURCES, Archive, TraceSource, fetch

LOG, FILE = b'[{"jobid": "application_1"}]', "trace-data.tar.gz"


def packed(member: str = "trace-data/cluster_job_log", data: bytes = LOG) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, body in (("../outside", b"no"), (member, data)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    # without the time: it would be in the names of tests, which processes compare
    return gzip.compress(made.getvalue(), mtime=0)


def source(data: bytes, address: str = "http://127.0.0.1:9") -> TraceSource:
    digest = hashlib.sha256(data).hexdigest()
    archive = Archive(f"{address}/{FILE}", len(data), digest, "cluster_job_log")
    return TraceSource((archive,), "CC BY 4.0", "a paper", "{folder}/cluster_job_log --from x")


def quiet(_what: str, _part: float) -> None:
    """No one watches."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on a server of its own."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_from_the_net_the_one_member_is_kept(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = served
    (folder / FILE).write_bytes(packed())
    made, seen = tmp_path / "made" / "philly", list[float]()
    there = source(packed(), address)
    fetch(there, made, lambda _, part: seen.append(part))
    assert [(p.name, p.read_bytes()) for p in made.iterdir()] == [("cluster_job_log", LOG)]
    assert seen[-1] == 1.0
    (folder / FILE).unlink()
    fetch(there, made, quiet)  # it is there: nothing is asked for


@pytest.mark.parametrize(
    ("stored", "published", "why"),
    [
        (packed(data=b"other"), packed(), "published"),
        (packed()[:-9] + b"x" * 9, packed(), "SHA-256 is not the published"),
        (packed() + b"more", packed(), "more bytes"),
        (packed()[:40], packed(), "40 bytes"),
        (b"", packed(), "0 bytes"),
        (packed("trace-data/README"), None, "holds no cluster_job_log"),
        (b"not an archive", None, "not a gzip file"),
        (packed()[:60], None, ""),
    ],
)
def test_what_is_not_what_is_published_or_holds_something_else_leaves_nothing(
    stored: bytes, published: bytes | None, why: str, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(stored)
    with pytest.raises(TraceError, match=f"{FILE}: .*{why}"):
        fetch(source(published or stored), tmp_path / "made", quiet, tmp_path)
    assert list((tmp_path / "made").iterdir()) == []


def test_no_net_and_no_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"127\.0\.0\.1:9.*refused; fetch it elsewhere.*--from"):
        fetch(source(packed()), tmp_path / "made", quiet)
    with pytest.raises(TraceError, match="No such file"):
        fetch(source(packed()), tmp_path / "made", quiet, tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="file: File exists"):
        fetch(source(packed()), tmp_path / "file", quiet)


def test_the_command_lists_fetches_and_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = CliRunner().invoke(app, ["traces", "fetch"])
    assert all(name in listed.output for name in SOURCES)
    (tmp_path / FILE).write_bytes(packed())
    monkeypatch.setitem(fetching.SOURCES, "philly", source(packed()))
    words = ["traces", "fetch", "philly", "--out", str(tmp_path / "p"), "--from", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "a paper, CC BY 4.0" in done.output
    assert f"rltuned traces convert {tmp_path}/p/cluster_job_log --from x" in done.output
    unknown = CliRunner().invoke(app, ["traces", "fetch", "phil"])
    assert "no public trace 'phil'; there are philly, pai" in str(unknown.exception)


def test_every_source_names_a_whole_checksum() -> None:
    for archive in (archive for one in SOURCES.values() for archive in one.archives):
        assert len(bytes.fromhex(archive.sha256)) == 32
        assert archive.url.startswith("https://")
