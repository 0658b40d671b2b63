"""Modules of tables beyond look-ups: weights, conversion, collections, checkpoints."""

from __future__ import annotations

import copy
import resource
import signal
from pathlib import Path
from typing import Any

import libra_ps as libra
import pytest
import torch
from twin import Model, batch, difference, twins


def train(model: Any, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        model(x, y).mean().backward()
        optimizer.step()


# Weights


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda weight: torch.nn.init.normal_(weight, std=0.02), libra.Normal(0.02)),
        (lambda weight: torch.nn.init.uniform_(weight, -0.3, 0.3), libra.Uniform(0.3)),
        (lambda weight: torch.nn.init.zeros_(weight), libra.Zero()),
        (lambda weight: torch.nn.init.constant_(weight, 0.0), libra.Zero()),
        (lambda weight: weight.data.normal_(0.0, 0.5), libra.Normal(0.5)),
        (lambda weight: weight.data.uniform_(-0.25, 0.25), libra.Uniform(0.25)),
        (lambda weight: torch.nn.init.xavier_uniform_(weight), libra.Uniform((6 / 25) ** 0.5)),
        (lambda weight: torch.nn.init.xavier_normal_(weight), libra.Normal((2 / 25) ** 0.5)),
        (lambda weight: torch.nn.init.kaiming_uniform_(weight, a=5**0.5), libra.Uniform((1 / 5) ** 0.5)),
    ],
    ids=["normal", "uniform", "zeros", "constant", "data-normal", "data-uniform", "xavier-uniform", "xavier", "kaiming"],
)
def test_init_functions_set_initial_values(change: Any, expected: libra.Initial) -> None:
    module = libra.nn.Embedding(20, 5)
    change(module.weight)
    assert module.table.definition.initial.kind == expected.kind
    assert module.table.definition.initial.value == pytest.approx(expected.value)
    module(torch.tensor([1]))
    with pytest.raises(libra.Error, match="only be set before the first look-up"):
        torch.nn.init.zeros_(module.weight)


def test_weights_have_a_shape_and_take_rows() -> None:
    module = libra.nn.Embedding(20, 5, name="item")
    weight = module.weight
    assert weight.shape == (20, 5) and weight.dtype is torch.float32 and weight.requires_grad
    assert len(weight) == 20 and weight.numel() == 100 and weight.dim() == 2
    rows = torch.randn(20, 5)
    weight.data.copy_(rows)
    assert torch.equal(module.read_rows(), rows)
    weight.requires_grad = False
    assert not module.handle.requires_grad


def test_state_dicts_are_those_of_torch() -> None:
    (model, optimizer), (dense, _) = twins()
    train(model, optimizer)
    dense.load_state_dict(model.state_dict())
    assert difference(model, dense) == 0
    for value in dense.state_dict().values():
        value.add_(1.0)
    model.load_state_dict(dense.state_dict())
    assert difference(model, dense) == 0
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})
    with pytest.raises(RuntimeError, match=r"a.weight: rows have the shape \(2, 2\)"):
        model.load_state_dict({**dense.state_dict(), "a.weight": torch.zeros(2, 2)})


def test_state_dicts_of_large_tables_are_refused() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(200_000_000, 1), libra.nn.Embedding(100_000_000, 1))
    libra.nn.STATE_DICT_BYTES_MAX, before = 4 * 150, libra.nn.STATE_DICT_BYTES_MAX
    try:
        small = torch.nn.Sequential(libra.nn.Embedding(100, 1), libra.nn.Embedding(100, 1))
        with pytest.raises(libra.TooLarge, match=r"1\.weight: the tables have more than .* save them with libra_ps.save"):
            small.state_dict()
    finally:
        libra.nn.STATE_DICT_BYTES_MAX = before
    with pytest.raises(libra.TooLarge, match=r"1\.weight|0\.weight"):
        model[0].num_embeddings = 1 << 29
        model.state_dict()


# Conversion


def test_wrap_converts_a_model_in_place() -> None:
    torch.manual_seed(1)
    dense = Model(torch.nn.Embedding, torch.nn.EmbeddingBag)
    model = copy.deepcopy(dense)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    model, optimizer = libra.wrap(model, optimizer)
    assert isinstance(model.a, libra.nn.Embedding) and isinstance(model.b, libra.nn.EmbeddingBag)
    assert model.a.table.name == "a"
    twin = torch.optim.Adagrad(dense.parameters(), lr=0.1)
    for _ in range(20):
        x, y = batch()
        for each, its in ((model, optimizer), (dense, twin)):
            its.zero_grad()
            each(x, y).mean().backward()
            its.step()
    assert difference(model, dense) < 1e-6


def test_wrap_leaves_small_tables() -> None:
    model = torch.nn.ModuleDict({"big": torch.nn.Embedding(100, 2), "small": torch.nn.Embedding(10, 2)})
    libra.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0), min_rows=50, names={"big": "items"})
    assert isinstance(model["small"], torch.nn.Embedding)
    assert model["big"].table.name == "items"  # type: ignore[union-attr]


def test_wrap_never_materialises_meta_modules() -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Embedding(1 << 40, 16))
    libra.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert model[0](torch.tensor([(1 << 40) - 1])).shape == (1, 16)


def test_wrap_refuses_what_it_cannot_move() -> None:
    tied = torch.nn.ModuleList([torch.nn.Embedding(4, 2), torch.nn.Embedding(4, 2)])
    tied[1].weight = tied[0].weight  # type: ignore[assignment]
    with pytest.raises(libra.NotSupported, match="its weight is that of another module too"):
        libra.wrap(tied, torch.optim.SGD(tied.parameters(), lr=1.0))
    used = torch.nn.ModuleList([torch.nn.Embedding(4, 2)])
    optimizer = torch.optim.Adam(used.parameters())
    used[0](torch.tensor([1])).sum().backward()
    optimizer.step()
    with pytest.raises(libra.NotSupported, match="0: the optimizer has state of it"):
        libra.wrap(used, optimizer)
    with pytest.raises(ValueError, match="no nn.Embedding or nn.EmbeddingBag"):
        libra.wrap(torch.nn.Linear(1, 1), optimizer)


def test_rows_of_any_use_have_a_gradient() -> None:
    model = torch.nn.Sequential(libra.nn.Embedding(10, 2, init=libra.Zero()))
    optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
    rows, inverse = libra.functional.rows(model[0], torch.tensor([[4, 2], [4, 4]]))
    assert rows.shape == (2, 2) and inverse.tolist() == [[1, 0], [1, 1]]
    (rows[inverse] * torch.tensor(2.0)).sum().backward()
    optimizer.step()
    assert model[0].read_rows()[[2, 4]].tolist() == [[-2, -2], [-6, -6]]  # type: ignore[operator]


# Collections


def test_collections_are_their_bags() -> None:
    Config = libra.nn.TableConfig
    collection = libra.nn.EmbeddingBagCollection(
        [Config("item", 30, 4, ["item", "bought"]), Config("user", 20, 3, mode="mean")]
    )
    twin = libra.to_torch(collection)
    optimizer = libra.optim.wrap(torch.optim.SGD(collection.parameters(), lr=0.1), collection)
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(10):
        items, offsets = torch.randint(30, (9,)), torch.tensor([0, 2, 2])
        bought, users = torch.randint(30, (3, 2)), torch.randint(20, (3, 1))
        weights = torch.rand(9)
        mine = collection({"item": (items, offsets, weights), "bought": bought, "user": users})
        tables: Any = twin.tables
        theirs = {
            "item": tables["item"](items, offsets, weights),
            "bought": tables["item"](bought),
            "user": tables["user"](users),
        }
        assert mine.keys() == theirs.keys()
        for name, output in mine.items():
            torch.testing.assert_close(output, theirs[name])
        for outputs, its in ((mine, optimizer), (theirs, other)):
            its.zero_grad()
            sum(output.square().sum() for output in outputs.values()).backward()  # type: ignore[union-attr]
            its.step()
    for name in ("item", "user"):
        torch.testing.assert_close(collection.tables[name].read_rows(), tables[name].weight.detach())  # type: ignore[operator]


@pytest.mark.parametrize("second", [False, True])
def test_weights_of_collections_have_the_gradient_of_torch(second: bool) -> None:
    Config = libra.nn.TableConfig
    collection = libra.nn.EmbeddingBagCollection(
        [Config("item", 30, 4, ["item", "bought"], double_backward=second), Config("user", 20, 3)]
    )
    twin: Any = libra.to_torch(collection)
    optimizer = libra.optim.wrap(torch.optim.SGD(collection.parameters(), lr=0.1), collection)
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    # Rows of one table have gradients of both ways.
    for _ in range(10):
        items, offsets, bought = torch.randint(30, (9,)), torch.tensor([0, 2, 2]), torch.randint(30, (3, 2))
        users, some = torch.randint(20, (3, 2)), torch.rand(3, 2)
        mine, theirs = torch.rand(9).requires_grad_(), torch.zeros(9).requires_grad_()
        with torch.no_grad():
            theirs.copy_(mine)
        outputs = collection({"user": (users, None, some), "item": (items, offsets, mine), "bought": bought})
        assert list(outputs) == ["user", "item", "bought"]
        tables = twin.tables
        expected = [tables["user"](users, None, some), tables["item"](items, offsets, theirs), tables["item"](bought)]
        for found, its in ((list(outputs.values()), optimizer), (expected, other)):
            its.zero_grad()
            torch.stack([output.square().sum() for output in found]).sum().backward()
            its.step()
        torch.testing.assert_close(mine.grad, theirs.grad)
    for name in ("item", "user"):
        torch.testing.assert_close(collection.tables[name].read_rows(), twin.tables[name].weight.detach())  # type: ignore[operator]


def test_weights_of_collections_may_have_a_gradient_while_rows_have_none() -> None:
    collection = libra.nn.EmbeddingBagCollection([libra.nn.TableConfig("a", 10, 2)])
    collection.requires_grad_(False)
    weights, ids = torch.ones(1, 3, requires_grad=True), torch.tensor([[1, 2, 1]])
    collection({"a": (ids, None, weights)})["a"].sum().backward()
    torch.testing.assert_close(weights.grad, collection.tables["a"].read_rows()[ids].sum(2))  # type: ignore[operator]
    with torch.no_grad():
        assert not collection({"a": (ids, None, weights)})["a"].requires_grad


def test_outputs_of_collections_have_the_type_of_the_model() -> None:
    collection = libra.nn.EmbeddingBagCollection([libra.nn.TableConfig("a", 10, 2), libra.nn.TableConfig("b", 10, 2)])
    features = {"a": torch.tensor([[1, 2]]), "b": (torch.tensor([[1]]), None, torch.ones(1, 1, requires_grad=True))}
    expected = collection(features)
    for name, output in collection.bfloat16()(features).items():
        assert output.dtype is torch.bfloat16
        torch.testing.assert_close(output, expected[name].bfloat16())


def test_features_without_a_gradient_are_left_out() -> None:
    Config = libra.nn.TableConfig
    collection = libra.nn.EmbeddingBagCollection([Config("a", 10, 2, init=libra.Zero()), Config("b", 10, 2)])
    optimizer = libra.optim.wrap(torch.optim.SGD(collection.parameters(), lr=1.0), collection)
    outputs = collection({"a": torch.tensor([[1, 2]]), "b": torch.tensor([[3]])})
    outputs["a"].sum().backward()
    optimizer.step()
    counts = libra.stats()["tables"]
    assert (counts["a"]["rows_pushed"], counts["b"]["rows_pushed"]) == (2, 0)


# Checkpoints


def make() -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(9)
    model = Model(libra.nn.Embedding, libra.nn.EmbeddingBag)
    return model, libra.optim.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)


def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    def losses(model: Model, optimizer: torch.optim.Optimizer) -> list[float]:
        torch.manual_seed(4)
        found = []
        for _ in range(5):
            x, y = batch()
            optimizer.zero_grad()
            loss = model(x, y).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    model, optimizer = make()
    train(model, optimizer)
    libra.save(tmp_path / "c", model, optimizer, epoch=3)
    expected = losses(model, optimizer)
    libra.shutdown()
    libra.init(seed=7)
    model, optimizer = make()
    train(model, optimizer, 2)
    assert libra.load(tmp_path / "c", model, optimizer) == {"epoch": 3}
    assert losses(model, optimizer) == expected


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    model, optimizer = make()
    libra.save(tmp_path, model, optimizer)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, optimizer)
    with pytest.raises(Exception, match="pickle"):
        libra.save(tmp_path, model, optimizer, bad=lambda: None)
    libra.load(tmp_path, model, optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    train(model, optimizer)
    libra.save(tmp_path, model, optimizer)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_a_disk_that_is_full_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    model, optimizer = make()
    train(model, optimizer)
    libra.save(tmp_path, model, optimizer)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, optimizer)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            libra.save(tmp_path, model, optimizer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "manifest.json"]
    libra.load(tmp_path, model, optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_checkpoints_of_other_models_are_refused(tmp_path: Path) -> None:
    model, optimizer = make()
    libra.save(tmp_path, model, optimizer)
    with pytest.raises(libra.Error, match="has no checkpoint: manifest.json is not there"):
        libra.load(tmp_path / "none", model)
    libra.shutdown()
    libra.init(seed=8)
    with pytest.raises(libra.Mismatch, match=r"follow from the seed 7, .* start it with init\(seed=7\)"):
        libra.load(tmp_path, make()[0])
    libra.shutdown()
    libra.init(seed=7)
    other = Model(libra.nn.Embedding, libra.nn.EmbeddingBag, rows=51)
    with pytest.raises(libra.Mismatch, match='table "a" has rows = 50, the model has 51'):
        libra.load(tmp_path, other)
    with pytest.raises(libra.Mismatch, match='has the tables "a", "b", the model has "0"'):
        libra.load(tmp_path, torch.nn.Sequential(libra.nn.Embedding(10, 2)))
    libra.shutdown()
    libra.init(seed=7)
    model = Model(libra.nn.Embedding, libra.nn.EmbeddingBag)
    libra.optim.wrap(torch.optim.Adagrad(model.parameters()), model)
    with pytest.raises(libra.Mismatch, match='table "a" was trained with adam, the model has adagrad'):
        libra.load(tmp_path, model)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(libra.Error, match="is no manifest"):
        libra.load(tmp_path, model)


def test_tables_with_eviction_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    def make_one(eviction: libra.Eviction | None) -> tuple[Any, torch.optim.Optimizer]:
        libra.shutdown()
        libra.init(seed=7)
        model = torch.nn.Sequential(libra.nn.Embedding(None, 2, eviction=eviction))
        return model, libra.optim.wrap(torch.optim.Adagrad(model.parameters(), lr=0.1), model)

    def step(model: Any, optimizer: torch.optim.Optimizer, id: int) -> None:
        optimizer.zero_grad()
        model(torch.tensor([id])).sum().backward()
        optimizer.step()

    model, optimizer = make_one(libra.Eviction(idle_steps=4))
    for id in range(10):
        step(model, optimizer, id)
    libra.save(tmp_path, model, optimizer)
    step(model, optimizer, 10)
    expected = model(torch.arange(12))
    model, optimizer = make_one(libra.Eviction(idle_steps=4))
    libra.load(tmp_path, model, optimizer)
    assert libra.stats()["tables"]["0"]["rows"] == 4
    step(model, optimizer, 10)
    assert torch.equal(model(torch.arange(12)), expected)
    for eviction in (None, libra.Eviction(rows_max=100)):
        with pytest.raises(libra.Mismatch, match='table "0" has eviction = idle, the model has'):
            libra.load(tmp_path, make_one(eviction)[0])


def test_collections_take_nested_tensors() -> None:
    collection = libra.nn.EmbeddingBagCollection([libra.nn.TableConfig("a", 10, 3)])
    parts = [torch.tensor([1, 2]), torch.tensor([3]), torch.tensor([], dtype=torch.int64)]
    found = collection({"a": torch.nested.nested_tensor(parts, layout=torch.jagged)})["a"]
    expected = collection({"a": (torch.cat(parts), torch.tensor([0, 2, 3]))})["a"]
    assert torch.equal(found, expected) and not found[2].any()


def test_sizes_are_integers_of_any_kind() -> None:
    module = libra.nn.Embedding(torch.tensor(10), torch.tensor(3))  # type: ignore[arg-type]
    assert type(module.num_embeddings) is int and type(module.embedding_dim) is int
    assert module(torch.tensor([9], dtype=torch.uint32)).shape == (1, 3)
