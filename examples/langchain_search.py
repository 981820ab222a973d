"""Search texts with LangChain: pip install 'elmokit[langchain]'."""

from langchain_core.vectorstores import InMemoryVectorStore

from elmokit.integrations.langchain import ElmoEmbeddings

store = InMemoryVectorStore.from_texts(["The bank lends money.", "Reeds grow on the bank."], ElmoEmbeddings())
print(store.similarity_search("The bank gives loans.", k=1)[0].page_content)
