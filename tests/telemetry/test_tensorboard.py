from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scse_dist.telemetry.tensorboard import TensorBoard


def write_steps(folder: Path, steps: range, first_step: int | None, value: float) -> None:
    board = TensorBoard(folder, first_step)
    for step in steps:
        board.scalars(step, {"train/loss": value + step, "train/lr": value})
    board.close()


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def test_a_resume_doubles_no_points(tmp_path: Path) -> None:
    write_steps(tmp_path, range(1, 11), first_step=1, value=100)
    write_steps(tmp_path, range(6, 13), first_step=6, value=200)
    expected = [(step, 100 + step) for step in range(1, 6)] + [(step, 200 + step) for step in range(6, 13)]
    assert points(tmp_path, "train/loss") == expected
    assert [step for step, _ in points(tmp_path, "train/lr")] == list(range(1, 13))


def test_a_writer_without_a_first_step_purges_nothing(tmp_path: Path) -> None:
    write_steps(tmp_path, range(1, 11), first_step=1, value=100)
    write_steps(tmp_path, range(4, 5), first_step=None, value=200)
    assert sorted(points(tmp_path, "train/loss")) == sorted(
        [*((step, 100.0 + step) for step in range(1, 11)), (4, 204.0)]
    )


def test_texts_and_figures_are_kept(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 1)
    board.text("config", "seed: 0\n# not a heading")
    figure = Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2])
    board.figure(7, "eval/depth-response", figure)
    board.close()
    kept = read(tmp_path)
    (text,) = kept.Tensors("config/text_summary")
    assert text.tensor_proto.string_val == [b"    seed: 0\n    # not a heading"]
    (image,) = kept.Images("eval/depth-response")
    assert (image.step, image.width, image.height) == (7, 100, 50)
