#!/usr/bin/env python3
"""ResNet-50 in TensorFlow, with oneDNN. See protocol.py.

keras.applications' ResNet50 strides in the first 1x1 convolution of a block
(v1), which is 6 % less arithmetic than the other sides' v1.5 have to do.
"""

import os

import protocol

flags = protocol.parse("tensorflow", ("function",), protocol.RESNET)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"

import tensorflow as tf  # noqa: E402: the flags set the environment it reads


def main():
    tf.config.threading.set_intra_op_parallelism_threads(flags.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(1)
    images = tf.random.uniform((flags.batch, 224, 224, 3))
    labels = tf.random.uniform((flags.batch,), 0, 1000, tf.int64)
    model = tf.keras.applications.ResNet50(
        weights=None, classifier_activation=None
    )

    if flags.model == "resnet50_inference":
        step = tf.function(lambda: model(images, training=False))
    else:
        optimizer = tf.keras.optimizers.SGD(
            protocol.LEARNING_RATE, protocol.MOMENTUM
        )
        optimizer.build(model.trainable_variables)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(
                        labels, model(images, training=True)
                    )
                )
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

    def run(steps):
        result = None
        for _ in range(steps):
            result = step()
        if result is not None:
            result.numpy()

    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
