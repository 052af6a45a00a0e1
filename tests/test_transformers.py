"""transformers' Trainer takes the way of a plain loop, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import vcsg
from vcsg import FiniteSumOptimizer

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'vcsg[transformers]'")
pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install 'vcsg[transformers]'")
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

from vcsg.integrations import FiniteSumTrainer

N, BATCH, EPOCHS = 60, 8, 4


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Sentences of 6 words; their class is whether the first word is one of the first half."""

    def __init__(self, count: int = N) -> None:
        self.words = torch.randint(32, (count, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[i], "labels": (self.words[i, 0] < 16).long()}


def bert(dropout: float = 0.1) -> Any:
    """A tiny model from its configuration. Where a closure is called, the optimizer governs the masks of dropout."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = BertConfig(vocab_size=32, max_position_embeddings=8, num_labels=2, **sizes, **rates)
    return BertForSequenceClassification(config)


def arguments(folder: Path, **options: Any) -> Any:
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 5}
    plain = {"max_grad_norm": 0.0, "lr_scheduler_type": "constant", "per_device_train_batch_size": BATCH}
    return TrainingArguments(str(folder), **{**quiet, **plain, "num_train_epochs": EPOCHS, **options})


def trainer(folder: Path, model: Any, optimizer: Any, kind: Any = FiniteSumTrainer, **options: Any) -> Any:
    own = {name: options.pop(name) for name in ("passes", "eval_dataset") if name in options}
    given = {"optimizers": (optimizer, None), "train_dataset": Sentences(), **own}
    return kind(model, arguments(folder, **options), **given)


def own_loop(folder: Path, optimizer: FiniteSumOptimizer, model: nn.Module) -> list[Any]:
    """A plain loop over the batches that the Trainer reads; the records."""
    records: list[Any] = []
    batches = trainer(folder, bert(), None, Trainer).get_train_dataloader()
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for batch in batches:

            def closure(batch: dict[str, torch.Tensor] = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(**batch, num_items_in_batch=len(batch["labels"])).loss
                loss.backward()
                return loss

            optimizer.step(closure, samples=len(batch["labels"]))
            if optimizer.record is not None and optimizer.record not in records:
                records.append(optimizer.record)
    return records


def same(model: nn.Module, optimizer: FiniteSumOptimizer, wanted: nn.Module, reference: FiniteSumOptimizer) -> None:
    for (name, p), q in zip(model.named_parameters(), wanted.parameters(), strict=True):
        assert torch.equal(p, q), name
    assert optimizer.ifo == reference.ifo
    assert str(optimizer.record) == str(reference.record)


@pytest.mark.parametrize("name", ["vcsg", "auto"])
def test_n_from_the_dataset(name: str, tmp_path: Path) -> None:
    model, wanted = bert(), bert()
    run = trainer(tmp_path, model, FiniteSumOptimizer(model.parameters(), method=name))
    run.train()
    reference = FiniteSumOptimizer(wanted.parameters(), N, name, batch_size=BATCH)
    records = own_loop(tmp_path, reference, wanted)
    reference.load_output()
    same(model, run.finite_sum, wanted, reference)
    logged = [row["vcsg/ifo"] for row in run.state.log_history if "vcsg/ifo" in row]
    assert logged == [r.ifo for r in records]
    assert len(logged) > 2
    rates = [row["learning_rate"] for row in run.state.log_history if "learning_rate" in row]
    assert rates[-1] == reference.step_sizes[0] if name == "auto" else rates[-1] == records[-1].step_size


@pytest.mark.parametrize("name", ["adam", "auto"])
def test_a_method_of_one_point_in_the_plain_trainer(name: str, tmp_path: Path) -> None:
    """Nothing is set but the optimizer: gradients are clipped at 1, and lr falls to 0."""
    model, wanted = bert(dropout=0.0), bert(dropout=0.0)
    optimizer, reference = (FiniteSumOptimizer(own.parameters(), N, name, batch_size=BATCH) for own in (model, wanted))
    defaults = {"max_grad_norm": 1.0, "lr_scheduler_type": "linear"}
    trainer(tmp_path, model, optimizer, Trainer, **defaults).train()
    batches = trainer(tmp_path, bert(), None, Trainer).get_train_dataloader()
    schedule = get_linear_schedule_with_warmup(reference, 0, EPOCHS * len(batches))
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for batch in batches:
            wanted(**batch, num_items_in_batch=len(batch["labels"])).loss.backward()
            nn.utils.clip_grad_norm_(wanted.parameters(), 1.0)
            reference.step()
            schedule.step()
            reference.zero_grad()
    same(model, optimizer, wanted, reference)
    assert optimizer.passes == EPOCHS


def test_resume_and_stop_by_passes(tmp_path: Path) -> None:
    def make(model: Any, **options: Any) -> Any:
        return trainer(tmp_path / "saved", model, vcsg.VCSG(model.parameters()), **options)

    whole, first, rest = bert(), bert(), bert()
    once = make(whole, passes=6)
    once.train()
    make(first, save_strategy="epoch", num_train_epochs=2).train()
    resumed = make(rest, passes=6)
    resumed.train(resume_from_checkpoint=str(tmp_path / "saved" / "checkpoint-16"))
    same(rest, resumed.finite_sum, whole, once.finite_sum)
    assert 6 <= resumed.finite_sum.passes < 7
    assert resumed.state.global_step < EPOCHS * len(once.get_train_dataloader())


def test_evaluation_at_the_output(tmp_path: Path) -> None:
    model = bert()
    run = trainer(tmp_path, model, vcsg.Auto(model.parameters()), eval_dataset=Sentences(), eval_strategy="epoch")
    assert run.evaluate()["eval_loss"] > 0  # before there is a run
    run.train()
    last = [row["eval_loss"] for row in run.state.log_history if "eval_loss" in row][-1]
    assert run.evaluate()["eval_loss"] == pytest.approx(last, rel=1e-5)  # the model has gone there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_grad_norm": 1.0}, r"max_grad_norm = 1.0 .* clip_norm=1.0"),
        ({"gradient_accumulation_steps": 2}, r"gradient_accumulation_steps = 2: .* larger per_device_train_batch_size"),
    ],
)
def test_changed_gradients_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = bert()
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, model, vcsg.VCSG(model.parameters()), **options).train()


def test_other_optimizers_are_refused(tmp_path: Path) -> None:
    model = bert()
    with pytest.raises(TypeError, match="the optimizer is a SGD: FiniteSumTrainer is for those of vcsg"):
        trainer(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1)).train()
    with pytest.raises(ValueError, match="the optimizer was made for n = 50"):
        trainer(tmp_path, model, vcsg.VCSG(model.parameters(), n=50, batch_size=BATCH)).train()


def test_the_plain_trainer_shows_its_data_and_what_it_adds_up(tmp_path: Path) -> None:
    """A wrong n that is a multiple of the batch size, and batches that the Trainer makes one step of."""
    for options, n, batch_size, message in (
        ({}, 56, BATCH, "the dataset holds 60 samples, the optimizer was made for n = 56"),
        (
            {"gradient_accumulation_steps": 4},
            N,
            BATCH,
            "a step has 32 samples.* batch_size = 8: make it with batch_size=32",
        ),
    ):
        model = bert()
        optimizer = vcsg.Adam(model.parameters(), n=n, batch_size=batch_size, lr=0.01)
        with pytest.raises(ValueError, match=message):
            trainer(tmp_path, model, optimizer, Trainer, **options).train()
        assert optimizer.ifo == 0
    optimizer = vcsg.Adam(model.parameters(), n=N, batch_size=32, lr=0.01)
    trainer(tmp_path, model, optimizer, Trainer, gradient_accumulation_steps=4).train()
    assert optimizer.passes == EPOCHS
