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
from rltuned.lab.replay.fetch import SOURCES, Archive, TraceSource, fetch
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.errors import TraceError
from rltuned.lab.replay import fetch as fetching

LOG = b'[{"jobid": "application_1"}]'


def packed(member: str = "trace-data/cluster_job_log", data: bytes = LOG) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, body in (("../outside", b"no"), (member, data)):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    # without the time: it would be in the names of tests, which processes compare
    return gzip.compress(made.getvalue(), mtime=0)


def source(data: bytes, url: str = "http://127.0.0.1:9/trace-data.tar.gz") -> TraceSource:
    digest = hashlib.sha256(data).hexdigest()
    archive = Archive(url, len(data), digest, "cluster_job_log")
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
    data = packed()
    (folder / "trace-data.tar.gz").write_bytes(data)
    made, seen = tmp_path / "made" / "philly", list[float]()
    there = source(data, f"{address}/trace-data.tar.gz")
    fetch(there, made, lambda _, part: seen.append(part))
    assert [p.name for p in made.iterdir()] == ["cluster_job_log"]
    assert (made / "cluster_job_log").read_bytes() == LOG
    assert seen[-1] == 1.0
    (folder / "trace-data.tar.gz").unlink()
    fetch(there, made, quiet)  # it is there: nothing is asked for


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (packed(data=b"other"), "published"),
        (packed()[:-9] + b"x" * 9, "SHA-256 is not the published"),
        (packed() + b"more", "more bytes"),
        (packed()[:40], "40 bytes"),
        (b"", "0 bytes"),
    ],
)
def test_what_differs_from_what_is_published_is_not_kept(
    stored: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / "trace-data.tar.gz").write_bytes(stored)
    with pytest.raises(TraceError, match=f"trace-data.tar.gz: .*{why}"):
        fetch(source(packed()), tmp_path / "made", quiet, tmp_path)
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (packed("trace-data/README"), "holds no cluster_job_log"),
        (b"not an archive", "not a gzip file"),
        (packed()[:60], "trace-data.tar.gz: "),
    ],
)
def test_an_archive_that_holds_something_else_leaves_nothing(
    data: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / "trace-data.tar.gz").write_bytes(data)
    with pytest.raises(TraceError, match=why):
        fetch(source(data), tmp_path / "made", quiet, tmp_path)
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
    assert listed.exit_code == 0
    assert all(name in listed.output for name in SOURCES)
    data = packed()
    (tmp_path / "trace-data.tar.gz").write_bytes(data)
    monkeypatch.setitem(fetching.SOURCES, "philly", source(data))
    words = ["traces", "fetch", "philly", "--out", str(tmp_path / "p"), "--from", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "a paper, CC BY 4.0" in done.output
    assert f"rltuned traces convert {tmp_path}/p/cluster_job_log --from x" in done.output
    (tmp_path / "trace-data.tar.gz").unlink()
    lost = CliRunner().invoke(app, [*words[:4], str(tmp_path / "q"), *words[5:]])
    assert str(lost.exception) == f"{tmp_path}/trace-data.tar.gz: No such file or directory"
    unknown = CliRunner().invoke(app, ["traces", "fetch", "phil"])
    assert "no public trace 'phil'; there are philly, pai" in str(unknown.exception)


def test_every_source_names_a_whole_checksum() -> None:
    for one in SOURCES.values():
        for archive in one.archives:
            assert len(bytes.fromhex(archive.sha256)) == 32
            assert archive.url.startswith("https://")
