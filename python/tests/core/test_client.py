"""Rows as arrays."""

from __future__ import annotations

from collections.abc import Callable

import libra_ps as libra
import numpy as np
import pytest
from libra_ps.definitions import Rule

SGD = Rule("sgd", {"lr": 0.5})


@pytest.fixture
def client() -> libra.Client:
    client = libra.Client()
    client.add_table("item", 100, 2, SGD, init=libra.Zero())
    return client


def test_push_is_read(client: libra.Client) -> None:
    client.push("item", [7, 3], [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(client.pull("item", [3, 7, 3, 9]), [[-1.5, -2], [-0.5, -1], [-1.5, -2], [0, 0]])


def test_gradients_of_a_repeated_key_are_one_update() -> None:
    client = libra.Client()
    client.add_table("item", 10, 1, Rule("adagrad", {"lr": 1.0, "eps": 1e-10}), init=libra.Zero())
    client.push("item", np.array([4, 4]), np.array([[1.0], [2.0]]))
    np.testing.assert_allclose(client.pull("item", [4]), [[-1.0]], rtol=1e-6)


def test_tables_are_apart() -> None:
    client = libra.Client()
    client.add_table("a", 10, 1, SGD, init=libra.Zero())
    client.add_table("b", 10, 3, SGD, init=libra.Zero())
    client.add_table("open", None, 1, SGD, init=libra.Zero())
    client.push("a", [9], [[2.0]])
    client.push("b", [0], [[4.0, 4.0, 4.0]])
    client.push("open", [(1 << 56) - 1, 0], [[6.0], [8.0]])
    assert client.pull("a", [9, 0]).tolist() == [[-1.0], [0.0]]
    assert client.pull("b", [0]).tolist() == [[-2.0, -2.0, -2.0]]
    assert client.pull("open", [0, (1 << 56) - 1, 9]).tolist() == [[-4.0], [-3.0], [0.0]]


def test_any_id_is_taken_by_a_hashed_table() -> None:
    client = libra.Client()
    client.add_table("url", None, 1, SGD, init=libra.Zero(), hash=True)
    ids = np.array([-1, np.iinfo(np.int64).min, 1 << 60])
    client.push("url", ids, np.array([[1.0], [2.0], [3.0]]))
    assert client.pull("url", ids).tolist() == [[-0.5], [-1.0], [-1.5]]


def test_first_values_follow_from_the_seed() -> None:
    def first(seed: int) -> np.ndarray:
        libra.shutdown()
        libra.init(seed=seed)
        client = libra.Client()
        client.add_table("item", 1000, 8, SGD)
        return client.pull("item", np.arange(1000))

    rows = first(1)
    np.testing.assert_array_equal(rows, first(1))
    assert not np.array_equal(rows, first(2))
    assert abs(rows.mean()) < 0.05 and abs(rows.std() - 1) < 0.05


def test_dlpack_and_strides_are_taken(client: libra.Client) -> None:
    keys = np.arange(10)[::3]
    gradients = np.ones((2, 4), np.float64).T
    client.push("item", keys, gradients)
    assert client.pull("item", np.arange(5, dtype=np.int32)).tolist() == [[-0.5, -0.5], [0, 0], [0, 0], [-0.5, -0.5], [0, 0]]


@pytest.mark.parametrize(
    ("keys", "gradients", "error", "text"),
    [
        ([-1], [[1.0, 1.0]], IndexError, 'table "item": id -1 at position 0 is out of range: ids are from 0 to 99'),
        ([3, 100], [[1.0, 1.0]] * 2, IndexError, "id 100 at position 1"),
        ([1.5], [[1.0, 1.0]], TypeError, "keys must be signed integers, not float64"),
        ([True], [[1.0, 1.0]], TypeError, "keys must be signed integers, not bool"),
        (np.array([1], np.uint64), [[1.0, 1.0]], TypeError, "convert them with astype"),
        ([1], [[1.0]], ValueError, r"1 keys of width 2 need \(1, 2\)"),
        ([1], [[1, 1]], TypeError, "gradients must be floats, not int64"),
        ([1], [[1.0, np.nan]], libra.NotFinite, 'table "item": value 1 of the gradient of row 1 is NaN; nothing was pushed'),
        ([1, 1], [[3e38, 1.0], [3e38, 1.0]], libra.NotFinite, "value 0 of the gradient of row 1 is inf"),
    ],
)
def test_bad_push_changes_nothing(client: libra.Client, keys: object, gradients: object, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        client.push("item", keys, np.array(gradients))
    assert not client.pull("item", np.arange(100)).any()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("sgd", {"lr": 0.0}), 'table "item": rate = 0 must be finite and above 0'),
        (Rule("momentum", {"lr": 0.1, "momentum": 1.0, "nesterov": 0.0}), "momentum = 1 must be at least 0 and below 1"),
        (Rule("adam", {"lr": 0.1}), 'adam needs "eps"'),
        (Rule("adamm", {"lr": 0.1}), 'there is no optimizer "adamm"'),
        (Rule("sgd", {"lr": 0.1, "warmup": 1.5}), "warmup = 1.5 must be a number of steps"),
    ],
)
def test_bad_rules_are_refused(rule: Rule, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        libra.Client().add_table("item", 10, 1, rule)


def test_numbers_that_a_rule_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="sgd: zzz = 1 is no number of this rule: it has lr"):
        Rule("sgd", {"lr": 0.1, "zzz": 1})


@pytest.mark.parametrize(
    ("name", "rows", "width", "options", "error", "text"),
    [
        ("a/b", 10, 1, {}, ValueError, "must not have a slash"),
        ("a\nb", 10, 1, {}, ValueError, r"name = 'a\\nb' must not have a slash or a control character"),
        ("", 10, 1, {}, ValueError, "must be a string that is not empty"),
        ("a", 0, 1, {}, ValueError, "num_embeddings = 0 must be at least 1"),
        ("a", 10, 0, {}, ValueError, "embedding_dim = 0 must be at least 1"),
        ("a", 10, 1 << 33, {}, ValueError, "embedding_dim = 8589934592 must be at most 67,107,840, the values of one message"),
        ("a", 10, 1, {"hash": True}, ValueError, "set num_embeddings=None"),
        ("a", (1 << 56) + 1, 1, {}, ValueError, "more than 2\\^56 rows"),
        ("a", 10, 1, {"admission": 3}, TypeError, "admission = 3 must be made by libra_ps.Admission"),
        ("item", 100, 2, {"init": libra.Zero(), "admission": libra.Admission(2)}, libra.Mismatch, "admission is Admission"),
        ("item", 10, 1, {}, libra.Mismatch, 'a table "item" of another definition: rows is 10, and was 100'),
    ],
)
def test_bad_tables_are_refused(
    client: libra.Client, name: str, rows: int, width: int, options: dict, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        client.add_table(name, rows, width, SGD, **options)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: libra.Admission(), ValueError, "takes after= or probability="),
        (lambda: libra.Admission(2, 0.5), ValueError, "takes after= or probability="),
        (lambda: libra.Admission(after=1), ValueError, "after = 1 must be from 2 to 255"),
        (lambda: libra.Admission(after=256), ValueError, "after = 256 must be from 2 to 255"),
        (lambda: libra.Admission(after=2.5), TypeError, "after = 2.5 must be an integer"),
        (lambda: libra.Admission(after=2, keys=0), ValueError, "keys = 0 must be from 1 to"),
        (lambda: libra.Admission(probability=0.0), ValueError, "probability = 0.0 must be above 0 and at most 1"),
        (lambda: libra.Admission(probability="often"), TypeError, "probability = 'often' must be a number"),
        (lambda: libra.Eviction(), ValueError, "takes idle_steps= or rows_max="),
        (lambda: libra.Eviction(idle_steps=0), ValueError, "idle_steps = 0 must be from 1 to"),
        (lambda: libra.Eviction(rows_max=0), ValueError, "rows_max = 0 must be from 1 to"),
        (lambda: libra.Eviction(rows_max=1, half_life=0), ValueError, "half_life = 0 must be from 1 to"),
        (lambda: libra.Eviction(rows_max=1, by="age"), ValueError, 'by = "age" must be "use" or "norm"'),
    ],
)
def test_conditions_out_of_range_are_refused(make: Callable[[], object], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_gradients_that_make_no_row_are_dropped_and_counted() -> None:
    client = libra.Client()
    client.add_table("item", None, 2, SGD, init=libra.Normal(1.0), admission=libra.Admission(after=3))
    keys = np.arange(20)
    before = client.pull("item", keys)
    for _ in range(2):
        client.push("item", [3, 5], np.ones((2, 2)))
    client.push("item", [5], np.ones((1, 2)))
    after = client.pull("item", keys)
    assert np.array_equal(after[5], before[5] - np.float32(0.5))
    after[5] = before[5]
    assert np.array_equal(after, before)
    stats = libra.stats()["tables"]["item"]
    assert (stats["rows"], stats["gradients_not_admitted"], stats["rows_pushed"]) == (1, 4, 5)


def test_admission_by_probability_makes_some_rows() -> None:
    client = libra.Client()
    client.add_table("item", None, 1, SGD, admission=libra.Admission(probability=0.25))
    client.push("item", np.arange(4000), np.ones((4000, 1)))
    stats = libra.stats()["tables"]["item"]
    assert 900 < stats["rows"] < 1100 and stats["gradients_not_admitted"] == 4000 - stats["rows"]


@pytest.mark.parametrize(
    "eviction",
    [libra.Eviction(idle_steps=3), libra.Eviction(rows_max=20), libra.Eviction(rows_max=20, by="norm")],
    ids=["idle", "use", "norm"],
)
def test_rows_are_evicted_and_read_as_they_began(eviction: libra.Eviction) -> None:
    client = libra.Client()
    client.add_table("item", None, 1, SGD, init=libra.Normal(0.5), eviction=eviction)
    before = client.pull("item", np.arange(93))
    for key in range(93):
        # Row 0 is in every step, and row 92 in the last one.
        client.push("item", [0, key] if key else [0], [[2.0 + key]] * (2 if key else 1))
        client.tick()
    stats = libra.stats()["tables"]["item"]
    rows = stats["rows"]
    assert rows + stats["rows_evicted"] == 93 and rows <= 25
    after = client.pull("item", np.arange(93))
    changed = np.nonzero((after != before)[:, 0])[0]
    assert len(changed) == rows and 92 in changed
    if eviction.idle_steps:
        assert changed.tolist() == [0, 90, 91, 92]


def test_unknown_table_is_named(client: libra.Client) -> None:
    with pytest.raises(libra.Error, match='there is no table "user": the session has "item"'):
        client.pull("user", [1])


def test_tables_without_a_bound_are_limited() -> None:
    client = libra.Client()
    for index in range(120):
        client.add_table(f"open-{index}", None, 1, SGD)
    with pytest.raises(ValueError, match="at most 120 tables without a bound"):
        client.add_table("one more", None, 1, SGD)


def test_ids_of_tables_without_a_bound_are_below_2_56() -> None:
    client = libra.Client()
    client.add_table("open", None, 1, SGD)
    with pytest.raises(IndexError, match="id 72057594037927936 at position 0 is out of range"):
        client.pull("open", [1 << 56])


def test_tensors_with_a_gradient_are_taken() -> None:
    torch = pytest.importorskip("torch")
    client = libra.Client()
    client.add_table("t", 10, 2, Rule("sgd", {"lr": 1.0}), init=libra.Zero())
    client.push("t", torch.tensor([3]), torch.ones(1, 2, requires_grad=True))
    client.tick()
    assert (client.pull("t", [3]) == -1.0).all()
