#!/usr/bin/env python3
"""Training steps of the three MNIST models in TensorFlow. See protocol.py."""

import os

import protocol

flags = protocol.parse("tensorflow", ("function",))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402: the flags set the environment it reads


def weights(*shape):
    inputs = 1
    for size in shape[:-1]:
        inputs *= size
    return tf.Variable(tf.random.truncated_normal(shape, stddev=inputs**-0.5))


def bias(units):
    return tf.Variable(tf.zeros(units))


def make_model(name):
    """Returns the variables and the function from images to logits."""
    if name == "mnist_softmax":
        v = [weights(784, 10), bias(10)]
        return v, lambda x: x @ v[0] + v[1]
    if name == "mnist_mlp":
        sizes = (784, 128, 32, 10)
        v = []
        for inputs, units in zip(sizes, sizes[1:]):
            v += [weights(inputs, units), bias(units)]

        def mlp(x):
            x = tf.nn.relu(x @ v[0] + v[1])
            x = tf.nn.relu(x @ v[2] + v[3])
            return x @ v[4] + v[5]

        return v, mlp
    v = [weights(5, 5, 1, 32), bias(32), weights(5, 5, 32, 64), bias(64)]
    v += [weights(7 * 7 * 64, 1024), bias(1024), weights(1024, 10), bias(10)]

    def cnn(x):
        for w, b in ((v[0], v[1]), (v[2], v[3])):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), b))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.reshape(x, [-1, 7 * 7 * 64])
        x = tf.nn.relu(x @ v[4] + v[5])
        return tf.nn.dropout(x, 0.5) @ v[6] + v[7]

    return v, cnn


def main():
    tf.config.threading.set_intra_op_parallelism_threads(flags.threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.threads)
    tf.random.set_seed(1)
    image_shape = (28, 28, 1) if flags.model == "mnist_cnn" else (784,)
    images = tf.random.uniform((flags.batch, *image_shape))
    labels = tf.random.uniform((flags.batch,), maxval=10, dtype=tf.int32)
    variables, logits_of = make_model(flags.model)
    slots = [tf.Variable(tf.zeros_like(v)) for v in variables]

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, logits_of(images)
                )
            )
        gradients = tape.gradient(loss, variables)
        for variable, slot, gradient in zip(variables, slots, gradients):
            # One fused kernel, which Keras' optimizer no longer uses.
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=slot.handle,
                lr=protocol.LEARNING_RATE,
                grad=gradient,
                momentum=protocol.MOMENTUM,
            )
        return loss

    def run(steps):
        for _ in range(steps):
            loss = step(images, labels)
        loss.numpy()

    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
