"""An image classifier of timm behind a small HTTP server: real requests, from many threads at once."""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import timm
import torch


def make():
    torch.manual_seed(0)
    return timm.create_model("test_vit", pretrained=False).eval()


def _classify(model, images):
    pixels = torch.linspace(-1, 1, images * 3 * 160 * 160).reshape(images, 3, 160, 160)
    with torch.inference_mode():
        return model(pixels).topk(3).indices.tolist()


def use(model):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(_classify(model, asked["images"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()

    def ask(images):
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.server_port}/", json.dumps({"images": images}).encode()
        )
        return json.load(urllib.request.urlopen(request))

    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(ask, [1, 2, 3, 4, 5, 1, 7, 2] * 5)
    server.shutdown()
    server.server_close()


def workload():
    model = make()
    _classify(model, 2)
    _classify(model, 1)
