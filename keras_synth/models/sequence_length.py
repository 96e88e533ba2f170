"""How long the sequences of a preprocessor are, and how long those of a backbone may be."""

#: The arguments by which preprocessors of any class say so.
LENGTHS = ("encoder_sequence_length", "decoder_sequence_length", "sequence_length")


class FitsBackbone:
    """Mixin of the preprocessors, to stand before the class of KerasHub.

    What `from_preset` makes where the preset has no such preprocessor has sequences as long as the backbone
    of the preset takes them.
    """

    #: Those of `LENGTHS` that its class has.
    length_arguments = ("sequence_length",)

    @classmethod
    def _add_missing_kwargs(cls, loader, kwargs):
        kwargs = super()._add_missing_kwargs(loader, kwargs)
        max_length = loader.config["config"]["max_length"]
        return {**dict.fromkeys(cls.length_arguments, max_length), **kwargs}


def check_lengths(preprocessor, backbone):
    """Checks that a backbone takes what a preprocessor makes.

    Args:
        preprocessor: A preprocessor of any class, or `None`.
        backbone: A backbone of `keras_synth.models`.

    Raises:
        ValueError: If its sequences are longer than the `max_length` of the backbone.
    """
    for name in LENGTHS:
        length = getattr(preprocessor, name, None)
        if length is not None and length > backbone.max_length:
            raise ValueError(
                f"`{name}` of {type(preprocessor).__name__} '{preprocessor.name}' must be at most "
                f"max_length={backbone.max_length}, that of {type(backbone).__name__} '{backbone.name}'. "
                f"Received: {name}={length}"
            )
