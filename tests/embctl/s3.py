"""An S3 service for tests, in this process: objects in memory, path-style requests, each signature checked by the published
rules (AWS Signature Version 4). It can fail: `fails(method, key)` returns an HTTP status, "cut" (half of the answer), "reset",
or None."""
import hashlib
import hmac
import http.server
import re
import ssl
import threading
import urllib.parse

KEY, SECRET = "AKIDTEST", "wJalrXUtnFEMI-secret"


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature_of(request, body, secret=SECRET):
    """None: it has none; else whether it is right."""
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, SignedHeaders=([^,]+), "
                         r"Signature=([0-9a-f]{64})", request.headers.get("Authorization", ""))
    if found is None:
        return None
    key, day, region, names, given = found.groups()
    path, _, query = request.path.partition("?")
    hashed = hashlib.sha256(body).hexdigest()
    canonical = "\n".join([request.command, path, "&".join(sorted(query.split("&"))) if query else "",
                           *(f"{name}:{request.headers[name].strip()}" for name in names.split(";")), "", names, hashed])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signing = _hmac(_hmac(_hmac(_hmac(b"AWS4" + secret.encode(), day), region), "s3"), "aws4_request")
    signed = {"host", "x-amz-date"} | ({"x-amz-security-token"} & {h.lower() for h in request.headers})
    return (key == KEY and hmac.compare_digest(given, hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()) and
            signed <= set(names.split(";")) and request.headers.get("x-amz-content-sha256", hashed) == hashed)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def answer(self, status, body=b"", code=None):
        if code is not None:
            body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:len(body) // 2] if self.is_cut else body)
        self.close_connection = self.close_connection or self.is_cut

    def list(self, query):
        s3 = self.server.s3
        if s3.listing is not None:
            return self.answer(200, s3.listing)
        asked = dict(urllib.parse.parse_qsl(query))
        after = bytes.fromhex(asked.get("continuation-token", "").rstrip("=")).decode()
        keys = sorted(k for k in s3.objects if k.startswith(asked.get("prefix", "")) and k > after)
        page, more = keys[:s3.page], len(keys) > s3.page
        token = f"<NextContinuationToken>{page[-1].encode().hex()}==</NextContinuationToken>" if more else ""
        return self.answer(200, ("<?xml version='1.0'?><ListBucketResult>" + 
                                 "".join(f"<Contents><Key>{k}</Key></Contents>" for k in page) +
                                 f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}</ListBucketResult>").encode())

    def do(self):
        s3, self.is_cut = self.server.s3, False
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, query = self.path.partition("?")
        bucket, _, key = path[1:].partition("/")
        with s3.lock:
            s3.asked.append((self.command, key))
            fails = s3.fails(self.command, key)
        if fails == "reset":
            self.close_connection = True
            return None
        self.is_cut = fails == "cut"
        if isinstance(fails, int):
            return self.answer(fails, code="SlowDown" if fails == 503 else "Other")
        if not signature_of(self, body):
            return self.answer(403, code="SignatureDoesNotMatch")
        if s3.token != self.headers.get("x-amz-security-token"):
            return self.answer(403, code="InvalidToken")
        if bucket != "backups":
            return self.answer(404, code="NoSuchBucket")
        if not key:
            return self.list(query)
        if self.command == "PUT":
            s3.objects[key] = body
        elif self.command == "DELETE":
            s3.objects.pop(key, None)
            return self.answer(204)
        elif key not in s3.objects:
            return self.answer(404, code="NoSuchKey")
        return self.answer(200, s3.objects[key] if self.command == "GET" else b"")

    do_GET = do_PUT = do_DELETE = do


class S3:
    """`with S3() as s3`: environment() is what embctl needs."""

    def __init__(self, page=1000, token=None, certificate=None):
        self.certificate = certificate  # with its key: paths; None: no TLS
        self.objects, self.asked, self.page, self.token = {}, [], page, token
        self.listing = None  # what every list has instead
        self.fails, self.lock = lambda method, key: None, threading.Lock()

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.s3, self.server.daemon_threads = self, True
        if self.certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*self.certificate)
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            self.server.handle_error = lambda *_: None
        self.url = f"http{'s' if self.certificate else ''}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def environment(self):
        made = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": "eu-test-1"}
        return made if self.token is None else {**made, "AWS_SESSION_TOKEN": self.token}

    def __exit__(self, kind, value, trace):
        self.server.shutdown()
        self.server.server_close()
