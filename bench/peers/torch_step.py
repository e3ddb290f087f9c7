"""What PyTorch's benchmarks share: a training step on a CPU or a GPU, in any
precision, eager, compiled or replayed as a CUDA graph."""

import contextlib

import torch

import protocol


def prepare(flags):
    """Settings that hold for the whole process."""
    torch.set_num_threads(flags.threads)
    torch.manual_seed(1)
    tf32 = flags.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def autocast(flags):
    halves = {"fp16": torch.float16, "bf16": torch.bfloat16}
    if flags.precision not in halves:
        return contextlib.nullcontext()
    return torch.autocast(flags.device, halves[flags.precision])


def compiled(flags, function):
    """By torch.compile: on a GPU as CUDA graphs, which PyTorch recommends for
    steps of small kernels; "tuned" tries out kernels too, for minutes."""
    mode = None
    if flags.device == "cuda":
        tuned = flags.mode.startswith("tuned")
        mode = "max-autotune" if tuned else "reduce-overhead"
    return torch.compile(function, mode=mode)


def trainer(flags, model, loss_of, images, labels, fused):
    """A function that runs n training steps and waits for them."""
    optimizer = torch.optim.SGD(
        model.parameters(), protocol.LEARNING_RATE, protocol.MOMENTUM, fused=fused
    )
    if flags.precision in ("fp32", "tf32"):

        def step():
            optimizer.zero_grad()
            loss_of(images, labels).backward()
            optimizer.step()

    elif flags.precision == "fp16" and not flags.mode.startswith("graph"):
        scaler = torch.amp.GradScaler(flags.device)

        def step():
            optimizer.zero_grad()
            with autocast(flags):
                loss = loss_of(images, labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    else:
        # bfloat16 needs no scale; a captured step, which cannot skip an update,
        # has a fixed one.
        scale = 1024.0 if flags.precision == "fp16" else 1.0

        def step():
            optimizer.zero_grad()
            with autocast(flags):
                loss = loss_of(images, labels)
            (loss * scale).backward()
            optimizer.step()

    if flags.mode.startswith("graph"):
        step = captured(step)

    def run(steps):
        for _ in range(steps):
            step()
        if flags.device == "cuda":
            torch.cuda.synchronize()

    return run


def captured(step):
    """The step as a CUDA graph, after a few runs beside the capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
