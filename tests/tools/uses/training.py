"""Those that train a model, adapt it, or say what it looked at."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.tools.guest import Guest, tool


def _steps(guest: Guest, optimizer: Callable[[Any], Any], steps: int = 4, **kwargs: Any) -> Any:
    model = guest.classifier()
    chosen = optimizer(model.parameters())
    losses = []
    for step in range(steps):
        chosen.zero_grad(**kwargs)
        loss = model(guest.rows(4 + step)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        chosen.step()
        losses.append(loss.item())
    guest.note("losses", losses)
    guest.note("weights", model.state_dict())
    with torch.no_grad():
        guest.note("output", model(guest.rows()))
    return model


@tool("torch.optim: SGD, Adam, foreach, fused, zero_grad of both kinds; clip_grad_norm_", suite=True)
def optimizers(guest: Guest) -> None:
    _steps(guest, lambda each: torch.optim.SGD(each, 0.1, momentum=0.9), set_to_none=False)
    _steps(guest, lambda each: torch.optim.AdamW(each, 0.1, foreach=True))
    _steps(guest, lambda each: torch.optim.Adam(each, 0.1, fused=True))


@tool("LBFGS, lr_scheduler, accumulated gradients")
def lbfgs(guest: Guest) -> None:
    model = guest.classifier()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(guest.rows()).square().mean()
        loss.backward()
        return loss

    guest.note("losses", [float(optimizer.step(closure)) for _ in range(2)])
    model = guest.classifier()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, total_steps=4)
    for _ in range(3):
        for rows in (2, 3):
            model(guest.rows(rows)).sum().backward()
        sgd.step()
        sgd.zero_grad()
        schedule.step()
    guest.note("weights", model.state_dict())


@tool("swa_utils: AveragedModel, EMA, update_bn", suite=True)
def averaged(guest: Guest) -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

    for kind in ({}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}):
        model = guest.pictures()
        average = AveragedModel(model, **kind)
        for step in range(3):
            model(guest.images()).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)
                    parameter.grad = None
            average.update_parameters(model)
            with torch.no_grad():
                guest.note("output", average.eval()(guest.images(2 + step)))
        update_bn([guest.images()], average)
        with torch.no_grad():
            guest.note("output", average.eval()(guest.images()))
        guest.note("names", list(average.state_dict()))


@tool("autocast, GradScaler", suite=True)
def autocast(guest: Guest) -> None:
    model = guest.classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(guest.rows())
        guest.note("type", output.dtype)
        scaler.scale(output.float().sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    guest.note("scale", scaler.get_scale())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        guest.note("output", guest.pictures()(guest.images()).float())
    with torch.no_grad():
        guest.note("output", guest.classifier()(guest.rows()))


@tool("captum: IntegratedGradients, DeepLift, LayerConductance, FeatureAblation", "captum")
def captum(guest: Guest) -> None:
    from captum import attr

    warnings.simplefilter("ignore")
    model, x = guest.classifier(), guest.rows()
    guest.note("attributions", attr.IntegratedGradients(model).attribute(x, target=1, n_steps=10))
    guest.note("attributions", attr.Saliency(model).attribute(x.clone().requires_grad_(), target=1))
    guest.note("attributions", attr.FeatureAblation(model).attribute(x, target=1))
    guest.note("attributions", attr.LayerConductance(model, model.first).attribute(x, target=1, n_steps=5))
    guest.note("activations", attr.LayerActivation(model, model.norm).attribute(x))
    guest.note("attributions", attr.LayerGradCam(guest.pictures(), guest.pictures().conv2) and 0)
    pictures = guest.pictures()
    guest.note(
        "attributions", attr.LayerGradCam(pictures, pictures.conv2).attribute(guest.images(), target=0)
    )
    guest.attempt("attributions", lambda: attr.DeepLift(guest.pictures()).attribute(guest.images(), target=0))
    with torch.no_grad():
        guest.note("output", model(x))


@tool("peft: LoRA, merged and unloaded", "peft")
def peft(guest: Guest) -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(2)
    config = LoraConfig(target_modules=["first", "last"], r=2, init_lora_weights=False)
    for calls in (0, 2):
        model = guest.classifier()
        with torch.no_grad():
            for _ in range(calls):
                model(guest.rows())
        torch.manual_seed(2)
        adapted = get_peft_model(model, config)
        with torch.no_grad():
            guest.note("output", adapted(guest.rows()))
        adapted(guest.rows()).sum().backward()
        guest.note_gradients(adapted)
        with torch.no_grad():
            with adapted.disable_adapter():
                guest.note("output without", adapted(guest.rows()))
            merged = adapted.merge_and_unload()
            guest.note("output merged", merged(guest.rows()))
            guest.note("class", type(merged))
        guest.note("names", list(merged.state_dict()))


@tool("lightning: Trainer.fit, predict", "lightning")
def lightning(guest: Guest) -> None:
    import logging

    import lightning.pytorch as pl

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = guest.classifier()

        def training_step(self, batch: Any, number: int) -> Any:
            return self.model(batch[0]).square().mean()

        def predict_step(self, batch: Any, number: int = 0) -> Any:
            return self.model(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(guest.rows(8)), batch_size=4)
    for inference in (True, False):
        module = Module()
        trainer = pl.Trainer(
            max_epochs=2,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            inference_mode=inference,
            default_root_dir=".",
            enable_checkpointing=False,
        )
        trainer.fit(module, data)
        guest.note("weights", module.state_dict())
        guest.note("predictions", trainer.predict(module, data))
        trainer.save_checkpoint("last.ckpt")
        guest.note(
            "keys of the checkpoint", sorted(torch.load("last.ckpt", weights_only=False)["state_dict"])
        )


@tool("accelerate: prepare, init_empty_weights, hooks", "accelerate")
def accelerate(guest: Guest) -> None:
    from accelerate import Accelerator, cpu_offload, init_empty_weights

    model = guest.classifier()
    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):
        accelerator.backward(prepared(guest.rows()).sum())
        optimizer.step()
        optimizer.zero_grad()
    guest.note("weights", accelerator.unwrap_model(prepared).state_dict())
    with torch.no_grad():
        guest.note("output", prepared(guest.rows()))
        with init_empty_weights():
            empty = guest.package.Classifier()
        guest.note("device", str(next(empty.parameters()).device))
        offloaded = cpu_offload(guest.classifier(), execution_device=torch.device("cpu"))
        guest.note("output offloaded", offloaded(guest.rows()))


@tool("DataLoader workers that call the model")
def loader(guest: Guest) -> None:
    class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.model = guest.classifier()

        def __len__(self) -> int:
            return 4

        def __getitem__(self, number: int) -> Any:
            torch.set_num_threads(1)
            with torch.no_grad():
                return self.model(guest.rows(2 + number)).sum(0)

    for workers in (0, 1):
        guest.note("batches", list(torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=workers)))


@tool("torch.inference_mode, set_grad_enabled, nested modes", suite=True)
def modes(guest: Guest) -> None:
    model, x = guest.classifier(), guest.rows()
    with torch.inference_mode():
        made = model(x)
        guest.note("output", made)
        with torch.inference_mode(False):
            guest.note("output", model(x))
        guest.attempt("output of what was made there", lambda: model.last(made.repeat(1, 4)))
    guest.attempt("gradients of what was made there", lambda: model(guest.rows() + made.repeat(1, 2)))
    with torch.no_grad(), torch.enable_grad():
        guest.note("output", model(x))
    with torch.set_grad_enabled(False):
        guest.note("output", model(x))
    guest.note("output", torch.no_grad()(model.forward)(x))
    with torch.autograd.set_multithreading_enabled(False):
        model(x).sum().backward()
    guest.note_gradients(model)
    torch.use_deterministic_algorithms(True)
    guest.note("output", model(x))
    torch.use_deterministic_algorithms(False)
    torch.set_default_dtype(torch.float64)
    guest.note("output", model(x))
    torch.set_default_dtype(torch.float32)
