"""Names of the files that every run folder has."""

RECIPE = "recipe.json"
LOG = "log.jsonl"
CURVES = "tensorboard"
CHECKPOINTS = "checkpoints"
MODEL = "model"
