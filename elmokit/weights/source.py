"""Find a saved model, whichever of the formats it has, and make a module of it.

The readers of foreign formats are imported where they are used: they take a twentieth of the time to a first vector.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.errors import WeightsError
from elmokit.model.bilm import BiLM
from elmokit.text.vocab import Vocab, read_vocab
from elmokit.weights.archives import find_in_archive, is_archive, unpacked
from elmokit.weights.building import without_memory
from elmokit.weights.bundled import BUNDLED, find_model, list_packages
from elmokit.weights.folder import CONFIG, DICTIONARY, SOFTMAX, TENSORS, VOCAB, load_folder, load_folder_softmax
from elmokit.weights.hub import find_on_hub
from elmokit.weights.known_files import recognize_download
from elmokit.weights.locating import MANY_LANGUAGES, FoundFiles, find_files
from elmokit.weights.meta import read_meta
from elmokit.weights.options import read_json_object
from elmokit.weights.saved import SavedBiLM, SavedSoftmax
from elmokit.weights.saved import Source as Source  # importers of `load_saved` need both
from elmokit.weights.signing import check_required_signature, reject_unsigned_files
from elmokit.weights.sums import sha256

EXPECTED = (
    f"{CONFIG} (saved by elmokit), options.json (*options*.json) with one *.hdf5 (published), a TensorFlow checkpoint "
    "(*.index), or encoder.pkl (ELMoForManyLangs)"
)


@dataclass(frozen=True)
class Located:
    """The files of a model on disk."""

    folder: Path
    files: FoundFiles

    def path(self, name: str | None) -> Path:
        """Return the path of one of the files."""
        assert name is not None
        return self.folder / name

    def vocab(self) -> Vocab | None:
        """Return the vocabulary beside the model, if there is one."""
        return None if self.files.vocab is None else read_vocab(self.path(self.files.vocab))


def load_saved(source: Source) -> SavedBiLM:
    """Load a saved biLM of any format."""
    with _opened(source) as found:
        match found.files.format:
            case "elmokit":
                return load_folder(found.folder)
            case "elmoformanylangs":
                from elmokit.weights.elmoformanylangs import read_elmoformanylangs

                return read_elmoformanylangs(found.folder)
            case _:
                return _load_published(found)


def _load_published(found: Located) -> SavedBiLM:
    from elmokit.weights.bilm_tf import read_bilm_tf
    from elmokit.weights.tf_checkpoint import read_checkpoint

    files, options = found.files, found.path(found.files.options)
    vocab = None if "char_cnn" in read_json_object(options) else found.vocab()
    if files.weights is None:
        saved = read_checkpoint(options, found.path(files.checkpoint), vocab)
    else:
        weights = found.path(files.weights)
        published = recognize_download(weights)
        saved = read_bilm_tf(options, weights, vocab)
        if published:
            saved.about["Published as"] = published
    return saved if files.meta is None else replace(saved, about=saved.about | read_meta(found.path(files.meta)))


def has_softmax(source: Source) -> bool:
    """Return True if a model has its output layer with it, and the words of it."""
    if isinstance(source, str | Path) and is_archive(path := find_model(source)):
        return find_in_archive(path).has_output_layer
    with _opened(source) as found:
        return found.files.has_output_layer


def load_softmax(source: Source) -> SavedSoftmax:
    """Load the output layer that was saved with a model."""
    with _opened(source) as found:
        if found.files.format == "elmokit":
            return load_folder_softmax(found.folder)
        return _load_published_softmax(found)


def _load_published_softmax(found: Located) -> SavedSoftmax:
    from elmokit.weights.bilm_tf import read_bilm_tf, read_options, read_softmax
    from elmokit.weights.tf_checkpoint import check_same_model, read_checkpoint_softmax

    files, vocab = found.files, found.vocab()
    if vocab is None or not files.has_output_layer:
        missing = "vocabulary (vocab.txt)" if files.checkpoint and vocab is None else "output layer"
        raise WeightsError(
            f"{found.folder}: has no {missing}, so it can embed but not score, predict or be fine-tuned; published "
            "weights are mostly without: use the model's TensorFlow checkpoint and vocabulary, or learn a new "
            "output layer from text with `elmokit finetune`"
        )
    config = read_options(found.path(files.options), vocab).config
    if files.softmax is not None:
        return read_softmax(found.path(files.softmax), config, vocab)
    checkpoint = found.path(files.checkpoint)
    if files.weights is not None:
        check_same_model(checkpoint, read_bilm_tf(found.path(files.options), found.path(files.weights), vocab))
    return read_checkpoint_softmax(checkpoint, config, vocab)


def build_bilm(saved: SavedBiLM) -> BiLM:
    """Make the module that holds the saved tensors themselves, not copies; it is in evaluation mode."""
    with without_memory():
        bilm = BiLM(saved.config)
    bilm.load_state_dict(saved.tensors, assign=True)
    return bilm.eval()


def list_paths(source: Source) -> list[Path]:
    """Return the files of a saved model that are read; an archive is one file."""
    if isinstance(source, str | Path) and is_archive(path := find_model(source)):
        return [path]
    with _opened(source) as found:
        files = found.files
        match files.format:
            case "elmokit":
                names = [CONFIG, TENSORS]
                names += [name for name in (DICTIONARY, SOFTMAX, VOCAB) if found.path(name).is_file()]
            case "elmoformanylangs":
                names = list(MANY_LANGUAGES)
            case _:
                names = [name for name in (files.options, files.weights, files.softmax, files.vocab) if name]
                if files.checkpoint is not None:
                    shards = found.folder.glob(f"{files.checkpoint}.data-*")
                    names += [f"{files.checkpoint}.index", *sorted(path.name for path in shards)]
        return [found.path(name) for name in names]


def file_hashes(source: Source) -> dict[str, str]:
    """Return the SHA-256 of each file of a saved model, by file name."""
    try:
        return {path.name: sha256(path) for path in list_paths(source)}
    except OSError as error:
        raise WeightsError(f"{error.filename}: cannot be read: {error.strerror}") from error


@contextmanager
def _opened(source: Source) -> Iterator[Located]:
    """Yield the files of a model; an archive is unpacked for as long."""
    if isinstance(source, tuple):
        located = _locate_pair(*map(Path, source))
        reject_unsigned_files(*map(Path, source))
        yield located
        return
    path = find_on_hub(find_model(source))
    if is_archive(path):
        with unpacked(path) as folder:
            yield _locate_folder(folder)
    elif Path(f"{path}.index").is_file():
        yield _locate_checkpoint(path)
    else:
        yield _locate_folder(path)


def _locate_pair(options: Path, weights: Path) -> Located:
    is_checkpoint = Path(f"{weights}.index").is_file()
    for path in (options,) if is_checkpoint else (options, weights):
        if not path.is_file():
            raise WeightsError(
                f"{path}: no such file; expected the pair (options.json, weights.hdf5) of a published model"
            )
    folder = options.resolve().parent
    vocab = "vocab.txt" if (folder / "vocab.txt").is_file() else None
    names = {"checkpoint" if is_checkpoint else "weights": str(weights.resolve())}
    return Located(folder, FoundFiles("checkpoint" if is_checkpoint else "bilm-tf", options.name, vocab=vocab, **names))


def _locate_checkpoint(prefix: Path) -> Located:
    """Locate one checkpoint of several in a folder, named without the ending ``.index``."""
    found = _locate_folder(prefix.parent)
    return replace(found, files=replace(found.files, format="checkpoint", weights=None, checkpoint=prefix.name))


def _locate_folder(folder: Path) -> Located:
    if not folder.is_dir():
        if folder.parent == BUNDLED:
            raise WeightsError(f"{folder}: does not exist; it should come with elmokit, install it again")
        state = "is a file" if folder.exists() else "does not exist"
        raise WeightsError(
            f"{folder}: {state}; expected a folder saved by elmokit, a folder with options.json and one .hdf5 file, "
            f"the pair of these two files, an archive of such a folder, or the name of a model "
            f"({', '.join(_known_names())})"
        )
    files = find_files([path.name for path in folder.iterdir() if path.is_file()], where=str(folder))
    if files is None:
        raise WeightsError(f"{folder}: no model in this folder; looked for {EXPECTED}")
    check_required_signature(folder)
    return Located(folder, files)


def _known_names() -> list[str]:
    bundled = [folder.name for folder in BUNDLED.iterdir() if folder.is_dir()] if BUNDLED.is_dir() else []
    return sorted({*bundled, *list_packages()})
