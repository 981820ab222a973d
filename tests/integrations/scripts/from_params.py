"""Build the layer from a configuration."""

import sys

from allennlp.common import Params
from allennlp.modules.elmo import Elmo, batch_to_ids

params = Params(
    {"options_file": sys.argv[1], "weight_file": sys.argv[2], "num_output_representations": 1, "dropout": 0.25}
)
elmo = Elmo.from_params(params)
params.assert_empty("Elmo")
print(elmo.get_output_dim(), len(elmo._scalar_mixes), elmo(batch_to_ids([["a"]]))["mask"].long().tolist())
