"""Where scores go: records, curves in TensorBoard, a figure."""

from collections.abc import Sequence

from scse_dist.config.fingerprint import fingerprint
from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.evaluate.suite import Score
from scse_dist.files import plain_os_errors
from scse_dist.run_folder import RunFolder
from scse_dist.telemetry.figures import depth_response, save_png
from scse_dist.telemetry.records import EvalRecord, replace_evals
from scse_dist.telemetry.tensorboard import TensorBoard


def record_scores(
    folder: RunFolder,
    config: RunConfig,
    data: Manifest,
    step: int,
    scores: Sequence[Score],
    max_windows: int,
    precision: str,
    board: TensorBoard | None,
) -> None:
    """Writes ``evals.jsonl``, ``figures/depth-response.png`` and, with a board, scalars and the figure."""
    identity = {
        "step": step,
        "method": config.model.method.name,
        "seed": config.seed,
        "config_fingerprint": fingerprint(config),
        "data_fingerprint": data.fingerprint,
        "max_windows": max_windows,
        "precision": precision,
    }
    replace_evals(folder.evals, [EvalRecord.model_validate(identity | score._asdict()) for score in scores])
    curves: dict[str, dict[int, float]] = {}
    for score in scores:
        if score.metric == "ppl":
            curves.setdefault(score.set, {})[score.num_loops] = score.value
    if board:
        board.scalars(step, {f"eval/{s.set}/{s.metric}@{s.num_loops}": s.value for s in scores})
    if curves:
        title = f"{config.model.method.name}, width {config.model.width}, step {step}: one set of weights, any depth"
        figure = depth_response(curves, (config.depth.min, config.depth.max), title)
        with plain_os_errors(folder.figures):
            save_png(figure, folder.figures / "depth-response.png")
        if board:
            board.figure(step, "eval/depth-response", figure)
