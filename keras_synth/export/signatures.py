"""What an exported model can be asked: signatures, and the one that every model has.

A signature is a function from named tensors to named tensors, all with the batch as their first axis.
`keras_synth.export.served_tasks` has those of the tasks.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from keras_synth.models.backbone import SynthesizerBackbone


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function that an exported model has under a name.

    Args:
        name: string. The name, in TensorFlow Serving the `signature_name`.
        inputs: dict from the names of the inputs to their `tf.TensorSpec`.
        call: A function of these inputs, by name, which returns a dict of tensors.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    call: Callable[..., dict[str, tf.Tensor]]

    @classmethod
    def of_texts(cls, name: str, call: Callable, *inputs: str) -> "Signature":
        """The signature of a function of texts, which have these names."""
        return cls(name, {text: tf.TensorSpec([None], tf.string, text) for text in inputs}, call)

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """Makes the function a graph. What is float comes out as float32."""

        @tf.function(autograph=False)
        def function(**inputs):
            outputs = {name: tf.convert_to_tensor(value) for name, value in self.call(**inputs).items()}
            return {
                name: tf.cast(value, "float32") if value.dtype.is_floating else value
                for name, value in outputs.items()
            }

        return function.get_concrete_function(**self.inputs)


class ServedModel:
    """A model that is asked with tensors.

    `predict` is what the model itself computes: its inputs, by their names, to its outputs, by theirs.

    Args:
        model: A built model with inputs.

    Raises:
        ValueError: If it is not.
    """

    def __init__(self, model):
        if not (isinstance(model, keras.Model) and model.built and getattr(model, "inputs", None)):
            raise ValueError(
                "`export` takes a built model with inputs: a task or backbone of `keras_synth.models`, or "
                f"another functional or sequential model. Received: model={model!r}"
            )
        self.model = model
        self.backbone = getattr(model, "backbone", model)
        names = make_unique(tensor.name for tensor in model.inputs)
        self.input_specs = {
            name: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, name)
            for name, tensor in zip(names, model.inputs, strict=True)
        }
        self.compute = self.make_graph(self._compute)

    @property
    def input_structure(self):
        """The inputs of the model, as it is called with them."""
        return self.model.inputs[0] if isinstance(self.model, keras.Sequential) else self.model.input

    @property
    def layer_names(self):
        """The names of the model's outputs in their order, for those that are in no dict."""
        if isinstance(self.model, SynthesizerBackbone):
            return ["sequence_output"]
        if isinstance(self.model, keras.Sequential):
            return [self.model.layers[-1].name] * len(self.model.outputs)
        return self.model.output_names

    @property
    def output_names(self):
        """The names of the model's outputs in their order."""
        return list(self.name_outputs(self.model.compute_output_spec(self.input_structure)))

    def list_signatures(self) -> list[Signature]:
        """Lists the signatures; the first one is also `serving_default`."""
        return [Signature("predict", self.input_specs, self.predict)]

    def predict(self, **inputs):
        return self.name_outputs(self.compute(self.check_lengths(inputs)))

    def make_graph(self, function):
        """Makes a function of the inputs by name one graph for all shapes, which signatures share."""
        graph = tf.function(function, input_signature=[self.input_specs], autograph=False)
        return lambda inputs: graph(
            {name: tf.cast(inputs[name], spec.dtype) for name, spec in self.input_specs.items()}
        )

    def name_outputs(self, outputs) -> dict:
        """Gives outputs, however nested, their names: the keys that lead to them, or the layer's name."""
        paths, values = zip(*keras.tree.flatten_with_path(outputs), strict=True)
        keys = ("_".join(key for key in path if isinstance(key, str)) for path in paths)
        names = make_unique(key or self.layer_names[index] for index, key in enumerate(keys))
        return dict(zip(names, values, strict=True))

    def check_lengths(self, inputs):
        """Returns the inputs, or raises an error if they are longer than the backbone takes."""
        if not isinstance(self.backbone, SynthesizerBackbone):
            return inputs
        max_length = self.backbone.max_length
        checks = [
            tf.debugging.assert_less_equal(
                tf.shape(tensor)[1],
                max_length,
                f"`{name}` must be sequences of at most max_length={max_length} tokens.",
            )
            for name, tensor in inputs.items()
        ]
        with tf.control_dependencies(checks):
            return {name: tf.identity(tensor) for name, tensor in inputs.items()}

    def _compute(self, inputs):
        inputs = keras.tree.pack_sequence_as(self.input_structure, [inputs[n] for n in self.input_specs])
        return self.model(inputs, training=False)


def make_unique(names: Iterable[str]) -> list[str]:
    """Makes names unique: the second `x` becomes `x_1`, or has the next number that no name has.

    >>> make_unique(["x", "x", "y", "x", "x_2"])
    ['x', 'x_1', 'y', 'x_3', 'x_2']
    """
    names, unique = list(names), []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        others = (other for other in numbered if other not in names)
        unique.append(next(other for other in itertools.chain([name], others) if other not in unique))
    return unique
