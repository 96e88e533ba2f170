"""Which layers of a model are frozen: a part of its config."""


class FrozenLayers:
    """Mixin of models, to stand before the class of KerasHub: layers that are frozen stay so in files.

    It is the layers of the model itself that count, each as a whole: the embedding and the blocks of a
    backbone, and the head of a task. KerasHub's configs know of the whole model alone.
    """

    def get_config(self):
        config = super().get_config()
        frozen = [layer.name for layer in self.layers if layer.weights and not layer.trainable]
        return {**config, "frozen_layers": frozen} if frozen else config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        frozen = config.pop("frozen_layers", ())
        model = super().from_config(config)
        for name in frozen:
            model.get_layer(name).trainable = False
        return model
