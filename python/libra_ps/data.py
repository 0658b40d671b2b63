"""Samples of a job, dealt to its workers in chunks.

    chunks = libra_ps.data.Chunks(len(samples), batch_size=1024, epochs=20)
    for epoch in chunks:
        for batch in epoch:                          # numbers of samples, a numpy array
            train(samples[batch])
        for batch in epoch.loader(dataset):          # or: what a DataLoader of torch makes of them
            train(batch)

A chunk is a run of the samples of an epoch, in an order that follows from the seed of the session and the number of the epoch.
The controller gives a worker the lease of one chunk after the other; a chunk is done when all that was pushed for it
can be read. So a slow worker does less, one that comes later takes part at once, and the chunks of one that dies are dealt again.
Checkpoints of the controller have the position in the samples, and a controller that resumes at one goes on there.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import Error
from .session import Session, current

if TYPE_CHECKING:
    import torch.utils.data

#: Most samples of a chunk, unless its size is given.
CHUNK_SAMPLES_MAX = 1 << 16

#: Chunks of an epoch at least, unless their size is given or there are fewer batches.
CHUNKS_MIN = 64

_Numbers = npt.NDArray[np.int64]


class _Dealer(Protocol):
    """Where chunks come from. Phase 0 sets rows, and phase n is epoch n."""

    @property
    def phase(self) -> int: ...

    def next(self) -> tuple[int, int] | None:
        """Returns the next chunk, and how many of its batches were trained before. None: the epoch is over, or a chunk is to be finished first."""

    def finish(self, chunk: int, account: str) -> None: ...


class Chunks:
    """The samples of a job, which are numbered from 0, in epochs. All workers of a job define the same, before they begin to train.

    `shuffle=True` draws a new order of all samples for each epoch, which takes 8 bytes of memory a sample; with
    `shuffle="chunks"` it is the order of chunks and that of the samples in each, for data that are read in runs. A chunk has
    `chunk_samples`, whole batches by default. `name` describes the data: a job resumes with data of the same name and size.

    In a process alone there is one worker, which gets all chunks.
    """

    def __init__(
        self,
        samples: int,
        *,
        batch_size: int,
        epochs: int = 1,
        shuffle: bool | str = True,
        chunk_samples: int | None = None,
        name: str = "",
    ) -> None:
        for what, value in (("samples", samples), ("batch_size", batch_size), ("epochs", epochs)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{what} = {value!r} must be a number of at least 1")
        if shuffle not in (True, False, "chunks"):
            raise ValueError(f'shuffle = {shuffle!r} must be True, False or "chunks"')
        if chunk_samples is None:
            most = max(1, min(CHUNK_SAMPLES_MAX, samples // CHUNKS_MIN) // batch_size)
            chunk_samples = most * batch_size
        if isinstance(chunk_samples, bool) or not isinstance(chunk_samples, int) or chunk_samples < 1:
            raise ValueError(f"chunk_samples = {chunk_samples!r} must be a number of at least 1")
        if epochs > 1 << 16:
            raise ValueError(f"epochs = {epochs} must be at most 65,536")
        if samples > chunk_samples << 20:
            raise ValueError(f"chunk_samples = {chunk_samples}: an epoch has at most 1,048,576 chunks, make them larger")
        if not name.isprintable() or len(name) > 200:
            raise ValueError(f"name = {name!r} must be at most 200 printable characters")
        self.samples = samples
        self.batch_size = batch_size
        self.epochs = epochs
        self.shuffle = shuffle
        self.chunk_samples = chunk_samples
        self.name = name
        #: Chunks of an epoch.
        self.count = -(-samples // chunk_samples)
        self._session = current()
        self._session.deal(self, self.description)
        self._alone: _Alone | None = None if self._session.is_cluster else _Alone(self)
        self._epoch: Epoch | None = None

    @property
    def batches_of_chunk(self) -> int:
        """Batches of a chunk, but of the last one."""
        return -(-self.chunk_samples // self.batch_size)

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        last = self.samples - (self.count - 1) * self.chunk_samples
        return (self.count - 1) * self.batches_of_chunk + -(-last // self.batch_size)

    @property
    def description(self) -> str:
        """What must be the same in all workers, and in a job that resumes."""
        order = {True: "in an order", False: "in their own order", "chunks": "in an order of chunks"}[self.shuffle]
        named = f'"{self.name}", ' if self.name else ""
        return f"{named}{self.samples:,} samples {order}, in chunks of {self.chunk_samples:,}"

    def __repr__(self) -> str:
        return f"<libra_ps.data.Chunks: {self.description}, batches of {self.batch_size:,}, {self.epochs:,} epochs>"

    def __iter__(self) -> Iterator[Epoch]:
        """Goes through the epochs that are left: of a worker that comes late, or of a job that resumes, from the present one on."""
        dealer = self._dealer()
        before = dealer.phase
        while dealer.phase <= self.epochs:
            self._epoch = Epoch(self, dealer, dealer.phase - 1)
            yield self._epoch
            if dealer.phase == before:
                raise Error(
                    f"epoch {before} is not over, and this worker has asked for the next: iterate over an epoch to its end, as the "
                    "others wait for its chunks; a worker that is to stop leaves both loops, and gives its chunks back"
                )
            before = dealer.phase

    def _dealer(self) -> _Dealer:
        self._session.begin()
        return self._alone or _Leases(self._session)

    def state_dict(self) -> dict[str, int]:
        """Returns the position of a process alone, to be saved with the model: the epoch, and the batches of it that were trained.

        In a cluster the controller has the position, and each of its checkpoints.
        """
        alone = self._of_alone()
        if self._epoch is None or self._epoch.is_over:
            return {"epoch": alone.phase - 1, "batches": alone.batches}
        epochs, batches = divmod(alone.batches + self._epoch.trained, self.batches)
        return {"epoch": self._epoch.number + epochs, "batches": batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on at a position, before the first batch: those before it are not trained again."""
        alone = self._of_alone()
        if self._epoch is not None:
            raise Error("load the position before the first epoch begins")
        epoch, batches = state["epoch"], state["batches"]
        if not 0 <= epoch <= self.epochs or not 0 <= batches < self.batches:
            raise ValueError(f"{state} is no position in {self.epochs:,} epochs of {self.batches:,} batches")
        alone.begin(epoch + 1, batches)

    def _of_alone(self) -> _Alone:
        if self._alone is None:
            raise Error(
                "the position of a job of several workers is in the checkpoints of its controller: libra job checkpoint makes one, "
                "and libra controller --tables workers --resume goes on there"
            )
        return self._alone

    def _order(self, epoch: int) -> _Numbers | None:
        """The order of the samples of an epoch, or of its chunks; None if they are in their own."""
        if self.shuffle is False:
            return None
        count = self.count if self.shuffle == "chunks" else self.samples
        return np.random.default_rng((self._session.seed, epoch)).permutation(count)

    def _of_chunk(self, epoch: int, chunk: int, order: _Numbers | None) -> _Numbers:
        """The samples of a chunk, in their order."""
        if order is not None and self.shuffle == "chunks":
            chunk = int(order[chunk])
        begin = chunk * self.chunk_samples
        end = min(begin + self.chunk_samples, self.samples)
        if order is not None and self.shuffle is True:
            return order[begin:end]
        numbers = np.arange(begin, end, dtype=np.int64)
        if self.shuffle == "chunks":
            np.random.default_rng((self._session.seed, epoch, chunk)).shuffle(numbers)
        return numbers


class Epoch:
    """The batches that this worker gets in an epoch. The epoch is over when those of all workers are trained."""

    def __init__(self, chunks: Chunks, dealer: _Dealer, number: int) -> None:
        #: Its number, from 0 on.
        self.number = number
        self._chunks = chunks
        self._dealer = dealer
        self._session = current()
        self._order = chunks._order(number)
        #: Of each batch that was dealt and not trained, its samples, and the chunk that ends with it.
        self._dealt: collections.deque[tuple[int, int | None]] = collections.deque()
        #: Chunks whose batches were all trained, and the pushes before the last of them.
        self._trained: list[tuple[int, int]] = []
        self._samples, self._batches = 0, 0
        #: Pushes before the batch that was handed on last; none behind it.
        self._before: int | None = None

    @property
    def trained(self) -> int:
        """Batches of this worker that were trained, with that whose push was the last thing it did."""
        is_pushed = self._before is not None and self._before < self._session.pushes
        return self._batches + is_pushed

    @property
    def is_over(self) -> bool:
        """All its chunks are done, by this worker or others."""
        return self._dealer.phase > self.number + 1

    def __iter__(self) -> Iterator[_Numbers]:
        """Goes through batches, as numbers of samples. With the next one, a batch is trained."""
        while not self.is_over:
            yield from self._followed(self._batches_at_hand())

    def loader(
        self, dataset: torch.utils.data.Dataset[Any], **options: Any
    ) -> Iterator[Any]:
        """Goes through batches, as a `torch.utils.data.DataLoader` with these options makes them of a dataset that has samples by number.

        It may read ahead in processes of its own: a batch is trained when the next one is asked for, not when it is read.
        """
        import torch.utils.data

        for option in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if option in options:
                raise ValueError(f"{option}= is not for this loader: Chunks decides which samples are in a batch")
        while not self.is_over:
            sampler = _Sampler(self._batches_at_hand())
            loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, **options)
            yield from self._followed(loader)

    def _followed(self, batches: Any) -> Iterator[Any]:
        """Hands batches on, and finishes chunks behind them."""
        for batch in batches:
            self._before = before = self._session.pushes
            yield batch
            self._before = None
            samples, ends = self._dealt.popleft()
            self._samples += samples
            self._batches += 1
            if ends is not None:
                self._trained.append((ends, before))
            # Gradients may be kept back for a step behind later batches.
            if self._trained and self._trained[-1][1] < self._session.pushes:
                self._finish()
        self._finish()

    def _finish(self) -> None:
        account = json.dumps({"samples": self._samples, "batches": self._batches})
        for chunk, _ in self._trained:
            self._dealer.finish(chunk, account)
        self._trained.clear()

    def _batches_at_hand(self) -> Iterator[_Numbers]:
        """Deals batches, until the epoch is over or a chunk is to be finished first."""
        size = self._chunks.batch_size
        while not self.is_over:
            dealt = self._dealer.next()
            if dealt is None:
                return
            chunk, trained_before = dealt
            numbers = self._chunks._of_chunk(self.number, chunk, self._order)
            for begin in range(trained_before * size, len(numbers), size):
                batch = numbers[begin : begin + size]
                self._dealt.append((len(batch), chunk if begin + size >= len(numbers) else None))
                yield batch


class _Sampler:
    """Batches for a DataLoader, which hands single numbers to a dataset."""

    def __init__(self, batches: Iterator[_Numbers]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._batches)


class _Leases:
    """Chunks of a job of several workers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: Chunks that were begun and not finished.
        self._begun = 0

    @property
    def phase(self) -> int:
        return self._session.phase

    def next(self) -> tuple[int, int] | None:
        chunk = self._session.next_chunk(has_begun=self._begun > 0)
        if chunk is None:
            return None
        self._begun += 1
        return chunk, 0

    def finish(self, chunk: int, account: str) -> None:
        self._begun -= 1
        self._session.native.finish_chunk(chunk, account)


class _Alone:
    """All chunks one after the other, in a process alone."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self.begin(1, 0)

    def begin(self, phase: int, batches: int) -> None:
        """Goes on in a phase, of which so many batches were trained before."""
        self.phase = phase
        #: Batches of the phase that were trained before this process.
        self.batches = batches
        self._next, self._trained_before = divmod(batches, self._chunks.batches_of_chunk)
        self._left = self._chunks.count - self._next

    def next(self) -> tuple[int, int] | None:
        if self._next == self._chunks.count:
            return None
        dealt = self._next, self._trained_before
        self._next, self._trained_before = self._next + 1, 0
        return dealt

    def finish(self, chunk: int, account: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.begin(self.phase + 1, 0)
