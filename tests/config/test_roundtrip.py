"""Whatever a configuration holds, the file written of it reloads to an equal object."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from scse_dist.config import RunConfig, dump_config, read_config
from scse_dist.config.methods import LoopedBaselineConfig, ScseConfig, TunedAdapterConfig, UnsharedConfig
from scse_dist.config.schema import (
    DataSection,
    DepthSection,
    EvaluateSection,
    InitSection,
    ModelSection,
    OptimSection,
    RunSection,
)

positive = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=1, max_value=2**63)
fractions = st.floats(min_value=0, max_value=1, exclude_max=True)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["1e3", "null", "on", "2024-01-01", "0x1f", "~", ".inf"]
)

methods = st.one_of(
    st.builds(ScseConfig, step_scale=positive, mask_eps=positive),
    st.builds(LoopedBaselineConfig, gain=st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(TunedAdapterConfig, projection_scale=positive),
    st.builds(UnsharedConfig, num_layers=st.integers(1, 10**6)),
)


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    method = draw(methods)
    shallow, deep = sorted(draw(st.tuples(counts, counts)))
    depth = DepthSection(min=shallow, max=deep)
    if isinstance(method, UnsharedConfig):
        depth = DepthSection(schedule="fixed", min=method.num_layers, max=method.num_layers)
    return RunConfig(
        run=RunSection(dir=draw(texts)),
        seed=draw(st.integers(min_value=0)),
        data=DataSection(path=draw(st.none() | texts), window=draw(st.none() | counts)),
        model=ModelSection(
            width=24,
            dropout=draw(fractions),
            init=InitSection(embedding_std=draw(positive), linear_std=draw(st.none() | positive)),
            method=method,
        ),
        depth=depth,
        optim=OptimSection(lr=draw(positive), betas=draw(st.tuples(fractions, fractions))),
        evaluate=EvaluateSection(
            sets=tuple(draw(st.lists(texts, max_size=3))),
            depths=tuple(sorted(draw(st.sets(counts, min_size=1, max_size=5)))),
        ),
    )


@settings(max_examples=150, deadline=None)
@given(configs())
def test_a_written_configuration_reloads_to_an_equal_object(config: RunConfig):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(dump_config(config), encoding="utf-8", newline="")
        assert read_config(path) == config
