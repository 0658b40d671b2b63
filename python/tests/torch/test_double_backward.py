"""Second derivatives through the rows of tables."""

from __future__ import annotations

from typing import Any

import libra_ps as libra
import pytest
import torch
from libra_ps.functional import pool_by_torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import embedding, embedding_bag

IDS = torch.tensor([1, 2, 2, 5, 3, 1])
OFFSETS = torch.tensor([0, 2, 2, 5])


def bag(mode: str = "sum", **options: Any) -> libra.nn.EmbeddingBag:
    module = libra.nn.EmbeddingBag(10, 4, mode=mode, double_backward=True, name="bag", **options)
    libra.optim.wrap(torch.optim.SGD(module.parameters(), lr=1.0), torch.nn.ModuleList([module]))
    return module


@pytest.mark.parametrize("padding", [None, 3])
def test_second_derivatives_of_weights_are_those_of_differences(padding: int | None) -> None:
    module = bag(output_dtype=torch.float64, padding_idx=padding)
    weights = torch.rand(6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda weights: module(IDS, OFFSETS, weights), (weights,))
    assert gradgradcheck(lambda weights: module(IDS, OFFSETS, weights).square(), (weights,))


def test_second_derivatives_of_weights_of_collections_are_those_of_differences() -> None:
    collection = libra.nn.EmbeddingBagCollection(
        [libra.nn.TableConfig("second", 10, 4, double_backward=True), libra.nn.TableConfig("first", 10, 4)]
    )
    libra.optim.wrap(torch.optim.SGD(collection.parameters(), lr=1.0), collection)
    collection.double()
    weights = torch.rand(6, dtype=torch.float64, requires_grad=True)

    def product(weights: torch.Tensor) -> torch.Tensor:
        outputs = collection({"second": (IDS, OFFSETS, weights), "first": (IDS, OFFSETS)})
        assert list(outputs) == ["second", "first"]
        return outputs["second"].square() * outputs["first"].detach()

    assert gradcheck(product, (weights,))
    assert gradgradcheck(product, (weights,))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_second_derivatives_of_rows_are_those_of_differences(mode: str) -> None:
    rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    bags = torch.tensor([0, 0, 2, 2, 2, 3])

    def pooled(rows: torch.Tensor) -> torch.Tensor:
        return pool_by_torch(embedding(IDS, rows), bags, 4, mode)

    torch.testing.assert_close(pooled(rows), embedding_bag(IDS, rows, OFFSETS, mode=mode))
    assert gradcheck(pooled, (rows,))
    assert gradgradcheck(lambda rows: pooled(rows).square(), (rows,))


class Model(torch.nn.Module):
    """A model of tables, or a twin of dense embeddings; torch has no second derivatives of bags."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a: Any
        self.b: Any
        if kind == "dense":
            self.a, self.b = torch.nn.Embedding(30, 3, padding_idx=4), torch.nn.Embedding(20, 3)
        else:
            self.a = libra.nn.Embedding(30, 3, padding_idx=4, double_backward=True)
            if kind == "bag":
                self.b = libra.nn.EmbeddingBag(20, 3, mode="mean", double_backward=True)
            else:
                config = libra.nn.TableConfig("b", 20, 3, ["f"], mode="mean", double_backward=True)
                self.b = libra.nn.EmbeddingBagCollection([config])
        self.dense = torch.nn.Linear(6, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        if self.kind == "dense":
            b = self.b(y).mean(1)
        else:
            b = self.b(y) if self.kind == "bag" else self.b({"f": y})["f"]
        return self.dense(torch.cat([self.a(x) * factor, b * factor.square()], 1)).square().mean()

    def values(self) -> dict[str, torch.Tensor]:
        """Returns the values of the model by the names of the twin."""
        return {name.replace(".tables.b.", "."): value for name, value in self.state_dict().items()}


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize(("how", "kind"), [("grad", "bag"), ("backward", "bag"), ("grad", "collection")])
def test_gradient_penalties_train_as_those_of_torch(how: str, kind: str) -> None:
    torch.manual_seed(3)
    model, twin = Model(kind), Model("dense")
    twins = [(model, libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.05), model))]
    twin.load_state_dict(model.values())
    twins.append((twin, torch.optim.SGD(twin.parameters(), lr=0.05)))
    for _ in range(20):
        x, y, values = torch.randint(30, (8,)), torch.randint(20, (8, 3)), torch.rand(8, 1) + 0.5
        for each, optimizer in twins:
            optimizer.zero_grad()
            factor = values.clone().requires_grad_()
            loss = each(x, y, factor)
            if how == "grad":
                (slope,) = torch.autograd.grad(loss, factor, create_graph=True)
                (loss + slope.square().sum()).backward()
            else:
                # The first pass leaves gradients that the second one adds to.
                loss.backward(create_graph=True)
                assert factor.grad is not None
                factor.grad.square().sum().backward()
            torch.nn.utils.clip_grad_norm_(each.parameters(), 1.0)
            optimizer.step()
    found, expected = model.values(), twin.state_dict()
    worst = max(float((found[name] - value).abs().max()) for name, value in expected.items())
    assert worst < 2e-6


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_those_without_second_derivatives(mode: str) -> None:
    second = bag(mode, padding_idx=3)
    first = libra.nn.EmbeddingBag(10, 4, mode=mode, name="first", padding_idx=3)
    libra.optim.wrap(torch.optim.SGD(first.parameters(), lr=1.0), torch.nn.ModuleList([first]))
    rows = torch.randn(10, 4)
    # Equal values, of which the first has the gradient.
    rows[5], rows[3] = rows[2], 0.0
    for module in (first, second):
        module.load_rows(rows)
    inputs = [(IDS, OFFSETS), (IDS.reshape(2, 3), None), (IDS[:0], OFFSETS[:0]), (IDS[:0].reshape(2, 0), None)]
    for ids, offsets in [*inputs, (IDS.int(), OFFSETS.int()), (torch.tensor([3, 3]), torch.tensor([0, 1]))]:
        outputs = [module(ids, offsets) for module in (first, second)]
        torch.testing.assert_close(outputs[1], outputs[0])
        for output in outputs:
            (output * torch.arange(float(output.numel())).reshape(output.shape)).sum().backward()
    torch.testing.assert_close(second.handle.grad, first.handle.grad)
    for module in (first, second):
        module.table.session.push([module.table.number], 1.0)  # type: ignore[union-attr]
    torch.testing.assert_close(second.read_rows(), first.read_rows())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.tensor([1, 2, 99]), torch.tensor([0])), IndexError, 'table "bag": id 99 at position 2 is out of range'),
        ((torch.tensor([1, 2]), torch.tensor([0, 2, 1])), ValueError, "offset 1 at position 2 is below the one before"),
        ((torch.tensor([1, 2]), torch.tensor([1])), ValueError, "offsets begin at 1"),
        ((torch.tensor([1, 2]), torch.tensor([0, 3])), ValueError, "offset 3 at position 1 is beyond the input"),
        ((torch.tensor([1, 2]), torch.tensor([0, 1]).long()[:0]), ValueError, "offsets are empty"),
        ((torch.tensor([1.0]), torch.tensor([0])), TypeError, "input must be int64 or int32"),
    ],
)
def test_bad_bags_are_named(arguments: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        bag()(*arguments)


def test_the_gradient_of_a_handle_has_no_derivative() -> None:
    module = bag()
    factor = torch.ones(1, requires_grad=True)
    loss = (module(IDS, OFFSETS) * factor).square().sum()
    (of_handle,) = torch.autograd.grad(loss, module.handle, create_graph=True)
    with pytest.raises(libra.NotSupported, match="The gradient of its handle has none"):
        of_handle.sum().backward()


def test_evaluation_takes_the_short_way() -> None:
    module = bag(output_dtype=torch.bfloat16).eval()
    with torch.no_grad():
        short = module(IDS, OFFSETS)
    assert short.dtype is torch.bfloat16
    torch.testing.assert_close(short, module(IDS, OFFSETS))
