"""Classify texts with scikit-learn on ELMo vectors: pip install 'elmokit[sklearn]'."""

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from elmokit.integrations.sklearn import ElmoVectorizer

texts = ["The bank raised its rates.", "We sat on the river bank.", "The bank lends money.", "Reeds grow on the bank."]
labels = ["money", "river", "money", "river"]
classifier = make_pipeline(ElmoVectorizer(layer=1), LogisticRegression())
classifier.fit(texts, labels)
print(classifier.predict(["My bank charges fees."]))
