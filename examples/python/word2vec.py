"""Skip-gram with negative sampling (Mikolov et al. 2013) on a stream of text, without a vocabulary.

    python examples/python/word2vec.py --data ptb.train.txt
    python examples/python/word2vec.py                               # synthetic text, seconds

A word is a hash of its letters, and its row comes to be with its first gradient: nothing has to be counted or built before
training, and words that appear later need nothing either.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import libra_ps as libra


def id_of(word: str) -> int:
    """Returns 64 bits of a word, the same in every process."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little", signed=True)


class SkipGram(nn.Module):
    """The probability that two words stand near each other, from a row of each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.word = libra.nn.Embedding(None, width, hash=True, init=libra.Uniform(0.5 / width))
        self.context = libra.nn.Embedding(None, width, hash=True, init=libra.Zero())

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        """Returns a score of each of several contexts of each word."""
        rows: Tensor = self.word(words)
        scores: Tensor = self.context(contexts) @ rows[:, :, None]
        return scores.squeeze(2)


def read(path: Path) -> Iterator[str]:
    """Yields the words of a file, one after the other."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield from line.split()


def synthetic(words: int = 150_000, topics: int = 10, seed: int = 1) -> Iterator[str]:
    """Yields sentences of ten words. All words of a sentence are of one topic or of none, and named after it."""
    draw = random.Random(seed)
    for _ in range(words // 10):
        topic = draw.randrange(topics)
        for _ in range(10):
            rank = int(30 * draw.random() ** 2)
            yield f"topic{topic}-{rank}" if draw.random() < 0.7 else f"common-{rank}"


def pairs(words: list[int], window: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns words and one context of each, from a window whose size is drawn for each word."""
    ids = torch.tensor(words, dtype=torch.int64)
    sizes = torch.randint(1, window + 1, ids.shape, generator=draw)
    centers, contexts = [], []
    for distance in range(1, min(window, len(words) - 1) + 1):
        left, right = ids[:-distance], ids[distance:]
        centers += [left[sizes[:-distance] >= distance], right[sizes[distance:] >= distance]]
        contexts += [right[sizes[:-distance] >= distance], left[sizes[distance:] >= distance]]
    return torch.cat(centers), torch.cat(contexts)


def score(model: SkipGram, held_out: list[int], window: int) -> float:
    """Returns how often a word's true context has a higher score than a random word of the text; a tie counts half."""
    draw = torch.Generator().manual_seed(0)
    words, contexts = pairs(held_out, window, draw)
    others = contexts[torch.randperm(len(contexts), generator=draw)]
    model.eval()
    with torch.no_grad():
        scores = model(words, torch.stack([contexts, others], 1))
    model.train()
    return float(((scores[:, 0] > scores[:, 1]).float() + 0.5 * (scores[:, 0] == scores[:, 1]).float()).mean())


def neighbours(model: SkipGram, words: list[str], of: list[str], count: int = 5) -> dict[str, list[str]]:
    """Returns the words whose rows have the most similar directions."""
    with torch.no_grad():
        rows = nn.functional.normalize(model.word(torch.tensor([id_of(word) for word in words])), dim=1)
    found = {}
    for word in of:
        near = (rows @ rows[words.index(word)]).topk(count + 1).indices.tolist()
        found[word] = [words[place] for place in near if words[place] != word][:count]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a text file, words separated by blanks; synthetic text without it")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the text")
    parser.add_argument("--words", type=int, default=1_000_000, help="words of the text that are read at most")
    parser.add_argument("--embedding-dim", type=int, default=48, help="values of a row")
    parser.add_argument("--window", type=int, default=4, help="distance of two words that are near each other, at most")
    parser.add_argument("--negatives", type=int, default=5, help="random words of the text for each pair")
    parser.add_argument("--subsample", type=float, default=1e-3, help="words above this share are left out at times")
    parser.add_argument("--batch-size", type=int, default=2048, help="pairs of a step")
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate of Adam")
    parser.add_argument("--mode", choices=["async", "sync"], help="async updates rows beside the next step")
    parser.add_argument("--seed", type=int, default=1, help="of initial values and draws")
    parser.add_argument("--near", nargs="*", help="words to print the neighbours of, instead of some frequent ones")
    parser.add_argument("--json", action="store_true", help="print the summary as one line of JSON, and nothing else")
    arguments = parser.parse_args()
    libra.init(mode=arguments.mode, seed=arguments.seed)
    draw = torch.Generator().manual_seed(arguments.seed)
    model = SkipGram(arguments.embedding_dim)
    optimizer = libra.optim.wrap(torch.optim.Adam(model.parameters(), lr=arguments.lr), model)
    loss_of = nn.BCEWithLogitsLoss()

    # Counts are for leaving out frequent words and for printing. The tables do not need them.
    counts: Counter[str] = Counter()
    held_out: list[int] = []
    before, trained, begin = 0.5, 0, time.perf_counter()
    for epoch in range(arguments.epochs):
        text = itertools.islice(read(arguments.data) if arguments.data else synthetic(), arguments.words)
        total, seen = 0.0, 0
        while chunk := list(itertools.islice(text, 20_000)):
            counts.update(chunk if epoch == 0 else ())
            if not held_out:
                # The first tenth of the first chunk is not trained on.
                held_out = [id_of(word) for word in chunk[: len(chunk) // 10]]
                before = score(model, held_out, arguments.window)
            if seen == 0:
                chunk = chunk[len(chunk) // 10 :]
            kept = torch.rand(len(chunk), generator=draw).tolist()
            limit = arguments.subsample * counts.total()
            words = [id_of(word) for word, share in zip(chunk, kept) if share < (limit / counts[word]) ** 0.5]
            centers, contexts = pairs(words, arguments.window, draw)
            # Words of the chunk itself are as frequent as they are in the text.
            wrong = torch.randint(len(contexts), (len(contexts), arguments.negatives), generator=draw)
            contexts = torch.cat([contexts[:, None], contexts[wrong]], 1)
            for batch in torch.split(torch.randperm(len(centers), generator=draw), arguments.batch_size):
                scores = model(centers[batch], contexts[batch])
                is_right = torch.zeros_like(scores)
                is_right[:, 0] = 1.0
                loss = loss_of(scores, is_right)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
                seen += len(batch)
        trained += seen
        if not arguments.json:
            rate = trained / (time.perf_counter() - begin)
            print(f"epoch {epoch + 1}: loss {total / seen:.4f}, {len(counts):,} words, {rate:,.0f} pairs/s", file=sys.stderr)
    seconds = time.perf_counter() - begin
    after = score(model, held_out, arguments.window)
    frequent = [word for word, count in counts.most_common() if count >= 5]
    near = neighbours(model, frequent, arguments.near or frequent[20:400:80])
    if arguments.json:
        summary = {"score_before": before, "score": after, "loss": total / seen, "pairs_per_s": trained / seconds}
        print(json.dumps({**summary, "words": len(counts), "near": near}))
        return
    for word, others in near.items():
        print(f"{word:>16}: {', '.join(others)}")
    print(f"true contexts above random words: {after:.4f} ({before:.4f} before training)")


if __name__ == "__main__":
    main()
