"""Slurm's commands with a fault in the way: small programs in front of the real ones.

`[slurm] bin_dir` makes the daemon use them. A test puts a script in the place of the next
call of a command, or of all calls; in it `$REAL` is the real command and `$PPID` the daemon. So
the daemon can be killed, or the world changed, at an exact point of a cycle, without a hook in it.
"""

import shutil
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("squeue", "sinfo", "sprio", "scontrol", "sdiag", "sacctmgr", "sacct")

FRONT = """\
#!/bin/sh
here=@HERE@ name=@NAME@ REAL=@REAL@
export REAL
for place in "once-$name" "always-$name"; do
    [ -e "$here/$place" ] || continue
    # only calls that hold the word, when one was given
    word=$(cat "$here/$place.word")
    case " $* " in *"$word"*) ;; *) continue ;; esac
    case $place in
    once-*) mv "$here/$place" "$here/used-$name" 2>/dev/null || continue; place=used-$name ;;
    esac
    . "$here/$place"
    exit
done
exec "$REAL" "$@"
"""


class Shims:
    """A folder of commands; harmless until a test changes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in PROGRAMS:
            real = shutil.which(name)
            if real is None:
                continue
            front = folder / name
            text = FRONT.replace("@HERE@", str(folder)).replace("@NAME@", name)
            front.write_text(text.replace("@REAL@", real))
            front.chmod(0o755)

    def once(self, name: str, script: str, word: str = "") -> None:
        """The next call (whose arguments hold the word) runs this instead."""
        (self.folder / f"used-{name}").unlink(missing_ok=True)
        self._put(f"once-{name}", script, word)

    def always(self, name: str, script: str, word: str = "") -> None:
        """Every call runs this instead, until cleared."""
        self._put(f"always-{name}", script, word)

    def clear(self, name: str) -> None:
        for place in (f"once-{name}", f"always-{name}"):
            (self.folder / place).unlink(missing_ok=True)

    def used(self, name: str) -> bool:
        """Whether the script put by once() has been run."""
        return (self.folder / f"used-{name}").exists()

    def _put(self, place: str, script: str, word: str) -> None:
        (self.folder / f"{place}.word").write_text(word)
        part = self.folder / f"{place}.part"
        part.write_text(f"{script}\n")
        part.rename(self.folder / place)
