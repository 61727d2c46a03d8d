"""The two files of ours: trace CSV and cluster TOML."""

import gzip
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import parse_trace, read_faults, read_trace, write_trace
from rltuned.sim.cluster import PRESETS, parse_cluster, preset, read_cluster
from rltuned.sim.trace import Bad, Trace, TraceJob

HEADER = (
    "job_id,submit_s,duration_s,time_limit_s,gpus,gpu_type,cpus,mem_mib,nodes,partition,user,"
    "account,qos,exclusive,status\n"
)


def test_an_empty_field_is_unknown_and_never_zero() -> None:
    trace = parse_trace(
        f"# source: mine\n# seed: 3\n{HEADER}7,1.5,10,,2,p100|k80,,,,,u,,,1,Pass\n", "t"
    )
    (job,) = trace.jobs
    assert (job.cpus, job.mem_mib, job.nodes, job.time_limit_s) == (None, None, None, math.inf)
    assert (job.gpu_types, job.exclusive, job.submit_s) == (("p100", "k80"), True, 1.5)
    assert trace.notes == {"source": "mine", "seed": "3"}


@pytest.mark.parametrize(
    ("row", "reply"),
    [
        ("a,0,10,,1,,,,,,,,,0", r"14 fields, the header has 15"),
        ("a,0,0,,1,,,,,,,,,0,", r"duration_s must be seconds > 0"),
        ("a,0,,,1,,,,,,,,,0,", r"duration_s is empty"),
        ("a,0,5,-1,1,,,,,,,,,0,", r"time_limit_s must be seconds > 0"),
        ("a,0,5,,1.5,,,,,,,,,0,", r"gpus is not a whole number"),
        ("a,x,5,,1,,,,,,,,,0,", r"submit_s is not a number: 'x'"),
        ("a,nan,5,,1,,,,,,,,,0,", r"submit_s is not a finite number"),
        ("a,0,5,,1,,-1,,,,,,,0,", r"cpus is not a whole number"),
        ("a,0,5,,1,,,,0,,,,,0,", r"nodes must be at least 1"),
        ("a,0,5,,1,,,,,,,,,maybe,", r"exclusive must be 0 or 1"),
        ("z,0,5,,1,,,,,,,,,0,", r"job_id z stands twice"),
        ("a,1e12,5,,1,,,,,,,,,0,", r"submit_s is no time in seconds"),
        ("a,0,1e300,,1,,,,,,,,,0,", r"duration_s is no time in seconds"),
        ("a,0,5,,1e300,,,,,,,,,0,", r"gpus is more than any cluster has: '1e300'$"),
        (f"a,0,5,,{'9' * 300},,,,,,,,,0,", r"gpus is more than any cluster has: '9{40}'$"),
        (f"a,0,5,,1,,{'9' * 40},,,,,,,0,", r"cpus is more than any cluster has"),
    ],
)
def test_a_bad_row_costs_itself_and_is_named_by_line_and_field(row: str, reply: str) -> None:
    good = "{},0,5,,1,,,,,,,,,0,"
    found = parse_trace("\n".join((HEADER + good.format("z"), row, good.format("y"))), "t")
    assert [job.job_id for job in found.jobs] == ["z", "y"]
    ((line, why),) = ((bad.line, bad.why) for bad in found.bad)
    assert line == 3
    assert re.match(reply, why)
    if "twice" not in reply:
        with pytest.raises(TraceError, match=rf"^t:2: {reply}"):
            parse_trace(f"{HEADER}{row}\n", "t")


def test_rows_that_are_not_in_submit_order_are_put_in_order() -> None:
    rows = "".join(f"{at},{at},5,,1,,,,,,,,,0,\n" for at in (3, 1, 2))
    assert [job.job_id for job in parse_trace(HEADER + rows, "t").jobs] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("", "no header row"),
        ("a,b\n", "no column 'job_id'"),
        ("job_id,submit_s,duration_s,gpus,colour\n", "unknown column 'colour'"),
        (HEADER, "no jobs"),
    ],
)
def test_a_bad_file_says_what_is_missing(text: str, reply: str) -> None:
    with pytest.raises(TraceError, match=reply):
        parse_trace(text, "t")


times = st.floats(0, 1e7, allow_nan=False).map(lambda v: round(v, 3))
words = st.text("abc-_|, é\"'", max_size=5).map(str.strip)


@st.composite
def trace_jobs(draw: st.DrawFn) -> TraceJob:
    maybe = st.none() | st.integers(0, 9)
    return TraceJob(
        job_id=str(draw(st.integers(0, 10**9))),
        submit_s=draw(times),
        duration_s=draw(times) + 0.5,
        gpus=draw(st.integers(0, 99)),
        time_limit_s=draw(st.just(math.inf) | times.map(lambda v: v + 1)),
        gpu_types=draw(st.sampled_from([(), ("a",), ("a", "b")])),
        cpus=draw(maybe),
        mem_mib=draw(maybe),
        nodes=draw(st.none() | st.integers(1, 9)),
        partition=draw(words),
        user=draw(words),
        status=draw(words),
        exclusive=draw(st.booleans()),
    )


@given(st.lists(trace_jobs(), min_size=1, max_size=9, unique_by=lambda j: j.job_id))
def test_what_is_written_reads_back_the_same(jobs: list[TraceJob]) -> None:
    import io  # noqa: PLC0415

    from rltuned.lab.replay.trace_file import dump_trace  # noqa: PLC0415

    trace = Trace(tuple(sorted(jobs, key=lambda j: j.submit_s)), {"source": "x: y"})
    out = io.StringIO()
    dump_trace(trace, out)
    assert parse_trace(out.getvalue(), "t") == trace


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(f"\ufeff{HEADER}".encode(encoding))
    with pytest.raises(TraceError, match=r"trace.csv: is UTF-16 text; `iconv "):
        read_trace(path)


def test_gzip_is_read_and_written_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    trace = Trace((TraceJob("1", 0.0, 2.0, 1),), {"a": "b"})
    paths = [tmp_path / "one.csv.gz", tmp_path / "two.csv.gz"]
    for path in paths:
        write_trace(trace, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert read_trace(paths[0]) == trace
    paths[0].write_bytes(gzip.compress(b"x" * 100)[:20])
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(paths[0])
    refused = []
    for at in range(10, paths[1].stat().st_size):  # behind gzip's own header
        data = bytearray(paths[1].read_bytes())
        data[at] ^= 0x40
        paths[0].write_bytes(bytes(data))
        try:
            read_trace(paths[0])
        except TraceError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(why.startswith(f"{paths[0]}: cannot be read: ") for why in refused)


def test_a_quote_that_stays_open_is_named_by_its_line() -> None:
    rows = [f"{n},{n},5,1" for n in range(20_000)]
    rows[10] = f'"{rows[10]}'
    text = "\n".join(("# a: b", "job_id,submit_s,duration_s,gpus", *rows))
    found = parse_trace(text, "t")
    assert [bad.line for bad in found.bad] == [13]
    assert len(found.jobs) == 19_999
    rows[11] = f'{rows[11]}"'  # the quote is closed a line later: one cell over two lines
    odd = parse_trace("\n".join(("job_id,submit_s,duration_s,gpus", *rows)), "t")
    assert ([bad.line for bad in odd.bad], len(odd.jobs)) == ([12], 19_998)
    for header in ('job_id,"submit_s\n', 'job_id,"submit_s" of,duration_s,gpus\n1,0,5,1\n'):
        with pytest.raises(TraceError, match=r"^t:1: "):
            parse_trace(header, "t")


def test_a_cluster_file_expands_hostlists() -> None:
    where = preset("testbed")
    assert [n.name for n in where.nodes] == ["k1", "k2", "m1", "p1", "p2"]
    assert (where.gpus, where.default_partition) == (13, "gpu")
    assert {n: preset(n).gpus for n in PRESETS} == {
        "testbed": 13,
        "philly-192": 192,
        "philly-2490": 2_490,
        "helios-1080": 1_080,
        "pai-674": 674,
    }


NODE = '[[nodes]]\nname = "a[1-2]"\ngpu_type = "x"\ngpus = 2\ncpus = 4\nmem_mib = 10\n'


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("[[nodes", "c: not TOML"),
        ("", "c: nodes: Field required"),
        ("nodes = []\n", "c: nodes: List should have at least 1 item"),
        (
            NODE.replace("gpus = 2", "gpus = 2.5"),
            r"nodes\[1\]: gpus: Input should be a valid integer",
        ),
        ("nodes = 3\n", "c: nodes: Input should be a valid list"),
        ("colour = 3\n" + NODE, "c: colour: Extra inputs are not permitted"),
        (NODE + "ram = 3\n", r"c: nodes\[1\]: ram: Extra inputs"),
        (
            NODE.replace("gpus = 2", "gpus = -2"),
            r"nodes\[1\]: gpus: Input should be greater",
        ),
        (NODE.replace("cpus = 4\n", ""), r"nodes\[1\]: cpus: Field required"),
        (NODE + NODE, r"nodes\[2\]: name: node a1 stands twice"),
        (NODE.replace("a[1-2]", "a[2-1]"), r"nodes\[1\]: name: hostlist: range"),
        (NODE.replace("a[1-2]", "a[1"), r"nodes\[1\]: name: hostlist"),
        (
            NODE + 'partitions = ["q"]\n[[partitions]]\nname = "p"\n',
            r"nodes\[1\]: partitions: no \[\[partitions\]\] named 'q'",
        ),
        (
            NODE + '[[partitions]]\nname = "p"\nmax_time_s = 0\n',
            r"partitions\[1\]: max_time_s: Input",
        ),
        (NODE + '[[partitions]]\nname = "p"\n[[partitions]]\nname = "p"\n', "stands twice"),
        (NODE + '[[partitions]]\nname = "p"\noversubscribe = "MAYBE"\n', "oversubscribe"),
        (
            NODE
            + '[[partitions]]\nname = "p"\ndefault = true\n[[partitions]]\nname = "q"\n'
            + "default = true\n",
            "more than one default",
        ),
    ],
)
def test_a_bad_cluster_file_is_named_by_field(text: str, reply: str) -> None:
    with pytest.raises(TraceError, match=reply):
        parse_cluster(text, "c", "c")


def test_a_missing_cluster_file_and_preset(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_cluster(tmp_path / "none.toml")
    with pytest.raises(TraceError, match="no cluster named 'moon'"):
        preset("moon")


def test_fault_files(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('at_s,node,change\n10,"n[1-2]",drain\n20.5,n1,resume\n')
    assert [(f.at_s, f.node, f.change) for f in read_faults(path, [])] == [
        (10.0, "n1", "drain"),
        (10.0, "n2", "drain"),
        (20.5, "n1", "resume"),
    ]
    path.write_text("when,who\n")
    with pytest.raises(TraceError, match="header: no column 'at_s'"):
        read_faults(path, [])
    for row, reply in (
        ("1,n1", "2 fields"),
        ("1,n1,explode", "'explode'"),
        ("inf,n1,fail", "not a finite number"),
        ('"1,n1,fail', "unexpected end"),
        ("1,n[1-999999999],fail", "too long"),
    ):
        path.write_text(f"at_s,node,change\n{row}\n2,n1,fail\n")
        bad: list[Bad] = []
        assert [f.at_s for f in read_faults(path, bad)] == [2.0]
        assert [b.line for b in bad] == [2]
        assert reply in bad[0].why
