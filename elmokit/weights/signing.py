"""Signatures of model folders, with keys of your own (OpenSSF model signing).

SHA256SUMS detects damage, but whoever changes a model can write it anew. A signature, ``model.sig`` in the folder,
covers every file of it, the model card too, and only the owner of the private key can make one.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.atomic import atomic_file
from elmokit.errors import ConfigError, WeightsError
from elmokit.extras import require

SIGNATURE = "model.sig"
REQUIRED_KEY = "ELMOKIT_REQUIRE_SIGNATURE"
"""Environment variable: the public key that every model must be signed with."""
KEY_PASSWORD = "ELMOKIT_KEY_PASSWORD"
PACKAGE = Path(__file__).parents[1]


def sign_folder(folder: str | Path, *, key: str | Path) -> Path:
    """Sign a model folder with a private key, and return the path of the signature.

    Args:
        folder: Folder of a biLM, a task model or an encoder. A signature in it is replaced.
        key: Private key on the curve P-256, P-384 or P-521, in PEM. The environment variable
            ``ELMOKIT_KEY_PASSWORD`` has its password, if it is encrypted.
    """
    folder, key = Path(folder), Path(key)
    signing = require("model_signing.signing", extra="sign")
    if not folder.is_dir():
        raise WeightsError(f"{folder}: is no folder; expected the folder of a model")
    password = os.environ.get(KEY_PASSWORD)
    with _explained_key(key, kind="private"):
        config = signing.Config().use_elliptic_key_signer(
            private_key=key, password=None if password is None else password.encode()
        )
    with tempfile.TemporaryDirectory() as elsewhere:  # a new file in the folder would be signed too
        signature = Path(elsewhere, SIGNATURE)
        config.set_hashing_config(_hashing_config()).sign(folder, signature)
        with atomic_file(folder / SIGNATURE, follow_link=False) as new:
            new.write_bytes(signature.read_bytes())
    return folder / SIGNATURE


def verify_folder(folder: str | Path, *, key: str | Path) -> None:
    """Verify that a folder is what the owner of a key signed; every file of it, and no other.

    Args:
        folder: Folder of a model, with its ``model.sig``.
        key: Public key, in PEM.

    Raises:
        WeightsError: The folder is not signed, was signed with another key, or was changed since.
    """
    folder, key = Path(folder), Path(key)
    verifying = require("model_signing.verifying", extra="sign")
    if not (folder / SIGNATURE).is_file():
        raise WeightsError(
            f"{folder}: is not signed (no {SIGNATURE}), but a signature is required; get the signed folder, or sign it "
            f"yourself if you trust it: elmokit sign {folder} --key KEY"
        )
    with _explained_key(key, kind="public"):
        config = verifying.Config().use_elliptic_key_verifier(public_key=key)
    try:
        config.set_hashing_config(_hashing_config()).verify(folder, folder / SIGNATURE)
    except Exception as error:  # parsers of the signature and of cryptography raise many
        # The library lists the digests of changed files as bytes.
        reason = re.sub(r": Expected .*", "", " ".join(str(error).split()))[:300] or type(error).__name__
        raise WeightsError(
            f"{folder}: its signature does not match the key {key} ({reason}); the folder was changed, or signed by "
            "someone else: get it again"
        ) from error


def check_required_signature(folder: Path) -> None:
    """Verify a folder that is about to be loaded, if the environment requires signatures.

    Models inside the package are as trusted as its code. A folder in a signed one, such as the biLM of a task model, is
    covered by that signature.
    """
    key = os.environ.get(REQUIRED_KEY)
    if key and PACKAGE not in folder.resolve().parents:
        is_part = not (folder / SIGNATURE).is_file() and (folder.parent / SIGNATURE).is_file()
        verify_folder(folder.parent if is_part else folder, key=key)


def reject_unsigned_files(*paths: Path) -> None:
    """Reject files that are not in a folder of their own, if the environment requires signatures."""
    if os.environ.get(REQUIRED_KEY):
        raise WeightsError(
            f"{paths[0]}: a signature is required, and single files have none; put {' and '.join(map(str, paths))} "
            "into a folder, and sign that: elmokit sign FOLDER --key KEY"
        )


def _hashing_config() -> Any:
    hashing = require("model_signing.hashing", extra="sign")
    return hashing.Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)


@contextmanager
def _explained_key(key: Path, *, kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{key}: cannot be read: {error.strerror}; expected a {kind} key in PEM") from error
    except Exception as error:
        raise ConfigError(
            f"{key}: not a {kind} key that can be used ({error}); expected one on the curve P-256, P-384 or P-521: "
            "openssl ecparam -name prime256v1 -genkey -noout -out key.pem; openssl ec -in key.pem -pubout -out key.pub"
        ) from error
