"""Drives a headless Chromium by the DevTools protocol over a pipe, with Python's standard library
only.

Browser() starts one with a profile of its own; open(path) shows a file from the disk;
evaluate(expression) returns its value; press, move, click, drag, wheel and type imitate a user.
console() and requests() return the page's console messages and network requests since open().
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--mute-audio", "--disable-dev-shm-usage"]
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "Enter": 13, "Tab": 9, "Home": 36, "End": 35}


def find_chromium():
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser")) if path), None)


class Browser:
    def __init__(self, width=1440, height=900, timeout=20):
        self.folder = tempfile.mkdtemp()
        self.timeout = timeout
        to_browser, self.writing = os.pipe()
        self.reading, from_browser = os.pipe()
        command = [find_chromium(), *FLAGS, f"--user-data-dir={self.folder}/profile", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", *command],
                                        pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.events, self.last_id, self.session = b"", [], 0, None
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(each for each in target if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.size = width, height
        self.resize()

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(5)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()
        os.close(self.writing)
        os.close(self.reading)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while True:
            answer = self.next_message(until, method)
            if answer.get("id") != message["id"]:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def next_message(self, until, what):
        while b"\0" not in self.rest:
            if not select.select([self.reading], [], [], max(0, until - time.monotonic()))[0]:
                raise RuntimeError(f"the browser does not answer: {what}")
            more = os.read(self.reading, 1 << 16)
            if not more:
                raise RuntimeError(f"the browser has ended: {what}")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, fragment=""):
        """Shows a file and waits until the page reports that it is ready."""
        self.events = []
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        self.wait_for("document.documentElement?.dataset.ready === 'true' || document.getElementById('failure')?.hidden === false")

    def wait_for(self, expression):
        until = time.monotonic() + self.timeout
        while time.monotonic() < until:
            if self.evaluate(f"!!({expression})"):
                return
            time.sleep(0.02)
        raise RuntimeError(f"never true: {expression}")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits until requested changes are drawn."""
        self.evaluate("new Promise((done) => { const look = () => audit.state().gliding ? requestAnimationFrame(look) : requestAnimationFrame(() => done(1)); look(); })")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)

    def click(self, x, y):
        self.move(x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, x0, y0, x1, y1):
        self.move(x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, button="left", buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)

    def wheel(self, x, y, down, modifiers=0):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=down, modifiers=modifiers)

    def press(self, key, modifiers=0):
        text = {} if key in KEYS else {"text": key}
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click_on(self, selector):
        """Clicks in the middle of the first element that the selector finds, after it is scrolled
        into view."""
        place = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'center'}}); "
                              "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        if place is None:
            raise RuntimeError(f"nothing is {selector}")
        self.click(*place)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent")

    def resize(self, width=None, height=None):
        self.call("Emulation.setDeviceMetricsOverride", width=width or self.size[0], height=height or self.size[1], deviceScaleFactor=1, mobile=False)

    def media(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def console(self):
        """Returns exceptions, log entries, errors and warnings of the page."""
        self.evaluate("0")
        said = [event["params"] for event in self.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return said + [event["params"] for event in self.events if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert")]

    def requests(self):
        return [event["params"]["request"]["url"][:200] for event in self.events if event["method"] == "Network.requestWillBeSent"]
