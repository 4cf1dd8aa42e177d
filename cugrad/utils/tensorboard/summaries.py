"""Records for TensorBoard of numbers, histograms, pictures, texts, sounds and hyperparameters."""

from __future__ import annotations

import io
import wave
from importlib import import_module
from typing import Any

import numpy as np

from ...tensor import Tensor

__all__ = [
    "audio", "histogram", "histogram_of_counts", "hparams", "image", "images", "needed", "scalar",
    "text",
]  # fmt: skip

INSTALL = 'torch.utils.tensorboard needs a package: pip install "cugrad[tensorboard]"'
PROTO = "tensorboard.compat.proto"


def needed(module: str) -> Any:
    """A module of the package tensorboard; ModuleNotFoundError that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorboard":
            raise
        raise ModuleNotFoundError(INSTALL) from None


def _summary(tag: str, **value: Any) -> Any:
    pb = needed(f"{PROTO}.summary_pb2")
    return pb.Summary(value=[pb.Summary.Value(tag=tag, **value)])


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """A Tensor of any device, an array or a number as NumPy's array."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return np.asarray((value.float() if value.dtype.itemsize == 2 else value).numpy())
    return np.asarray(value)


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number; `new_style` writes it as a tensor, in double precision if asked for."""
    array = array_of(value).squeeze()
    if array.ndim:
        raise AssertionError(f"Tensor should contain one element, got shape {array.shape} ({tag})")
    if not new_style:
        return _summary(tag, simple_value=float(array))
    proto = needed(f"{PROTO}.tensor_pb2").TensorProto
    if double_precision:
        tensor = proto(double_val=[float(array)], dtype="DT_DOUBLE")
    else:
        tensor = proto(float_val=[float(array)], dtype="DT_FLOAT")
    return _summary(tag, tensor=tensor, metadata=_metadata("scalars"))


def _metadata(plugin: str, content: bytes = b"") -> Any:
    metadata = needed(f"{PROTO}.summary_pb2").SummaryMetadata
    return metadata(plugin_data=metadata.PluginData(plugin_name=plugin, content=content))


# Histograms ---------------------------------------------------------------------------------------


def _default_edges() -> list[float]:
    """TensorFlow's: from 1e-12 to 1e20 in steps of a tenth, and the same below zero."""
    edges, edge = [], 1e-12
    while edge < 1e20:
        edges.append(edge)
        edge *= 1.1
    return [-e for e in reversed(edges)] + [0.0] + edges


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How many values lie between edges: "tensorflow" for TensorFlow's, or NumPy's `bins`."""
    array = array_of(values).reshape(-1).astype(float)
    if not array.size:
        raise ValueError(f"The input has no element. ({tag})")
    counts, edges = np.histogram(array, _default_edges() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, edges = _coarser(counts, edges, len(counts) // max_bins)
    full = np.flatnonzero(counts)  # bins at both ends without values are left out
    first, last = int(full[0]), int(full[-1]) + 1
    before = counts[first - 1 : last] if first else np.concatenate([[0], counts[:last]])
    proto = needed(f"{PROTO}.summary_pb2").HistogramProto
    return _summary(tag, histo=proto(
        min=array.min(), max=array.max(), num=len(array), sum=array.sum(),
        sum_squares=array.dot(array), bucket_limit=edges[first : last + 1].tolist(),
        bucket=before.tolist(),
    ))  # fmt: skip


def _coarser(counts: Any, edges: Any, step: int) -> tuple[Any, Any]:
    """Every `step` bins as one."""
    rest = len(counts) % step
    if rest:
        counts = np.pad(counts, (0, step - rest))
    counts = counts.reshape(-1, step).sum(-1)
    return counts, np.append(edges[:-1:step], edges[-1])


def histogram_of_counts(
    tag: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any,
    bucket_counts: Any,
) -> Any:  # fmt: skip
    """A histogram that was counted already."""
    proto = needed(f"{PROTO}.summary_pb2").HistogramProto
    return _summary(tag, histo=proto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits,
        bucket=bucket_counts,
    ))  # fmt: skip


# Pictures and sounds ------------------------------------------------------------------------------


def image(tag: str, picture: Any, dataformats: str) -> Any:
    """A picture: numbers of [0, 1], or uint8, laid out as `dataformats` says, e.g. "CHW"."""
    array = array_of(picture)
    formats = dataformats.upper()
    if len(formats) != array.ndim or set(formats) - set("NCHW") or len(set(formats)) != array.ndim:
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, "
            f"input_format: {dataformats}"
        )
    if array.ndim == 4:
        array, formats = _side_by_side(array.transpose([formats.index(c) for c in "NCHW"])), "CHW"
    elif array.ndim == 2:
        array, formats = array[None], "C" + formats
    array = array.transpose([formats.index(c) for c in "HWC"])
    if array.shape[-1] == 1:
        array = np.repeat(array, 3, -1)
    scale = 1 if array.dtype == np.uint8 else 255
    pixels = (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    encoded = io.BytesIO()
    import_module("PIL.Image").fromarray(pixels).save(encoded, format="PNG")
    height, width, channels = pixels.shape
    proto = needed(f"{PROTO}.summary_pb2").Summary.Image
    return _summary(tag, image=proto(
        height=height, width=width, colorspace=channels, encoded_image_string=encoded.getvalue(),
    ))  # fmt: skip


images = image


def _side_by_side(pictures: Any) -> Any:
    """Pictures (N, C, H, W) as one (C, rows * H, columns * W), of at most eight columns."""
    count, channels, height, width = pictures.shape
    columns = min(count, 8)
    rows = -(-count // columns)
    grid = np.zeros((channels, rows * height, columns * width), pictures.dtype)
    for i, picture in enumerate(pictures):
        top, left = i // columns * height, i % columns * width
        grid[:, top : top + height, left : left + width] = picture
    return grid


def audio(tag: str, sound: Any, sample_rate: int) -> Any:
    """A sound of numbers of [-1, 1], which is clipped to them."""
    samples = array_of(sound).squeeze()
    if samples.ndim != 1:
        raise AssertionError(f"input tensor should be 1 dimensional, got {samples.shape} ({tag})")
    samples = (samples.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    encoded = io.BytesIO()
    with wave.open(encoded, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    proto = needed(f"{PROTO}.summary_pb2").Summary.Audio
    return _summary(tag, audio=proto(
        sample_rate=sample_rate, num_channels=1, length_frames=len(samples),
        encoded_audio_string=encoded.getvalue(), content_type="audio/wav",
    ))  # fmt: skip


# Texts and hyperparameters ------------------------------------------------------------------------


def text(tag: str, words: str) -> Any:
    """A text, which TensorBoard shows as Markdown."""
    plugin = needed("tensorboard.plugins.text.plugin_data_pb2").TextPluginData(version=0)
    shape = needed(f"{PROTO}.tensor_shape_pb2").TensorShapeProto
    tensor = needed(f"{PROTO}.tensor_pb2").TensorProto(
        dtype="DT_STRING", string_val=[words.encode()],
        tensor_shape=shape(dim=[shape.Dim(size=1)]),
    )  # fmt: skip
    metadata = _metadata("text", plugin.SerializeToString())
    return _summary(f"{tag}/text_summary", metadata=metadata, tensor=tensor)


def hparams(
    values: dict[str, Any], metrics: dict[str, Any], domains: dict[str, list[Any]] | None = None
) -> tuple[Any, Any, Any]:
    """Hyperparameters and the names of the metrics of one run: three records."""
    for name, table in (("hparam_dict", values), ("metric_dict", metrics)):
        if not isinstance(table, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    api = needed("tensorboard.plugins.hparams.api_pb2")
    data = needed("tensorboard.plugins.hparams.plugin_data_pb2")
    names = needed("tensorboard.plugins.hparams.metadata")
    start = data.SessionStartInfo()
    infos = []
    for name, value in values.items():
        if value is None:
            continue
        kind, field, value = _kind_of(name, value)
        setattr(start.hparams[name], field, value)
        domain = None
        if name in (domains or {}):
            domain = _domain(name, value, field, (domains or {})[name])
        infos.append(api.HParamInfo(
            name=name, type=api.DataType.Value(kind), domain_discrete=domain
        ))  # fmt: skip
    scores = [api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics]
    experiment = api.Experiment(hparam_infos=infos, metric_infos=scores)
    end = data.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))

    def record(tag: str, **content: Any) -> Any:
        version = names.PLUGIN_DATA_VERSION
        written = data.HParamsPluginData(version=version, **content).SerializeToString()
        return _summary(tag, metadata=_metadata(names.PLUGIN_NAME, written))

    return (
        record(names.EXPERIMENT_TAG, experiment=experiment),
        record(names.SESSION_START_INFO_TAG, session_start_info=start),
        record(names.SESSION_END_INFO_TAG, session_end_info=end),
    )


def _kind_of(name: str, value: Any) -> tuple[str, str, Any]:
    if isinstance(value, (bool, int, float)):  # TensorBoard compares bools as numbers
        return "DATA_TYPE_FLOAT64", "number_value", value
    if isinstance(value, str):
        return "DATA_TYPE_STRING", "string_value", value
    if isinstance(value, Tensor):
        return "DATA_TYPE_FLOAT64", "number_value", float(value)
    raise ValueError(
        "value should be one of int, float, str, bool, or torch.Tensor, "
        f"got {type(value).__name__} ({name})"
    )


def _domain(name: str, value: Any, field: str, choices: Any) -> Any:
    if not isinstance(choices, list) or not all(isinstance(c, type(value)) for c in choices):
        raise TypeError(
            f"parameter: hparam_domain_discrete[{name}] should be a list of same type as "
            f"hparam_dict[{name}]."
        )
    structs = import_module("google.protobuf.struct_pb2")
    return structs.ListValue(values=[structs.Value(**{field: choice}) for choice in choices])
