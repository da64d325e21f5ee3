"""Operations on tensors of a GPU, in the order of its streams: what NCCL's works do, ours do."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from datetime import timedelta

import torch

from . import capture, errors, structs
from .tensor import write
from .work import McastWork

_NO_TIMEOUT = timedelta(0)


def place(tensor: torch.Tensor, timeout: timedelta) -> structs.StreamStruct | None:
    """Return where an operation on a tensor takes place: behind what its device's current stream has.

    None stands for the CPU.
    """
    if tensor.device.type != "cuda":
        return None
    refuse_capture(tensor.device)
    _used.add(tensor.device)
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    limit_ms = max(1, math.ceil(timeout.total_seconds() * 1000))  # 0 would be no limit
    return structs.stream_at(tensor.device.index, stream, limit_ms)


def refuse_capture(device: torch.device) -> None:
    """Raise an error while the device's current stream records a CUDA graph."""
    capture.refuse(device, "hold an operation of the host", "run collectives outside of torch.cuda.graph")


class CopyIn:
    """Copies parts in memory of the host to outputs on a device, behind what its stream had when it was made.

    Who asks whether an operation is done must not wait for the stream, in which another operation may stand that
    needs this one: until ready() the operation is not done.
    """

    def __init__(self, outputs: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> None:
        """Note how far the current stream of the outputs' device has come."""
        self._outputs, self._parts, self._device = outputs, parts, outputs[0].device
        refuse_capture(self._device)
        self._before = torch.cuda.current_stream(self._device).record_event()

    def ready(self) -> bool:
        """Say whether the stream has come that far."""
        try:
            with capture.beside():
                return bool(self._before.query())
        except RuntimeError:  # the device has failed: the copy says so
            return True

    def __call__(self) -> None:
        """Copy, on a stream of its own, and wait for the end."""
        stream = _beside(self._device)
        with capture.beside(), torch.cuda.stream(stream):
            for output, part in zip(self._outputs, self._parts, strict=True):
                write(output, part)
            stream.synchronize()


def failed() -> bool:
    """Say whether a device that operations took place on has failed, which it then does for good."""
    try:
        for device in _used:
            with capture.beside():
                if not capture.recording(device):  # such a stream must not be asked
                    torch.cuda.current_stream(device).query()
    except RuntimeError:
        return True
    return False


def made_here(kept: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in memory that is not memory of any tensor given by the program."""
    known = {tensor.untyped_storage().data_ptr() for tensor in given}
    return [tensor for tensor in kept if tensor.untyped_storage().data_ptr() not in known]


class DeviceWork(McastWork):
    """An operation in flight on tensors of a GPU.

    wait() returns at once and makes the current stream wait. The work keeps its tensors until then, or until
    it is done. A program that waits on another stream than the one that a tensor was allocated on must tell
    the allocator (Tensor.record_stream), as with NCCL; for temporaries the work does so. is_completed() and
    the future tell whether the results are there.
    """

    temporaries: Sequence[torch.Tensor] = ()  # tensors that the program does not hold
    _copied: torch.cuda.Event | None = None  # recorded behind the copy from staging to outputs
    _lost: Exception | None = None  # why that copy was not queued
    _device: torch.device
    _followed = False  # a stream was made to wait for the results
    _waited: Sequence[weakref.ref[torch.Tensor]] = ()  # the outputs, once they are not kept

    def follow_up(self, device: torch.device) -> None:
        """Queue the copy from staging to outputs, if there is one, behind the operation. Called once.

        If that fails the operation goes on, and wait() raises the error.
        """
        self._device = device
        if self._finish is None:
            return
        try:
            stream = _beside(device)
            self._group.lib.follow(self._handle, stream.cuda_stream)
            with torch.no_grad(), torch.cuda.stream(stream):
                self._finish()
                self._copied = stream.record_event()
        except Exception as e:
            if isinstance(e, errors.McastError):
                self._sign(e)
            self._lost = e
        self._finish = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Have the current stream wait for the results, and return at once.

        With a timeout it blocks until they are there, and raises WaitTimeoutError after that long. An
        operation that has failed by now raises its error. While the stream records a CUDA graph, only a wait
        with a timeout is allowed.
        """
        if timeout > _NO_TIMEOUT:
            return super().wait(timeout)
        self._refuse_capture()
        if not self.poll():
            stream = torch.cuda.current_stream(self._device)
            self._follow(stream)
            if self._lost is not None:
                raise self._lost
            self._followed = True
            self._drop_tensors(stream)
        if self._error is not None:
            raise self._error
        return True

    def _drop_tensors(self, stream: torch.cuda.Stream) -> None:
        """Keep no tensor any more: the order of streams does, of temporaries with the one that waits."""
        for tensor in self.temporaries:
            tensor.record_stream(stream)
        self.temporaries = ()
        if self._future is None and self._outputs:
            self._waited = [weakref.ref(tensor) for tensor in self._outputs]
            self._outputs = []
        self._keep = ()

    def _outcome(self) -> list[torch.Tensor]:
        outputs = super()._outcome()
        return outputs or [tensor for ref in self._waited if (tensor := ref()) is not None]

    def _refuse_capture(self) -> None:
        capture.refuse(
            self._device,
            f"wait for {self._name}, which is not part of it",
            "wait before torch.cuda.graph, or with a timeout, which blocks the host",
        )

    def _follow(self, stream: torch.cuda.Stream) -> None:
        try:
            self._group.lib.follow(self._handle, stream.cuda_stream)
        except errors.McastError as e:
            if self._done:  # another thread has just found it done, and the library has forgotten it
                return
            self._group.failed = True
            self._sign(e)
            raise
        finally:
            if self._copied is not None:
                stream.wait_event(self._copied)

    def poll(self) -> bool:
        """Say whether the results are there, or never will be, without blocking."""
        return (self._done or self._queued_and_copied()) and super().poll()

    def _queued_and_copied(self) -> bool:
        if self._finish is not None:  # another thread asks, before follow_up
            return False
        try:
            if self._copied is None:
                return True
            with capture.beside():
                return bool(self._copied.query())
        except RuntimeError:  # the device has failed, and will not copy
            return True

    def result(self) -> list[torch.Tensor]:
        """Return the output tensors that the program has, and have the current stream wait for them."""
        self.wait()
        return self._outcome()

    def synchronize(self) -> None:
        """Have the current stream wait, as wait() does."""
        self.wait()

    def _end(self, error: Exception | None) -> None:
        try:
            if self._copied is not None:
                with capture.beside():
                    self._copied.synchronize()
        except RuntimeError as e:
            error = error or e
        super()._end(error or self._lost)
        self.temporaries = ()

    def _waited_for(self) -> bool:
        if capture.recording(self._device):  # the graph cannot wait: a watcher completes the future
            return self._done
        if not self._done and self._followed:
            self._follow(torch.cuda.current_stream(self._device))
        return self._done or self._followed

    def _new_future(self) -> torch.futures.Future[None]:
        return torch.futures.Future(devices=[self._device])


_used: set[torch.device] = set()
_streams: dict[torch.device, torch.cuda.Stream] = {}


def _beside(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that copies from staging to tensors that are not contiguous."""
    stream = _streams.get(device)
    if stream is None:
        stream = _streams[device] = torch.cuda.Stream(device)
    return stream
