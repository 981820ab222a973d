"""Use ELMo as a transformers model: pip install 'elmokit[transformers]'."""

from transformers import AutoModel, AutoTokenizer

from elmokit.integrations.transformers import ElmoModel, ElmoTokenizer

ElmoModel.from_elmokit("en-small").save_pretrained("elmo-hf")
ElmoTokenizer().save_pretrained("elmo-hf")
model, tokenizer = AutoModel.from_pretrained("elmo-hf"), AutoTokenizer.from_pretrained("elmo-hf")
found = model(**tokenizer(["The bank closed."], return_tensors="pt"), output_hidden_states=True)
print(found.last_hidden_state.shape, len(found.hidden_states))
