"""What all operations share: to be posted to a lane of the library, and tracked as a work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from . import device, profile
from .capabilities import Capabilities
from .device import DeviceWork
from .group import Group, Lane
from .structs import StreamStruct
from .tensor import Finish
from .work import McastWork, MessageWork


class Posting(Capabilities):
    """A backend that posts operations to a group of the library."""

    group: Group

    def _post(
        self,
        operation: str,
        lane: Lane,
        start: Callable[[Group, StreamStruct | None], int],
        details: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        keep: tuple[torch.Tensor, ...],
        finish: Finish,
        opts: Any,
        kind: type[McastWork] = McastWork,
    ) -> McastWork:
        """Post an operation; start(group, where on a device) begins it and returns its handle.

        Args:
            operation: torch's name, for messages and profiles.
            lane: what it is posted to.
            start: called once.
            details: behind the name in messages.
            inputs: tensors of the program.
            outputs: tensors of the program that the results go to.
            keep: tensors with memory that the library reads or writes meanwhile.
            finish: copies from staging to outputs.
            opts: torch's options; None: the group's timeout.
            kind: MessageWork for what is no collective.
        """
        group, recorder = self.group, self._recorder
        number = 0 if kind is MessageWork else self._sequence
        timeout = opts.timeout if opts is not None and opts.timeout > timedelta(0) else self._timeout
        name = f"{operation} {details}".rstrip()
        at = device.place(keep[0], timeout) if keep else None
        event = profile.begin(operation, self.group_name, lane.name, number, self.size(), inputs, outputs)

        def track(handle: int) -> McastWork:
            work = (kind if at is None else DeviceWork)(
                group, lane, handle, name, outputs, keep, finish, timeout, number, recorder, event
            )
            if isinstance(work, DeviceWork):
                work.temporaries = device.made_here(keep, [*inputs, *outputs])
                work.follow_up(keep[0].device)
            return work

        try:
            return lane.post(lambda: start(group, at), track)
        except BaseException:
            profile.end(event)
            raise
