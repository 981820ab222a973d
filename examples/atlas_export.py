"""Write a parquet file for Embedding Atlas: pip install 'elmokit[atlas]'."""

from elmokit import Embedder
from elmokit.integrations.atlas import export_tokens

sentences = ["The bank lends money.", "Reeds grow on the bank.", "The bank closed early."]
num_rows = export_tokens(Embedder.from_pretrained(), sentences, "bank.parquet", words=["bank"])
print(f"{num_rows} rows; open them with: embedding-atlas bank.parquet --text text --vector vector")
