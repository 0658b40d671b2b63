"""One clear line for what a user gets wrong, and nothing pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libra_ps as libra
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

T = torch.tensor


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        (T([3, -1]), IndexError, 'table "item": id -1 at position 1 is out of range: ids are from 0 to 9'),
        (T([10]), IndexError, "id 10 at position 0 is out of range"),
        (T([[0, 1], [2, 99]], dtype=torch.int32), IndexError, "id 99 at position 3"),
        (T([1.0]), TypeError, "input must be int64 or int32, not torch.float32"),
        (T([True]), TypeError, "input must be int64 or int32, not torch.bool"),
        (T([1], dtype=torch.uint64), TypeError, "not torch.uint64: view(.*) keeps the bits"),
        ([1, 2], TypeError, "input must be a tensor of integers, not list"),
    ],
)
def test_bad_ids(ids: Any, error: type, text: str) -> None:
    module = libra.nn.Embedding(10, 2, name="item")
    with pytest.raises(error, match=text):
        module(ids)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((T([1, 2]), None), ValueError, "offsets are needed for an input of one dimension"),
        ((T([[1, 2]]), T([0])), ValueError, "offsets are for an input of one dimension"),
        ((T([1, 2]), T([0, 2, 1])), ValueError, "offset 1 at position 2 is below the one before, 2"),
        ((T([1, 2]), T([0, 3])), ValueError, "offset 3 at position 1 is beyond the input of 2 ids"),
        ((T([1, 2]), T([1])), ValueError, "offsets begin at 1, they must begin at 0"),
        ((T([1, 2]), T([], dtype=torch.int64)), ValueError, "offsets are empty"),
        ((T([1, 2]), T([[0]])), ValueError, "offsets must have one dimension, not 2"),
        ((T([1, 2]), T([0.0])), TypeError, "offsets must be int64 or int32"),
        ((T([1, 2]), T([0]), T([1.0])), ValueError, r"per_sample_weights have the shape \(1,\), input has \(2,\)"),
        ((T(1), T([0])), ValueError, "input must have one or two dimensions, not 0"),
    ],
)
def test_bad_bags(arguments: Any, error: type, text: str) -> None:
    module = libra.nn.EmbeddingBag(10, 2, mode="sum", name="item")
    with pytest.raises(error, match=text):
        module(*arguments)


def test_weights_are_for_sums() -> None:
    module = libra.nn.EmbeddingBag(10, 2, mode="mean")
    with pytest.raises(NotImplementedError, match='per_sample_weights are for mode "sum", not "mean"'):
        module(T([[1]]), per_sample_weights=T([[1.0]]))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((10, 0), {}, ValueError, "embedding_dim = 0 must be at least 1"),
        ((10, 2**33), {}, ValueError, "embedding_dim = 8589934592 must be at most 67,107,840"),
        ((0, 4), {}, ValueError, "num_embeddings = 0 must be at least 1"),
        ((10.0, 4), {}, TypeError, "num_embeddings = 10.0 must be an integer"),
        ((10, 4), {"init": 0.1}, TypeError, r"init = 0.1 must be made by libra_ps.Normal, .* as in Normal\(0.01\)"),
        ((10, 4), {"padding_idx": 10}, ValueError, "padding_idx = 10 must be within num_embeddings = 10"),
        ((10, 4), {"max_norm": 1.0}, libra.NotSupported, "max_norm changes rows while they are read: set clip="),
        ((10, 4), {"name": "a/b"}, ValueError, "must not have a slash"),
        ((10, 4), {"hash": True}, ValueError, "set num_embeddings=None"),
        ((10, 4), {"dtype": torch.float64}, libra.NotSupported, "set output_dtype=torch.float64"),
        ((10, 4), {"admission": 3}, TypeError, r"admission = 3 must be made by .* as in Admission\(after=3\)"),
        ((10, 4), {"eviction": 3}, TypeError, r"eviction = 3 must be made by .* as in Eviction\(idle_steps=1000\)"),
        ((10, 4), {"frozen": [3, 10]}, IndexError, "frozen id 10 is out of range: ids are from 0 to 9"),
        ((10, 4), {"frozen": 3}, TypeError, r"frozen = 3 must be ids, as in frozen=\[0, 1\]"),
        ((10, 4), {"frozen": [0.5]}, TypeError, "frozen = 0.5 must be an integer"),
        ((10, 4), {"frozen": T([True, False])}, TypeError, "frozen must be ids of one dimension: for a mask"),
        (
            (10, 4),
            {"double_backward": True, "scale_grad_by_freq": True},
            libra.NotSupported,
            "double_backward=True with scale_grad_by_freq",
        ),
        ((10, 4), {"sparce": True}, TypeError, "unexpected keyword argument 'sparce'"),
        ((10, 4), {"_weight": torch.zeros(9, 4)}, ValueError, r"rows have the shape \(9, 4\), the module has \(10, 4\)"),
    ],
)
def test_bad_modules(arguments: Any, options: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        libra.nn.Embedding(*arguments, **options)


@pytest.mark.parametrize("function", [libra.save, libra.load])
def test_checkpoints_are_of_modules(function: Any, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1, "tables": {}}')
    with pytest.raises(TypeError, match="model = None must be a torch.nn.Module"):
        function(tmp_path, None)


def test_ids_of_open_tables_end_at_2_56() -> None:
    module = libra.nn.Embedding(None, 2, name="url")
    for id in (1 << 56, -1):
        text = f'table "url": id {id} at position 0 .*; a table with hash=True takes any of 64 bits'
        with pytest.raises(IndexError, match=text):
            module(T([id]))
    assert libra.nn.Embedding(None, 2, name="hashed", hash=True)(T([-1])).shape == (1, 2)


class Looks(Dataset[torch.Tensor]):
    """A data set that looks rows up in the worker of a DataLoader."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.module(T([index])).detach()  # type: ignore[no-any-return]


def test_a_lookup_in_a_dataloader_worker_is_refused() -> None:
    module = libra.nn.Embedding(10, 2, name="item")
    module(T([1]))
    loader = DataLoader(Looks(module), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(libra.Forked, match="look rows up in the main process"):
        list(loader)
    module(T([1]))


def test_an_unknown_table_in_rules_is_named() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2, name="item"))
    with pytest.raises(ValueError, match='tables= names "itme", the model has item'):
        libra.optim.wrap(torch.optim.SGD(model.parameters(), 1.0), model, tables={"itme": libra.optim.SGD(1.0)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda weight: torch.nn.init.constant_(weight, 2.0), "rows that begin at 2.0 are not there yet"),
        (lambda weight: weight.normal_(1.0, 1.0), "rows with the mean 1.0"),
        (lambda weight: weight.uniform_(0.0, 1.0), "rows between 0.0 and 1.0"),
        (lambda weight: weight.sum(), "sum of the rows of a table"),
        (lambda weight: weight @ torch.ones(2), "libra_ps.functional.rows"),
        # Functions of torch that leave tensors without values as they are.
        (lambda weight: torch.nn.init.trunc_normal_(weight, std=0.02), "initial values are set by normal_"),
        (lambda weight: torch.nn.init.orthogonal_(weight), "initial values are set by normal_"),
        (lambda weight: torch.nn.init.sparse_(weight, 0.1), "sparse_ of the rows .* initial values are set by normal_"),
        (lambda weight: torch.nn.init.eye_(weight), "eye_ of the rows"),
        (lambda weight: torch.nn.init.ones_(weight), "rows that begin at 1.0"),
    ],
)
@pytest.mark.parametrize("rows", [10, None])
def test_the_weight_has_no_values(rows: int | None, change: Any, text: str) -> None:
    module = libra.nn.Embedding(rows, 2, init=libra.Normal(0.25))
    with pytest.raises(libra.NotSupported, match=text):
        change(module.weight)
    assert module.table.definition.initial == libra.Normal(0.25)


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.init.xavier_normal_,
        torch.nn.init.xavier_uniform_,
        torch.nn.init.kaiming_normal_,
        lambda weight: torch.nn.init.kaiming_uniform_(weight, mode="fan_out"),
    ],
)
def test_the_weight_of_an_open_table_has_no_number_of_rows(change: Any) -> None:
    module = libra.nn.Embedding(None, 2)
    with pytest.raises(libra.NotSupported, match='table "without a name" has no bound, so'):
        change(module.weight)
    torch.nn.init.normal_(module.weight, std=0.5)
    assert module.table.definition.initial == libra.Normal(0.5)


def test_the_weight_is_not_assigned() -> None:
    with pytest.raises(libra.NotSupported, match=r"weight.copy_\(values\) loads rows"):
        libra.nn.Embedding(10, 2).weight = torch.nn.Parameter(torch.zeros(10, 2))  # type: ignore[misc, assignment]
    with pytest.raises(libra.NotSupported, match="has no bound, so not all of its rows can be set"):
        libra.nn.Embedding(None, 2).weight.copy_(torch.zeros(10, 2))


def test_wrap_names_what_it_was_given() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with pytest.raises(TypeError, match="model must be a module, not SGD"):
        libra.wrap(optimizer, model)  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"those of libra_ps.nn take libra_ps.optim.wrap"):
        libra.wrap(model, optimizer)
    with pytest.raises(TypeError, match=r"not Sequential and SGD: call wrap\(optimizer, model\)"):
        libra.optim.wrap(model, optimizer)  # type: ignore[type-var, arg-type]


def test_collections_name_bad_features() -> None:
    Config = libra.nn.TableConfig
    with pytest.raises(ValueError, match='two tables are named "a"'):
        libra.nn.EmbeddingBagCollection([Config("a", 10, 2), Config("a", 10, 2)])
    with pytest.raises(ValueError, match='the feature "f" is of two tables'):
        libra.nn.EmbeddingBagCollection([Config("a", 10, 2, ["f"]), Config("b", 10, 2, ["f"])])
    collection = libra.nn.EmbeddingBagCollection([Config("a", 10, 2)])
    with pytest.raises(KeyError, match='there is no feature "b": the collection has a'):
        collection({"b": T([[1]])})
    with pytest.raises(ValueError, match='feature "a": offsets are needed'):
        collection({"a": T([1])})
    with pytest.raises(TypeError, match='feature "a": input must be int64 or int32, not torch.float32'):
        collection({"a": T([[1.0]])})
    with pytest.raises(TypeError, match='feature "a": a tensor, or a tuple of values, offsets and weights'):
        collection({"a": [[1, 2]]})
    with pytest.raises(TypeError, match="input must be a dict of features or a KeyedJaggedTensor, not Tensor"):
        collection(T([[1]]))
    with pytest.raises(TypeError, match='features = "user" must be a list of names'):
        Config("a", 10, 2, "user")  # type: ignore[arg-type]
    both = libra.nn.EmbeddingBagCollection([Config("a", 10, 2), Config("b", 10, 2)])
    with pytest.raises(ValueError, match='feature "b" has 3 bags, and "a" has 2: features of one call'):
        both({"a": T([[1], [2]]), "b": (T([1]), T([0, 1, 1]))})
    with pytest.raises(TypeError, match=r"take one of its tables, as in module.tables\[name\]"):
        libra.functional.rows(collection, T([1]))
