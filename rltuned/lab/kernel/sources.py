"""The source that a function is compiled from: its own, and the definitions that it uses of the
package. To compile takes minutes, and no other line asks for it.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[2]
_KERNEL: Final = "rltuned.lab.kernel"
Name = tuple[str, str]
"""A module, and a name at its top."""


class _Module:
    """What a file of the package defines at its top, and where its other names come from."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self.defined: dict[str, list[ast.stmt]] = {}
        self.imported: dict[str, Name] = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rltuned."):
                for one in node.names:
                    self.imported[one.asname or one.name] = str(node.module), one.name
            elif not isinstance(node, ast.ImportFrom | ast.Import):
                for name in _defines(node):
                    self.defined.setdefault(name, []).append(node)

    def text(self, node: ast.stmt) -> str:
        """Its lines with decorators, without its own docstring."""
        decorators: Iterable[ast.expr] = getattr(node, "decorator_list", ())
        first = min([node.lineno, *(one.lineno for one in decorators)])
        lines = self._lines[first - 1 : node.end_lineno]
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            said = node.body[0]
            del lines[said.lineno - first : (said.end_lineno or said.lineno) - first + 1]
        return "".join(lines)


def _defines(node: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or changes (`TABLE[0] = 1`, `NAMES.update()`)."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    places: list[ast.AST] = [node]
    if isinstance(node, ast.Assign):
        places = [*node.targets]
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        places = [node.target]
    inner = [part for place in places for part in ast.walk(place)]
    named = {part.name for part in inner if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    return named | {part.id for part in inner if isinstance(part, ast.Name)}


def _uses(node: ast.AST) -> Iterator[str]:
    """The names in a definition but for the annotations of functions, which numba does not read."""
    if isinstance(node, ast.Name):
        yield node.id
    for part in ast.iter_child_nodes(node):
        if not isinstance(node, ast.arg) and part is not getattr(node, "returns", None):
            yield from _uses(part)


class Package:
    """The sources of the package. folder: of it."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._folder = folder
        self._modules: dict[str, _Module | None] = {}
        self._known: dict[Name, tuple[str, list[Name]]] = {}

    def sources_of(self, module: str, function: str) -> str:
        """All definitions that a function may use; of another package's one all that the kernel
        has, as what it calls is not known. Raises ImportError: one of them is nowhere.
        """
        kernel = self._folder.joinpath(*_KERNEL.split(".")[1:])
        every = [(_KERNEL, file.stem) for file in kernel.glob("[!_]*.py")]
        todo: list[Name] = [(module, function)] if module.startswith("rltuned.") else every
        found: dict[Name, str] = {}
        while todo:
            name = todo.pop()
            if name not in found:
                found[name], more = self._used(*name)
                todo += more
        return "".join(found[name] for name in sorted(found))

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            place = self._folder.joinpath(*name.split(".")[1:])
            files = [f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()]
            self._modules[name] = _Module(files[0].read_text("utf-8")) if files else None
        return self._modules[name]

    def _used(self, where: str, what: str) -> tuple[str, list[Name]]:
        """The text of a definition, and what it uses itself."""
        if (where, what) not in self._known:
            self._known[where, what] = self._look_up(where, what)
        return self._known[where, what]

    def _look_up(self, where: str, what: str) -> tuple[str, list[Name]]:
        inner = f"{where}.{what}"
        if (whole := self._module(inner)) is not None:
            return "", [(inner, name) for name in whole.defined]
        here = self._module(where)
        if here is not None and what in here.imported:
            return "", [here.imported[what]]
        if here is None or what not in here.defined:
            raise ImportError(f"{where} defines no {what}")
        nodes = here.defined[what]
        names = {name for node in nodes for name in _uses(node)}
        taken = [here.imported[name] for name in names & here.imported.keys()]
        own = [(where, name) for name in names & here.defined.keys()]
        return "".join(map(here.text, nodes)), [*taken, *own]
