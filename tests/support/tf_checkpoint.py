"""Write a TensorFlow checkpoint: ``python tf_checkpoint.py ARRAYS.npz PREFIX STEP [SHARDS]``, where TensorFlow is.

The arrays become variables of the names in the file, as bilm-tf's training had them. With one shard, TensorFlow's own
Saver writes the files; with more, each shard is written by itself and all are merged, as on several machines.
"""

import sys

import numpy as np


def main() -> None:
    import tensorflow as tf

    arrays_path, prefix, step, *shards = sys.argv[1:]
    arrays = dict(np.load(arrays_path))
    if not shards:
        v1 = tf.compat.v1
        v1.disable_eager_execution()
        variables = [v1.get_variable(name, initializer=array, use_resource=False) for name, array in arrays.items()]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver(variables).save(session, prefix, global_step=int(step), write_meta_graph=False)
        return
    names, count = sorted(arrays), int(shards[0])
    parts = []
    for index in range(count):
        chosen = names[index::count]
        parts.append(f"{prefix}_part{index}")
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=chosen,
            shape_and_slices=[""] * len(chosen),
            tensors=[tf.constant(arrays[name]) for name in chosen],
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=f"{prefix}-{step}")


if __name__ == "__main__":
    main()
