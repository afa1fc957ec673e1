"""A headless Chromium that tests steer over WebDriver, with nothing but the standard library."""

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from limits import HANG_S

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PROGRAMS = ("chromium", "chromedriver")


def missing():
    """Return the programs that a browser needs and that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """One tab; ``messages`` are what its console said since the last call."""

    def __init__(self, base, capabilities):
        self._base = base
        self._session = f"/session/{self._send('POST', '/session', capabilities)['sessionId']}"

    def open(self, url, width=1280, height=900, dark=False, media=""):
        self._chrome(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._chrome("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._send("POST", f"{self._session}/url", {"url": url})
        # Before it has painted, a page takes no keys.
        self.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """Return the value of this function body, run in the page."""
        return self._send("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def messages(self):
        return self._send("POST", f"{self._session}/se/log", {"type": "browser"})

    def press(self, key):
        """Press and release a key: "\\ue004" is Tab, "\\ue007" Enter."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._send(
            "POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "k", "actions": keys}]}
        )

    def picture(self, path, whole=True):
        found = self._chrome("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self):
        self._send("DELETE", self._session)

    def _chrome(self, command, **parameters):
        body = {"cmd": command, "params": parameters}
        return self._send("POST", f"{self._session}/goog/cdp/execute", body)

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()[:800]) from error


@contextlib.contextmanager
def browser(folder):
    """A browser whose profile and log lie in ``folder``; it ends with the block."""
    log = folder / "driver.log"
    with log.open("wb") as stream:
        driver = subprocess.Popen([shutil.which("chromedriver"), "--port=0"], stdout=stream, stderr=stream)
    try:
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        page = Browser(f"http://127.0.0.1:{_port(log, driver)}", {"capabilities": {"alwaysMatch": wanted}})
        try:
            yield page
        finally:
            page.close()
    finally:
        driver.terminate()
        driver.wait()


def _port(log, driver):
    """The port that the driver says it listens on."""
    while driver.poll() is None:
        said = log.read_text()
        if "on port " in said.partition("successfully")[2]:
            return int(said.rpartition("on port ")[2].split(".")[0])
        time.sleep(0.05)
    raise AssertionError(log.read_text())
