"""Downloads of datasets, resumed after dropped connections and interruptions, and verified by checksum.

Bytes go to `<file>.part`; a note beside it has the server's validator of the file (ETag or Last-Modified), so that a
later request resumes only if it is still the same file.  The checksum of the whole is always verified.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..common.files import create_file, open_no_follow, read_bounded
from .catalogue import Download, find_entry
from .directory import data_directory
from .reader import DataError
from .verification import file_md5

Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in total if the server says

MAX_ATTEMPTS = 5  # in a row without a new byte
BACKOFF_SECONDS = 1.0  # before the second attempt, doubled each time
TIMEOUT_SECONDS = 60.0  # without a byte
BLOCK_BYTES = 1 << 18
MAX_BYTES = 8 << 30  # of a file whose published size is not known

logger = logging.getLogger(__name__)


class DownloadError(DataError):
    """A failed download; the message says what to do instead."""


class _ConnectionDropped(Exception):
    """A failure after which another attempt is made."""


def get(
    name: str,
    data_dir: str | Path | None = None,
    progress: Report | None = None,
    url: str | None = None,
    variant: str | None = None,
) -> Path:
    """Downloads a dataset's files into `data_dir` and returns the path of the archive (or the files' directory).

    `url` is another address: of the file itself, or, ending in a slash, of the files' directory.  `variant` is one of
    the formats it is published in (CIFAR: python, binary).  Complete files are kept, partial ones resumed.
    """
    entry, folder = find_entry(name), data_directory(data_dir)
    files = entry.files(variant)
    if url is not None and len(files) > 1 and not url.endswith("/"):
        raise DownloadError(
            f"url = {url}; {name} has {len(files)} files: give their directory, with a slash at the end"
        )
    for file in files:
        address = file.url if url is None else url + Path(file.path).name if url.endswith("/") else url
        fetch(address, folder / file.path, file, progress)
    return folder / files[0].path if len(files) == 1 else (folder / files[0].path).parent


def fetch(url: str, target: Path, expected: Download, progress: Report | None = None) -> None:
    if not url.startswith(("https://", "http://")):
        raise DownloadError(f"url = {url}; expected an address that begins with https:// or http://")
    if target.exists():
        if file_md5(target) == expected.md5:
            return
        logger.warning("%s does not match the published checksum and is downloaded again", target)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for again in (True, False):
            continued = _attempts(url, part, expected.size or MAX_BYTES, progress)
            found = file_md5(part)
            if found == expected.md5:
                part.replace(target)
                _note(part).unlink(missing_ok=True)
                return
            _forget(part)
            if not (continued and again):
                break
            logger.warning("the resumed download of %s has a wrong checksum; starting from the beginning", url)
    except OSError as error:
        raise DownloadError(f"{target} cannot be written: {error}; what was downloaded is kept in {part}") from None
    raise DownloadError(
        f"{url} has md5 {found}, expected {expected.md5}; it is not the published file (or an error page): "
        "try again later, or give another address with --url"
    )


def _attempts(url: str, part: Path, limit: int, progress: Report | None) -> bool:
    """Tries until the file is complete; returns whether it took more than one request."""
    failures, continued = 0, False
    while True:
        before = _size(part)
        continued = continued or before > 0
        try:
            _request(url, part, limit, progress)
            return continued
        except _ConnectionDropped as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= MAX_ATTEMPTS:
                raise DownloadError(
                    f"{url}: {error}, {failures} times in a row; {_size(part):,} bytes are kept in {part}: "
                    "the same command resumes, or download the file by other means to "
                    f"{part.with_suffix('')}"
                ) from None
            delay = BACKOFF_SECONDS * 2 ** (failures - 1)
            logger.info("%s: %s; next attempt in %g s", url, error, delay)
            time.sleep(delay)


def _request(url: str, part: Path, limit: int, progress: Report | None) -> None:
    if _size(part) > limit:
        _forget(part)
    start = _size(part)
    headers = {"User-Agent": "fedasd-fast"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator := _read_note(part, url):
            headers["If-Range"] = validator
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing after `start`: complete, or another file; the checksum will tell
                if error.headers.get("Content-Range") == f"bytes */{start}":
                    return
                _forget(part)
                raise _ConnectionDropped("the file has changed") from None
            if error.code >= 500 or error.code in (408, 429):
                raise _ConnectionDropped(f"the server returned {error.code} {error.reason}") from None
            raise DownloadError(
                f"{url}: the server returned {error.code} {error.reason}; give another address with --url"
            ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(f"{url}: the server's certificate is not trusted: {reason}") from None
        raise _ConnectionDropped(f"no connection ({reason})") from None
    with response:
        _receive(response, url, part, start, limit, progress)


def _receive(response: Any, url: str, part: Path, start: int, limit: int, progress: Report | None) -> None:
    if response.status == 206:
        span = response.headers.get("Content-Range", "")
        if not span.startswith(f"bytes {start}-"):
            _forget(part)
            raise _ConnectionDropped(f"the server sends {span!r} for bytes {start}-")
    else:
        start = 0  # the server ignores ranges, or the file has changed
    length = response.headers.get("Content-Length")
    if length and not (length.isascii() and length.isdigit() and len(length) < 20):
        raise DownloadError(f"{url}: the server says Content-Length {length!r:.60}, which is no number of bytes")
    total = start + int(length) if length else None
    if total is not None and total > limit:
        raise _too_long(url, part, limit)
    if start == 0:
        _write_note(part, url, response.headers)
    with open_no_follow(part, "ab") if start else create_file(part) as file:
        done = start
        while True:
            try:
                block = response.read(BLOCK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise _ConnectionDropped(f"the connection broke after {done:,} bytes ({error})") from None
            if not block:
                break
            done += len(block)
            if done > limit:
                raise _too_long(url, part, limit)
            file.write(block)
            if progress:
                progress(part.name.removesuffix(".part"), done, total)
    if total is not None and done < total:
        raise _ConnectionDropped(f"the connection ended after {done:,} of {total:,} bytes")


def _too_long(url: str, part: Path, limit: int) -> DownloadError:
    _forget(part)
    return DownloadError(
        f"{url} is longer than {limit:,} bytes; it is not the published file: give another address with --url"
    )


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _write_note(part: Path, url: str, headers: Any) -> None:
    tag = headers.get("ETag", "")
    validator = tag if tag.startswith('"') else headers.get("Last-Modified")  # weak tags do not promise the same bytes
    with create_file(_note(part)) as file:
        file.write(json.dumps({"url": url, "validator": validator}).encode())


def _read_note(part: Path, url: str) -> str | None:
    try:
        note = json.loads(read_bounded(_note(part), 1 << 16))
        return str(note["validator"]) if note["validator"] and note["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
