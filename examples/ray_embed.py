"""Embed the lines of text files with Ray Data, into Parquet files with the columns text and embedding.

    python examples/ray_embed.py MODEL notes.txt vectors/ --workers 2

Needs `pip install 'elmokit[ray]'`. On a cluster, MODEL must be a path that every machine can read.
"""

import argparse

import ray

from elmokit.integrations.ray import EmbedBatch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the folder of a model")
    parser.add_argument("texts", help="a text file, or a folder of them; one text per line")
    parser.add_argument("output", help="the folder for the Parquet files")
    parser.add_argument("--workers", type=int, default=2, help="tasks that embed in parallel")
    args = parser.parse_args()

    ray.init(num_cpus=args.workers, include_dashboard=False, log_to_driver=False)
    texts = ray.data.read_text(args.texts).repartition(4 * args.workers)  # enough pieces for all workers
    embed = EmbedBatch(args.model, column="text", layer="mean", pool="mean")
    vectors = texts.map_batches(embed, batch_size=256, compute=ray.data.TaskPoolStrategy(size=args.workers))
    vectors.write_parquet(args.output)
    ray.shutdown()


if __name__ == "__main__":
    main()
