"""Certificates and tokens for the tests, made with the openssl program: an authority, what it signs, and strangers."""
import hashlib
import os
import secrets
import subprocess


def openssl(*arguments, folder):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Authority:
    """A certificate authority with a folder of its own."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}",
                "-addext", "basicConstraints=critical,CA:TRUE",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", folder=folder)

    @property
    def path(self):
        return os.path.join(self.folder, f"{self.name}.pem")

    def issue(self, name, alternative="IP:127.0.0.1,DNS:localhost", ends="20991231235959Z"):
        """Paths of a certificate for `alternative` names, and of its key."""
        begins = "20200101000000Z"
        folder = self.folder
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.csr", "-subj", f"/CN={name}", folder=folder)
        database = os.path.join(folder, f"{name}.ca")
        os.mkdir(database)
        open(os.path.join(database, "index"), "w", encoding="ascii").close()
        with open(os.path.join(database, "config"), "w", encoding="ascii") as config:
            config.write(f"[ca]\ndefault_ca=c\n[c]\ndatabase={database}/index\nnew_certs_dir={database}\nrand_serial=yes\n"
                         f"default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n[e]\n"
                         f"subjectAltName={alternative}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        openssl("ca", "-batch", "-config", f"{database}/config", "-cert", f"{self.name}.pem", "-keyfile",
                f"{self.name}.key", "-in", f"{name}.csr", "-out", f"{name}.pem", "-notext", "-startdate", begins,
                "-enddate", ends, "-extensions", "e", folder=folder)
        os.chmod(os.path.join(folder, f"{name}.key"), 0o600)
        return os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")


class Tokens:
    """A server's list of tokens, and each token in a file of its own."""

    def __init__(self, folder):
        self.folder, self.path, self.lines = folder, os.path.join(folder, "tokens"), {}
        self.write()

    def add(self, name, role, tables="*", limits=""):
        """Returns the token."""
        token = "embd_" + secrets.token_hex(32)
        self.lines[name] = f"{name} {role} {tables} sha256:{hashlib.sha256(token.encode()).hexdigest()} {limits}\n"
        self.write()
        with open(self.file(name), "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(token + "\n")
        return token

    def remove(self, name):
        del self.lines[name]
        self.write()

    def file(self, name):
        return os.path.join(self.folder, name + ".token")

    def write(self):
        with open(self.path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write("# name role tables hash\n\n" + "".join(self.lines.values()))
