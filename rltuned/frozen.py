"""Frozen data classes of which a cycle makes tens of thousands.

Python sets each field of a frozen dataclass through object.__setattr__, which takes five times as
long as all else (8 microseconds for a pending job). Here an object is of a class that is not frozen
while its fields are set: the first one opens it, the end of __init__ closes it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as many
else:
    from collections.abc import Callable
    from dataclasses import dataclass, fields
    from typing import Any

    def many(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """As dataclass(frozen=True, slots=True), the one form that is known here."""
        if not (frozen and slots):
            raise TypeError("many() makes frozen classes with slots")
        return _frozen

    def _frozen(cls: type) -> type:
        check = vars(cls).get("__post_init__")
        names = {k: v for k, v in vars(cls).items() if k not in {"__dict__", "__weakref__"}}

        def close(self: Any) -> None:
            if check is not None:
                check(self)
            self.__class__ = closed

        def open_or_refuse(self: Any, name: str, value: object) -> None:
            if name != first or hasattr(self, first):
                refuse(self, name, value)
            object.__setattr__(self, "__class__", opened)
            setattr(self, name, value)

        names["__post_init__"] = close
        opened = dataclass(slots=True)(type(cls.__name__, cls.__bases__, names))
        closed = dataclass(frozen=True, slots=True)(cls)
        first, refuse = fields(closed)[0].name, closed.__setattr__
        closed.__init__, closed.__setattr__ = opened.__init__, open_or_refuse
        return closed


__all__ = ["many"]
