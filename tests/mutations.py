"""Files with something wrong in them, made from good ones: what is read of them, and how."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.errors import RltunedError
from rltuned.lab.backtest.past import Span, past_of
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.backtest.site import read_site_model
from rltuned.lab.cli.traces import READERS
from rltuned.lab.replay.readers import finish, read_swf
from rltuned.lab.replay.trace_file import read_faults, read_trace
from rltuned.lab.train.imitation import in_history
from rltuned.settings import load
from rltuned.sim.cluster import read_cluster
from rltuned.sim.trace import Bad, Trace
from rltuned.slurm.accounting import COLUMNS
from rltuned.slurm.columns import FIELD
from tests.backtest.worlds import jobs, site

ROWS = 60
EPOCH = 1_790_000_000
ODD = (
    b"", b"-1", b"-1.0", b"0", b"1e999", b"nan", b"inf", b"-inf", b"9" * 400, b"99999999999",
    b"1e18", b"0x10", b"1_000", "\u00b2".encode(), b"\xff", b"\xe9t\xe9", b"\x00", b"\x1f",
    b"\x1e", b"|", b"a|b", b'"', b'""', b"'", b",", b";", b"#", b"=", b"[", b"]", b"[1-",
    b"[1-5]", b"n[1-9999999]", b"\t", b" ", b"\r", b"\x0b", b"\x0c", "\u2028".encode(),
    b"\xef\xbb\xbf", b"Unknown", b"UNLIMITED", b"(null)", b"N/A", b"None assigned", b"INVALID",
    b"Partition_Limit", b"true", b"2026-13-41T99:99:99", b"0001-01-01T00:00:00",
    b"9999-12-31T23:59:59", b"cpu=1,gres/gpu=99999999999999999", b"7_[0,3,...]", b"12+1",
    b"7.batch", b"None", b"...", b"{}", b"[]", b"null", b"99999-23:59:59", b"gpu:a100:4(S:0-1)",
)  # fmt: skip
"""What stands in a field, or anywhere."""


@dataclass(frozen=True)
class Sample:
    """A good file. between: its fields. use: reads it as the commands do, and says how many jobs
    it has; None = it has no rows that stand alone. files: others that lie beside it.
    """

    name: str
    text: bytes
    between: bytes
    use: Callable[[Path], int | None]
    files: tuple[tuple[str, bytes], ...] = ()
    header: int = 0
    use_counts: bool = True


def samples(folder: Path) -> Iterator[Sample]:
    """Every form of file that a command takes. folder: for files that are made by ours."""
    yield from _of_sacct()
    yield from _of_traces()
    yield from _of_a_site(folder)
    cluster = b'[[nodes]]\nname = "n[1-2]"\ngpu_type = "a"\ngpus = 4\ncpus = 8\nmem_mib = 9\n'
    settings = b'[daemon]\ninterval_s = 60\n[[sla]]\nqos = "q"\n[http]\nport = 0\n'
    yield Sample("cluster.toml", cluster, b" ", _nothing(read_cluster), use_counts=False)
    yield Sample("settings.toml", settings, b" ", _nothing(_settings), use_counts=False)


def mutated(sample: Sample, rng: np.random.Generator) -> tuple[bytes, bool]:
    """The text with one thing wrong; whether that lies within one row."""
    way = rng.choice(("field", "field", "field", "swap", "insert", "flip", "drop", "again", "cut"))
    odd = ODD[int(rng.integers(len(ODD)))]
    lines = sample.text.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    inside = at >= sample.header
    if way in {"field", "swap"}:
        body = lines[at].rstrip(b"\n")
        cells = body.split(sample.between)
        which = int(rng.integers(len(cells)))
        other = int(rng.integers(len(cells)))
        cells[which] = odd if way == "field" else cells[other]
        lines[at] = sample.between.join(cells) + b"\n"
        return b"".join(lines), inside and not {0x0D, 0x22} & set(odd)
    if way == "again":
        lines.insert(int(rng.integers(sample.header, len(lines))) if inside else at, lines[at])
        return b"".join(lines), inside
    place, length = int(rng.integers(len(sample.text))), int(rng.integers(1, 40))
    text = bytearray(sample.text)
    if way == "insert":
        text[place:place] = odd
    elif way == "flip":
        text[place] ^= 1 << int(rng.integers(8))
    elif way == "drop":
        del text[place : place + length]
    else:
        del text[place:]
    return bytes(text), False


def tried(sample: Sample, text: bytes, folder: Path) -> int | RltunedError | None:
    """What is read of it: jobs, nothing that has any, or one of our own errors."""
    for name, more in sample.files:
        (folder / name).write_bytes(more)
    path = folder / sample.name
    path.write_bytes(text)
    path.chmod(0o600)
    try:
        return sample.use(path)
    except RltunedError as error:
        return error


def _nothing(read: Callable[[Path], Any]) -> Callable[[Path], None]:
    def use(path: Path) -> None:
        read(path)

    return use


def _settings(path: Path) -> None:
    loaded = load(path)
    loaded.settings.knobs()


def _sacct_row(i: int) -> dict[str, str]:
    begin = EPOCH + 60 * i
    asked = f"billing=2,cpu=2,gres/gpu={1 + i % 4},mem=4G,node=1"
    return {
        "JobIDRaw": str(i), "JobID": f"{i}", "Submit": str(begin), "Eligible": str(begin),
        "Start": str(begin + 30), "End": str(begin + 30 + 10 * i), "ElapsedRaw": str(10 * i),
        "State": "COMPLETED", "TimelimitRaw": "120", "Timelimit": "02:00:00", "ReqTRES": asked,
        "AllocTRES": asked, "NodeList": "a1", "Partition": "gpu", "User": "ann", "Account": "lab",
        "QOS": "normal", "Priority": "100", "Flags": "SchedMain", "Reservation": "",
        "Constraints": "k80|p100" if i % 3 == 0 else "",
    }  # fmt: skip


def _of_sacct() -> Iterator[Sample]:
    def use(path: Path) -> int:
        reading = READERS["sacct"](path)
        list(in_history(read_history(lines_of(path), str(path), UTC).records, 8))
        finish(reading, path, limits=None, seed=1)
        return len(reading.jobs)

    older = tuple(name for name in COLUMNS if name != "ElapsedRaw")
    named = tuple(name for name in COLUMNS if name != "JobIDRaw")
    for names, between, has_header in (
        (COLUMNS, "|", True), (COLUMNS, "|", False), (older, "|", False), (named, "|", True),
        (COLUMNS, FIELD, False),
    ):  # fmt: skip
        rows = [between.join(_sacct_row(i)[n] for n in names) for i in range(1, ROWS + 1)]
        text = "\n".join(([between.join(names)] if has_header else []) + rows) + "\n"
        name = f"sacct-{len(names)}-{has_header}-{ord(between)}.txt"
        yield Sample(name, text.encode(), between.encode(), use, header=int(has_header))


def _finished(read: Callable[[Path], Trace]) -> Callable[[Path], int]:
    def use(path: Path) -> int:
        reading = read(path)
        finish(reading, path, limits="weak", seed=1)
        return len(reading.jobs)

    return use


def _of_traces() -> Iterator[Sample]:
    numbers = range(1, ROWS + 1)
    swf = "; a comment\n" + "".join(
        f"{i} {60 * i} 3 {10 * i} {i} -1 -1 {i} 3600 -1 1 {i % 5} 1 1 1 -1 -1 -1\n" for i in numbers
    )
    yield Sample("a.swf", swf.encode(), b" ", _finished(read_swf), header=1)
    philly = "job_id,submit_epoch,num_gpus,run_time,vc,final_status,user\n" + "".join(
        f"{i},{EPOCH + i},{i % 8},{10 * i},vc,Pass,u{i % 5}\n" for i in numbers
    )
    yield Sample("philly.csv", philly.encode(), b",", _finished(READERS["philly"]), header=1)
    helios = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,duration\n" + "".join(
        f"{i},u,v,{i % 8},4,1,COMPLETED,2020-04-01 00:00:{i % 60:02},{60 * i}\n" for i in numbers
    )
    yield Sample("helios.csv", helios.encode(), b",", _finished(READERS["helios"]), header=1)
    openb = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,"
        "scheduled_time\n"
    ) + "".join(f"p{i},4000,{i},1,1000,A|B,{i},{200 + i},{100 + i}\n" for i in numbers)
    yield Sample("openb.csv", openb.encode(), b",", _finished(READERS["openb"]), header=1)
    ours = "# source: x\njob_id,submit_s,duration_s,time_limit_s,gpus,user,nodes\n" + "".join(
        f"{i},{i},{10 * i},3600,{i % 8},u{i % 5},\n" for i in numbers
    )
    yield Sample("ours.csv", ours.encode(), b",", lambda p: len(read_trace(p).jobs), header=2)
    faults = "at_s,node,change\n" + "".join(f"{i},n{i},drain\n" for i in numbers)
    yield Sample("faults.csv", faults.encode(), b",", lambda p: len(_faults(p)), header=1)
    yield from _of_pai()
    log = ",\n".join(
        f'{{"jobid": "j{i}", "submitted_time": "2017-10-03 12:00:{i % 60:02}", "user": "u",'
        f' "vc": "v", "status": "Pass", "attempts": [{{"start_time": "2017-10-03 12:01:00",'
        f' "end_time": "2017-10-03 12:02:00", "detail": [{{"ip": "m", "gpus": ["gpu0"]}}]}}]}}'
        for i in numbers
    )
    philly_log = _finished(READERS["philly-log"])
    yield Sample("cluster_job_log", f"[{log}]\n".encode(), b" ", philly_log)


def _faults(path: Path) -> tuple[object, ...]:
    bad: list[Bad] = []
    return read_faults(path, bad)


def _of_pai() -> Iterator[Sample]:
    numbers = range(1, ROWS + 1)
    tables = {
        "pai_job_table.csv": "".join(f"j{i},w{i},u,Terminated,{i},{i + 99}\n" for i in numbers),
        "pai_task_table.csv": "".join(
            f"j{i},worker,2,Terminated,{i + 5},{i + 99},600,29,50,V100\n" for i in numbers
        ),
        "pai_instance_table.csv": "".join(
            f"j{i},worker,x{i},w{i},i{i},Terminated,{i + 5},{i + 99},m{i}\n" for i in numbers
        ),
    }
    whole = {name: text.encode() for name, text in tables.items()}
    use = _finished(READERS["pai"])
    for name, text in whole.items():
        others = tuple((n, t) for n, t in whole.items() if n != name)
        yield Sample(name, text, b",", lambda path: use(path.parent), files=others)


def _of_a_site(folder: Path) -> Iterator[Sample]:
    made = site(folder / "made", jobs(130))
    whole = {p.name: p.read_bytes() for p in sorted(made.iterdir())}

    def use(path: Path) -> None:
        rows = path.parent / "sacct.txt"
        model = read_site_model(path.parent)
        past_of(read_history(lines_of(rows), str(rows), UTC), model, Span())

    for name, text in whole.items():
        others = tuple((n, t) for n, t in whole.items() if n != name)
        between = b"|" if name == "sacct.txt" else b" "
        yield Sample(name, text, between, use, files=others, use_counts=False)
