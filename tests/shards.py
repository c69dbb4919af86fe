"""What ranks that share a codebook find, compared with one process: programs of tests/ranks.py.

Every rank also has the whole codebook here, and computes with it what the group should find.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph._observe import logit_spreads
from dcgraph.distributed import gather_batch, own_batch, shard_rows
from dcgraph.distributed._shards import own_rows

N, ROWS, DIM = 1003, 5, 6
LARGE = 4099
"""Categories from which on a node in one process makes no matrix of logits either."""

Call = Callable[..., Any]


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def own(n: int = N) -> slice:
    rows = shard_rows(n, world())
    return slice(rows.start, rows.stop)


def inputs(
    *groups: int, n: int = N, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(*groups, ROWS, DIM, generator=generator, dtype=torch.float64)
    codebook = torch.randn(*groups, n, DIM, generator=generator, dtype=torch.float64)
    return query.to(dtype), codebook.to(dtype)


def both(
    call: Call,
    query: Tensor,
    codebook: Tensor,
    *others: Tensor,
    columns: dict[str, Tensor] | None = None,
    per_rank: bool = True,
    **options: Any,
) -> tuple[list[Tensor], list[Tensor]]:
    """Values and gradients by the group and by one process, of this rank's rows of the codebook.

    ``columns`` are options with a column for each row. The generators of the ranks differ, for the
    first one is to decide.
    """
    found = []
    for group in (world(), None):
        part = own(codebook.shape[-2]) if group else slice(None)
        leaves = [query, codebook[..., part, :], *others]
        leaves = [
            leaf.clone().requires_grad_() if leaf.is_floating_point() else leaf for leaf in leaves
        ]
        some: dict[str, Any] = {name: value[..., part] for name, value in (columns or {}).items()}
        if per_rank:
            seed = 3 + (dist.get_rank() if group else 0)
            some["generator"] = torch.Generator().manual_seed(seed)
        out = call(*leaves, **some, **options, **({"group": group} if group else {}))
        values = out if isinstance(out, tuple) else (out,)
        weights = torch.Generator().manual_seed(1)
        total = sum(
            (v.double() * torch.randn(v.shape, generator=weights, dtype=torch.float64)).sum()
            for v in values
            if v.requires_grad
        )
        learned = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = torch.autograd.grad(total, learned, allow_unused=True)
        given = [*(v.detach() for v in values), *(g for g in gradients if g is not None)]
        if not group:
            rows = own(codebook.shape[-2])
            given = [g[..., rows, :] if g.shape == codebook.shape else g for g in given]
        found.append(given)
    return found[0], found[1]


def error(pair: tuple[list[Tensor], list[Tensor]]) -> float:
    """The largest error over the largest entry, infinite where shapes differ."""
    worst = 0.0
    assert len(pair[0]) == len(pair[1]) > 1
    for one, other in zip(*pair, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf
        if one.numel():
            scale = other.double().abs().max().clamp(min=1e-3)
            difference = (one.double() - other.double()).abs().max() / scale
            worst = max(worst, float(difference.nan_to_num(math.inf)))
    return worst


def functions() -> dict[str, float]:
    """Errors against one process, by what is computed."""
    query, codebook = inputs()
    tau = torch.rand(ROWS, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 1
    beta = tau.flip(0) / 2
    generator = torch.Generator().manual_seed(5)
    mask = torch.rand(ROWS, N, generator=generator) > 0.7
    mask[1] = False
    mask[1, N - 1] = True  # on the last rank that has rows
    noise = torch.randn(ROWS, N, dtype=torch.float64, generator=generator)
    target = torch.tensor([0, N - 1, N // 2, 500, 501])
    allowed = mask.clone()
    allowed[torch.arange(ROWS), target] = True
    single = inputs(dtype=torch.float32)
    half = inputs(dtype=torch.bfloat16)
    groups = inputs(3)
    few = inputs(n=2)
    mix, choose, entropy = dc.mix, dc.codebook.choose, dc.codebook.cross_entropy
    logsumexp = dc.codebook.logsumexp

    def learned(query: Tensor, codebook: Tensor, tau: Tensor, beta: Tensor, **more: Any) -> Tensor:
        return mix(query, codebook, tau, beta=beta, **more)

    def no_noise(query: Tensor, codebook: Tensor, **more: Any) -> tuple[Tensor, Tensor]:
        return choose(query, codebook, beta=0.0, **more)

    pairs = {
        "mix": both(mix, query, codebook, tau=2.0, beta=0.5),
        "mix, float32": both(mix, *single, tau=2.0, beta=0.5),
        "mix, bfloat16": both(mix, *half, tau=2.0, beta=0.5),
        "mix, no noise": both(mix, query, codebook, beta=0.0),
        "mix, reversed noise": both(mix, query, codebook, noise="reversed"),
        "mix, given noise": both(mix, query, codebook, columns={"noise": noise}),
        "mix, mask": both(mix, query, codebook, tau=2.0, columns={"mask": mask}),
        "mix, tau and beta per query": both(learned, query, codebook, tau, beta),
        "mix, groups": both(mix, *groups, tau=2.0),
        "mix, 2 rows": both(mix, *few),
        "hard": both(mix, query, codebook, tau=2.0, beta=0.5, hard=True),
        "hard, float32": both(mix, *single, tau=2.0, beta=0.5, hard=True),
        "hard, bfloat16": both(mix, *half, tau=2.0, beta=0.5, hard=True),
        "hard, mask": both(mix, query, codebook, hard=True, columns={"mask": mask}),
        "hard, learned tau and beta": both(learned, query, codebook, tau, beta, hard=True),
        "hard, 2 rows": both(mix, *few, hard=True),
        "choose": both(choose, query, codebook),
        "choose, float32": both(choose, *single),
        "choose, argmax": both(no_noise, query, codebook),
        "choose, groups": both(choose, *groups),
        "choose, 2 rows": both(choose, *few),
        "logsumexp": both(logsumexp, query, codebook, tau, per_rank=False),
        "cross_entropy": both(entropy, query, codebook, target, tau, per_rank=False),
        "cross_entropy, float32": both(entropy, *single, target, per_rank=False),
        "cross_entropy, mask": both(
            entropy, query, codebook, target, columns={"mask": allowed}, per_rank=False
        ),
    }
    return {name: error(pair) for name, pair in pairs.items()}


def ties() -> dict[str, bool]:
    """Rows that are equal on several ranks: the first of all wins, as in one process."""
    codebook = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]).repeat(67, 1)
    query = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0], [-0.0, -0.0]])
    found = {}
    for dtype in (torch.float32, torch.float64):
        q, c = query.to(dtype), codebook.to(dtype)
        part = own(len(c))
        index, row = dc.codebook.choose(q, c[part], beta=0.0, group=world())
        expected, row_of_one = dc.codebook.choose(q, c, beta=0.0)
        found[f"argmax, {dtype}"] = torch.equal(index, expected) and torch.equal(row, row_of_one)
        mask = torch.arange(len(c)) >= 100
        mask = mask.expand(5, -1).clone()
        mask[3] = False
        with unchecked():  # or the query that may choose nothing would be an error
            index, row = dc.codebook.choose(q, c[part], beta=0.0, mask=mask[:, part], group=world())
            expected, _ = dc.codebook.choose(q, c, beta=0.0, mask=mask)
        found[f"masked, {dtype}"] = torch.equal(index, expected) and not row[3].any()
    q, c = inputs(dtype=torch.float32)
    many = q.repeat(200, 1)
    for name, beta in (("drawn", 1.0), ("scaled", 3.0)):
        torch.manual_seed(0)  # the first rank draws what one process draws
        index, _ = dc.codebook.choose(many, c[own()], beta=beta, group=world())
        if dist.get_rank() == 0:
            torch.manual_seed(0)
            found[name] = torch.equal(index, dc.codebook.choose(many, c, beta=beta)[0])
    return found


def errors() -> dict[str, str]:
    """What is said where ranks do not agree; none of them waits for ever."""
    rank = dist.get_rank()
    query, codebook = inputs(dtype=torch.float32)
    rows = codebook[own()]
    wide = torch.randn(10, DIM + rank)
    calls: dict[str, Call] = {
        "width of one": lambda: dc.mix(query, rows if rank == 0 else wide, group=world()),
        "width": lambda: dc.mix(torch.randn(2, DIM + rank), wide, group=world()),
        "queries": lambda: dc.mix(query[: 2 + rank], rows, group=world()),
        "call": lambda: (
            dc.mix(query, rows, group=world())
            if rank
            else dc.codebook.choose(query, rows, group=world())
        ),
        "type": lambda: dc.mix(
            *((query, rows) if rank else (query.double(), rows.double())), group=world()
        ),
        "noise": lambda: dc.mix(query, rows, beta=float(rank), group=world()),
        "target": lambda: dc.codebook.cross_entropy(
            query, rows, torch.full((ROWS,), N), group=world()
        ),
        "no row": lambda: dc.mix(query, rows[:0], group=world()),
        "all masked": lambda: dc.mix(
            query, rows, mask=torch.zeros(len(rows), dtype=torch.bool), group=world()
        ),
        "vmap": lambda: torch.func.vmap(lambda q: dc.mix(q, rows, beta=0.0, group=world()))(query),
        "second derivative": lambda: second_derivative(query, rows),
        "logits": lambda: dc.Discrete(DIM, N, shard=world()).logits(query),
        "g": lambda: dc.Discrete(DIM, N, g=nn.Linear(DIM, N), shard=world()),
        "estimator": lambda: dc.Discrete(
            DIM, N, estimator="gapped_straight_through", shard=world()
        ),
        "no group": lambda: dc.mix(query, dc.Discrete(DIM, N, shard=world()).codebook),
        "batches": lambda: gather_batch(query[: 2 + rank], world()),
    }
    return {name: complaint(call) for name, call in calls.items()}


def complaint(call: Call) -> str:
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return "nothing"


def second_derivative(query: Tensor, rows: Tensor) -> None:
    q = query.clone().requires_grad_()
    (first,) = torch.autograd.grad(dc.mix(q, rows, group=world()).sum(), q, create_graph=True)
    first.sum().backward()


@contextmanager
def wire() -> Iterator[dict[str, int]]:
    """Bytes that this rank puts into collective operations, by operation."""
    seen: dict[str, int] = {}

    def counting(name: str) -> Any:
        original = getattr(dist, name)

        def counted(*given: Any, **more: Any) -> Any:
            tensor = given[0]
            seen[name] = seen.get(name, 0) + tensor.numel() * tensor.element_size()
            return original(*given, **more)

        return mock.patch.object(dist, name, counted)

    with counting("all_reduce"), counting("broadcast"):
        yield seen


def bytes_on_the_wire() -> dict[str, dict[str, int]]:
    """Of one step, forward and backward, without the 512 bytes a rank in which ranks agree."""
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        query, codebook = inputs(dtype=dtype)
        rows = codebook[own()].requires_grad_()
        query.requires_grad_()
        calls: dict[str, Call] = {
            "mix": lambda q=query, c=rows: dc.mix(q, c, group=world()),
            "mix, no noise": lambda q=query, c=rows: dc.mix(q, c, beta=0.0, group=world()),
            "mix, hard": lambda q=query, c=rows: dc.mix(q, c, hard=True, group=world()),
            "choose": lambda q=query, c=rows: dc.codebook.choose(q, c, group=world())[1],
            "logsumexp": lambda q=query, c=rows: dc.codebook.logsumexp(q, c, group=world()),
            "cross_entropy": lambda q=query, c=rows: dc.codebook.cross_entropy(
                q, c, torch.arange(ROWS), group=world()
            ),
        }
        for name, call in calls.items():
            with wire() as forward:
                out = call()
            with wire() as backward:
                out.sum().backward()
            forward["all_reduce"] -= 512 * dist.get_world_size()
            with unchecked(), wire() as once_agreed:  # as on a GPU
                call()
            assert once_agreed == forward
            found[f"{name}, {dtype}"] = {
                "forward": sum(forward.values()),
                "backward": sum(backward.values()),
            }
    return found


def gathered(value: Tensor) -> Tensor:
    """A DTensor as a whole, a copy; any other tensor as it is."""
    whole: Any = value
    found: Tensor = whole.full_tensor().clone() if isinstance(value, DTensor) else whole
    return found.detach()


class Model(nn.Module):
    """A codebook between two replicated layers."""

    def __init__(self, group: dist.ProcessGroup | None, **options: Any) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, DIM), nn.Linear(DIM, 3)
        self.node = dc.Discrete(DIM, LARGE, shard=group, **options)
        dc.Dials.constant(self, tau=2.0, beta=1.0, alpha=0.5)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        out: Tensor = self.decode(self.node(self.encode(x), **options))
        return out


def step(model: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer) -> None:
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def nodes() -> dict[str, Any]:
    """A sharded node against one whose codebook is whole, and what a model makes of it."""
    found: dict[str, Any] = {}
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(7))
    torch.manual_seed(0)
    model = Model(world())
    found["initial"] = gathered(model.node.codebook)
    found["own"] = own_rows(model.node.codebook).shape
    # One process with the same codebook, and the first rank's noise.
    torch.manual_seed(0)
    whole = Model(None)
    whole.load_state_dict(model.state_dict() | {"node.codebook": found["initial"]})
    gates = []
    for name, estimator in (
        ("relaxed", "gumbel_softmax"),
        ("hard", "straight_through_gumbel_softmax"),
        ("straight through", "straight_through"),
        ("second order", "reinmax"),
        ("ZGR", "zgr"),
        ("rotation", "rotation"),
    ):
        sides = []
        for own_model in (model, whole):
            own_model.node.categorical.estimator = estimator
            own_model.zero_grad()
            torch.manual_seed(11)
            values = [own_model(x) for _ in range(4)]
            sum(v.square().sum() for v in values).backward()
            sides.append([*values, *(p.grad for p in own_model.parameters())])
        gates += [v.detach() for v in sides[0][:4]]
        sides[0][-1] = gathered(sides[0][-1])
        found[f"gradients, {name}"] = [g.detach() for g in sides[0][4:]]
        if dist.get_rank() == 0:
            found[f"error, {name}"] = error((sides[0], sides[1]))
    found["values"] = torch.stack(gates)
    for own_model in (model, whole):
        own_model.node.categorical.estimator = "gumbel_softmax"
    # Padding, and eval mode: rows to the bit.
    rows = torch.tensor([True, True, False, True, False])
    torch.manual_seed(12)
    padded = model.node(model.encode(x), rows=rows, fill="zero")
    found["padding is zero"] = not bool(padded[~rows].any())
    model.eval(), whole.eval()
    found["eval"] = torch.equal(model(x), whole(x))
    model.node.categorical.decode = whole.node.categorical.decode = "sample"
    torch.manual_seed(13)
    sampled = model(x)
    found["sampled"] = sampled.detach()
    if dist.get_rank() == 0:
        torch.manual_seed(13)
        found["sampled as one"] = torch.equal(sampled, whole(x))
    model.node.categorical.decode = whole.node.categorical.decode = "argmax"
    # The probe and the trace, on all ranks.
    reports = []
    for own_model in (model, whole):
        torch.manual_seed(14)
        with dc.trace(own_model) as steps:
            own_model(x)
        found.setdefault("trace", []).append([steps[0].index, steps[0].probability])
        torch.manual_seed(14)
        report = dc.probe(own_model, lambda m=own_model: m(x).square().sum())  # type: ignore[misc]
        (reading,) = report.readings
        reports.append(
            [report.loss, report.hard_loss, reading.gradient, reading.entropy, reading.largest,
             reading.used, reading.saturated, reading.gap]
        )  # fmt: skip
    found["probe"] = reports
    found["spread"] = [logit_spreads(m, lambda m=m: m(x)) for m in (model, whole)]  # type: ignore[misc]
    return found


def own_batches() -> dict[str, Any]:
    """Ranks with batches of their own: gradients of the sum of their losses."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    all_queries, codebook = inputs()
    all_queries = torch.cat([all_queries + k for k in range(ranks)])
    whole = [all_queries.clone().requires_grad_(), codebook.clone().requires_grad_()]
    v = dc.mix(*whole, beta=0.0)
    (v.sin() * torch.arange(1.0, 1 + len(v)).unsqueeze(-1)).sum().backward()
    mine = slice(rank * ROWS, (rank + 1) * ROWS)
    query = all_queries[mine].clone().requires_grad_()
    rows = codebook[own()].clone().requires_grad_()
    out = own_batch(dc.mix(gather_batch(query, world()), rows, beta=0.0, group=world()), world())
    (out.sin() * torch.arange(1.0, 1 + len(v))[mine].unsqueeze(-1)).sum().backward()
    found = [out.detach(), query.grad, rows.grad]
    wanted = [v.detach()[mine], whole[0].grad[mine], whole[1].grad[own()]]  # type: ignore[index]
    return {"error": error((found, wanted))}  # type: ignore[arg-type]


def on_one_gpu() -> dict[str, Any]:
    """All ranks on one GPU, where there is one: the kernels, in streams and in blocks."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n, found = (100_003 if device.type == "cuda" else 5003), dict[str, Any]()
    for dim in (64, 200):  # narrow ones are streamed
        for dtype in (torch.float32, torch.bfloat16):
            generator = torch.Generator(device).manual_seed(dim)
            query = torch.randn(33, dim, device=device, generator=generator) / dim**0.25
            codebook = torch.randn(n, dim, device=device, generator=generator) / dim**0.25
            target = torch.randint(n, (33,), device=device, generator=generator)
            query, codebook = query.to(dtype), codebook.to(dtype)
            calls: dict[str, Call] = {
                "mix": lambda q, c, _, group: dc.mix(q, c, 2.0, group=group),
                "hard": lambda q, c, _, group: dc.mix(q, c, 2.0, hard=True, group=group),
                "choose": lambda q, c, _, group: dc.codebook.choose(q, c, group=group)[1],
                "entropy": lambda q, c, t, group: dc.codebook.cross_entropy(q, c, t, group=group),
            }
            for name, call in calls.items():
                sides = []
                for group, rows in ((world(), own(n)), (None, slice(None))):
                    q, c = query.clone().requires_grad_(), codebook[rows].clone().requires_grad_()
                    torch.manual_seed(5)
                    v = call(q, c, target, group)
                    v.float().square().sum().backward()
                    assert c.grad is not None
                    gradient = c.grad if group else c.grad[own(n)]
                    sides.append([g.cpu() for g in (v.detach(), gradient, q.grad) if g is not None])
                if dist.get_rank() == 0:  # others have noise of their own in one process
                    found[f"{name}, {dim}, {dtype}"] = error((sides[0], sides[1]))
    node = dc.Discrete(64, n, shard=world()).to(device)
    dc.Dials.constant(node, tau=4.0, beta=2.0, alpha=0.5)
    u = torch.randn(33, 64, device=device, generator=torch.Generator(device).manual_seed(1))
    optimizer = torch.optim.Adam(node.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = (node(u) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    found["losses"] = losses
    index, row = dc.codebook.choose(u, node.codebook, beta=0.0, group=world())
    here, part = own_rows(node.codebook), own(n)
    mine = (index >= part.start) & (index < part.stop)
    exact = torch.equal(row[mine], here[index[mine] - part.start])
    found["decoded"] = exact and torch.equal(node.eval()(u), row)
    return found


class Shared(nn.Module):
    """A batch of its own on each rank, and one codebook for all of them."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.group = group
        self.encode, self.decode = nn.Linear(4, DIM), nn.Linear(DIM, 3)
        self.node = dc.Discrete(DIM, LARGE, shard=group, residual="none")
        dc.Dials.constant(self, tau=2.0, beta=0.0)

    def forward(self, x: Tensor) -> Tensor:
        u: Tensor = self.encode(x)
        v = self.node(u) if self.group is None else self.decode_own(u)
        out: Tensor = self.decode(v)
        return out

    def decode_own(self, u: Tensor) -> Tensor:
        assert self.group is not None
        return own_batch(self.node(gather_batch(u, self.group)), self.group)


def ddp() -> dict[str, Any]:
    """In DDP, which averages: gradients are those of the mean of all losses."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, whole = Shared(world()), Shared(None)
    whole.load_state_dict(model.state_dict() | {"node.codebook": gathered(model.node.codebook)})
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["node.codebook"])
    x = torch.randn(ranks * ROWS, 4, generator=torch.Generator().manual_seed(8))
    x[:ROWS] *= 3
    whole(x).square().mean().backward()
    trained = DistributedDataParallel(model)
    model.node.codebook.register_hook(lambda gradient: gradient / ranks)
    trained(x[rank * ROWS : (rank + 1) * ROWS]).square().mean().backward()
    found, wanted = (
        [gathered(p.grad) for p in m.parameters() if p.grad is not None] for m in (model, whole)
    )
    return {"error": error((found, wanted))}


CHECKPOINT = "DCGRAPH_TEST_CHECKPOINT"


def trained() -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(21)
    model = Model(world())
    optimizer = torch.optim.Adam(
        [{"params": [model.node.codebook]}, {"params": [*model.encode.parameters()]}], lr=0.1
    )
    return model, optimizer


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def saves() -> dict[str, Any]:
    """Train, save, train on: what another number of ranks is to find."""
    model, optimizer = trained()
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(7))
    for k in range(3):
        torch.manual_seed(k)
        step(model, x, optimizer)
    save(state(model, optimizer), checkpoint_id=checkpoint())
    saved = gathered(model.node.codebook)
    torch.manual_seed(99)
    step(model, x, optimizer)
    return {"saved": saved, "later": gathered(model.node.codebook)}


def loads() -> dict[str, Any]:
    """With any number of ranks: go on from there, optimizer and all."""
    model, optimizer = trained()
    with torch.no_grad():
        model.node.codebook.zero_()
    into = state(model, optimizer)
    load(into, checkpoint_id=checkpoint())
    set_state_dict(
        model, optimizer, model_state_dict=into["model"], optim_state_dict=into["optimizer"]
    )
    optimizer.zero_grad()
    loaded = gathered(model.node.codebook)
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(7))
    torch.manual_seed(99)
    step(model, x, optimizer)
    return {"loaded": loaded, "later": gathered(model.node.codebook)}


def checkpoint() -> Path:
    return Path(sys.argv[3]).parent / os.environ.get(CHECKPOINT, "checkpoint")
