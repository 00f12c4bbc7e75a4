"""Permissions: tokens by role and job, certificates, and requests that are refused for their size or number."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography import x509
from tests.integration.processes import marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG, Outcome
from tests.message_texts import has
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from understudy.cli import app
from understudy.messages import agents, asking, http_requests, orchestrators, tools
from understudy.orchestrator import limits
from understudy.orchestrator.security import Access, Role

ROLES = (Role.READ, Role.OPERATE, Role.SUBMIT)
ENOUGH = {wanted: ROLES[number:] for number, wanted in enumerate(ROLES)} | {Role.EVIDENCE: (Role.EVIDENCE, Role.OPERATE, Role.SUBMIT)}
JOB = {"name": "other", "program": ["x.py"], "folder": "/", "spares": 0}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with marked() as mark:
        service = Service(tmp_path_factory.mktemp("service"), mark)
        for name in ("mine", "theirs"):
            ask(service, "POST", "/v1/jobs", TOKEN, {**JOB, "name": name}).raise_for_status()
        yield service


def ask(service: Service, method: str, path: str, token: str, body: Any = None) -> httpx.Response:
    return httpx.request(method, service.url + path, json=body, headers=bearer(token), timeout=LONG)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def made(*words: str) -> str:
    """What `understudy token` prints."""
    words = (*words, "--node", "a") if "agent" in words else words
    done = CliRunner().invoke(app, ["token", *words], env={"UNDERSTUDY_TOKEN": TOKEN})
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_each_route_wants_its_role(service: Service) -> None:
    """All routes of the description, with a token of each role; that of a job opens no other job and nothing that is about all."""
    description = httpx.get(f"{service.url}/openapi.json").json()
    tokens = {role: made("--role", role) for role in Role}
    of_mine = {role: made("--role", role, "--job", "mine") for role in Role}
    seen = set()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if path == "/v1/health":
                assert "x-role" not in operation
                continue
            wanted = Role(operation["x-role"])
            seen.add(wanted)
            there = path.replace("{job}", "theirs")
            for role, token in tokens.items():
                enough = role in ENOUGH[wanted]
                # An empty body is let in and then found wanting: nothing is changed by it.
                status = ask(service, method, there, token, {"rank": -1, "exit_code": -1}).status_code
                assert (status not in (401, 403)) == enough, (role, method, path, status)
            for token in ("", "wrong", TOKEN[:-1], TOKEN + "x"):
                answer = ask(service, method, there, token)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            if "{job}" in path:
                own = path.replace("{job}", "mine")
                assert ask(service, method, own, of_mine[wanted], {"rank": -1, "exit_code": -1}).status_code not in (401, 403)
                assert ask(service, method, there, of_mine[wanted]).status_code == 403
            elif path != "/v1/jobs" and wanted is not Role.EVIDENCE:  # which look at the job themselves
                assert ask(service, method, path, of_mine[wanted]).status_code == 403
    assert seen == set(ENOUGH)


def test_a_token_of_a_job_sees_and_submits_only_that(service: Service) -> None:
    seen = ask(service, "GET", "/v1/jobs", made("--role", "read", "--job", "mine")).json()
    assert [job["job"] for job in seen] == ["mine"]
    token = made("--role", "submit", "--job", "planned")
    refused = ask(service, "POST", "/v1/jobs", token, JOB)
    assert refused.status_code == 403 and refused.json()["detail"] == http_requests.NAME_NOT_ALLOWED(job="other")
    assert ask(service, "POST", "/v1/jobs", token, {**JOB, "name": "planned"}).status_code == 201


def test_forged_and_expired_tokens(service: Service) -> None:
    claims = {"role": "submit"}
    key = jwt.encode(claims, "the secret of another service, a long one", algorithm="HS256")
    unsigned = jwt.encode(claims, "", algorithm="none")
    by_the_secret = jwt.encode(claims, TOKEN, algorithm="HS256")  # which is not the key itself
    head, payload, mark = made("--role", "read").split(".")
    raised = jwt.encode(claims, "another long secret, of thirty-two", algorithm="HS256").split(".")[1]
    for token in (key, unsigned, by_the_secret, f"{head}.{raised}.{mark}", f"{head}.{payload}.", f"{head}.{payload}"):
        assert ask(service, "GET", "/v1/jobs", token).status_code == 401
    over = Access([TOKEN]).token(Role.READ, days=-1.0)
    assert ask(service, "GET", "/v1/jobs", over).json()["code"] == http_requests.TOKEN_EXPIRED.code
    good = made("--role", "read", "--days", "1")
    assert ask(service, "GET", "/v1/jobs", good).status_code == 200
    assert jwt.decode(good, options={"verify_signature": False})["exp"] > time.time() + 86000


def test_agents_and_workers_have_roles_of_their_own(service: Service) -> None:
    def enters(path: str, token: str) -> bool:
        try:
            with connect(service.url.replace("http", "ws") + path, additional_headers=bearer(token), proxy=None):
                return True
        except InvalidStatus as error:
            assert error.response.status_code == 403
            return False

    for role in Role:
        assert enters("/v1/agent", made("--role", role)) == (role is Role.AGENT)
        assert enters("/v1/jobs/mine/agent", made("--role", role)) == (role is Role.WORKER)
        assert enters("/v1/jobs/theirs/agent", made("--role", role, "--job", "mine")) is False
    assert enters("/v1/jobs/mine/agent", made("--role", "worker", "--job", "mine"))


def test_too_long_and_too_many(service: Service) -> None:
    long = {**JOB, "name": "long", "environment": {str(n): "x" * (1 << 17) for n in range(40)}}
    answer = ask(service, "POST", "/v1/jobs", TOKEN, long)
    assert (answer.status_code, answer.json()["detail"]) == (413, http_requests.TOO_LONG(most=limits.BODY))

    def pieces() -> Iterator[bytes]:
        for _ in range(limits.BODY // 65536 + 1):
            yield b" " * 65536

    answer = httpx.post(f"{service.url}/v1/jobs", content=pieces(), headers={"Authorization": f"Bearer {TOKEN}"}, timeout=LONG)
    assert (answer.status_code, answer.json()["code"]) == (413, http_requests.TOO_LONG.code)
    with httpx.Client(base_url=service.url) as client:
        for _ in range(100_000):
            answer = client.get("/v1/health")
            if answer.status_code != 200:
                break
    assert (answer.status_code, answer.json()["code"]) == (429, http_requests.TOO_MANY_REQUESTS.code)
    assert int(answer.headers["retry-after"]) >= 1
    wait_until(lambda: ask(service, "GET", "/v1/jobs", TOKEN).status_code == 200, "it is let in again", LONG)


def test_a_secret_is_changed_while_everything_runs(tmp_path: Path) -> None:
    """Two lines: both are believed, and tokens made from either."""
    old, new = "the old secret of a service", "the new secret of a service"
    file = tmp_path / "secrets"
    file.write_text(f"{new}\n\n{old}\n")
    with marked() as mark:
        service = Service(tmp_path, mark, more=["--token-file", str(file)], UNDERSTUDY_TOKEN=new)
        for token in (old, new, Access([old]).token(Role.READ), Access([new]).token(Role.READ)):
            assert ask(service, "GET", "/v1/jobs", token).status_code == 200
        service.kill_orchestrator()
        file.write_text(f"{new}\n")
        service.start_orchestrator()
        for token, status in ((old, 401), (Access([old]).token(Role.READ), 401), (new, 200), (Access([new]).token(Role.READ), 200)):
            assert ask(service, "GET", "/v1/jobs", token).status_code == status


@pytest.mark.parametrize(
    ("secret", "message"), [("", orchestrators.TOKEN_NEEDED(host="0.0.0.0")), ("short", orchestrators.SECRET_TOO_SHORT(least=16))]
)
def test_others_are_not_let_in_unasked(tmp_path: Path, secret: str, message: str) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.kill_orchestrator()
        done = service.command("orchestrator", "--listen", "0.0.0.0:0", "--state-dir", str(tmp_path / "o"), UNDERSTUDY_TOKEN=secret)
        assert done.returncode == 2 and message in done.stderr


@pytest.fixture
def certificates(tmp_path: Path) -> Callable[..., str]:
    """Makes one as `understudy certs` does and gives its folder."""

    def make(kind: str, name: str = "", *more: str, at: str = "tls") -> str:
        done = CliRunner().invoke(app, ["certs", kind, str(tmp_path / at), *([name] if name else []), *more])
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    make("init")
    return make


def test_mutual_tls(tmp_path: Path, certificates: Callable[..., str], undisturbed_spread: Callable[[int], Outcome]) -> None:
    """No token anywhere: the certificates define the authority of each client. A job runs, loses a rank, and ends as without the loss."""
    head = certificates("server", "head", "--host", "head.example")
    user, reader = (certificates("client", role, "--role", role) for role in ("submit", "read"))
    nodes = {name: certificates("client", name, "--role", "agent") for name in "ab"}
    certificates("init", at="foreign")
    foreign = certificates("client", "submit", "--role", "submit", at="foreign")
    with marked() as mark:
        service = Service(tmp_path, mark, more=["--tls", head], UNDERSTUDY_TOKEN="", UNDERSTUDY_TLS=user)
        assert service.url.startswith("https://127.0.0.1:")
        for place, words in (
            (str(Path(user) / "ca.crt"), asking.NO_ANSWER.code),  # no certificate of its own
            (foreign, "CERTIFICATE_VERIFY_FAILED"),
            (nodes["a"], http_requests.ROLE_NEEDED(role="read")),
        ):
            done = service.command("jobs", "--tls", place)
            assert done.returncode == 1 and words in done.stderr, (place, done.stderr)
        denied = service.command("agent", "--slots", "1", "--tls", reader)
        assert denied.returncode == 1 and has(denied.stderr, agents.REFUSED) and "403" in denied.stderr
        another = service.command("agent", "--slots", "1", "--name", "a", "--tls", nodes["b"])
        assert another.returncode == 1 and http_requests.ANOTHER_NODE(own="b", node="a") in another.stderr
        for name, place in nodes.items():
            service.start_agent(name, 2, None, "--tls", place)
        service.wait_for_nodes(2)
        refused = service.command("cancel", "job", "--tls", reader).stderr
        assert has(refused, http_requests.ROLE_NEEDED_FOR_JOB, role="operate", job="job")
        job = service.run("job", ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2"], "spread.py", HELD="1:6")
        job.wait_for("held 6")
        job.kill_rank(1)
        ended = job.ends()
        assert ended.code == 0, ended.output
        assert ended.record == undisturbed_spread(2).record
        assert len(service.ask("report", "--job", "job")["incidents"]) == 1
        key = (Path(head) / "tls.key").read_text()
        for path in (p for p in tmp_path.rglob("*") if p.is_file() and p.suffix not in (".key",)):
            assert key.encode() not in path.read_bytes()


def test_a_clients_certificate_is_no_servers(tmp_path: Path, certificates: Callable[..., str]) -> None:
    """A client with an agent's certificate cannot pass for the orchestrator, and neither can another host's server certificate."""
    thief = certificates("client", "thief", "--role", "agent")
    head = certificates("server", "head", "--host", "head.example")
    for place, words in ((thief, "unsuitable certificate purpose"), (head, "not valid for 'elsewhere.example'")):
        context = ssl.create_default_context(cafile=str(Path(head) / "ca.crt"))
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(Path(place) / "tls.crt", Path(place) / "tls.key")
        with pytest.raises(ssl.SSLCertVerificationError, match=words):
            shake(context, server, "elsewhere.example")


def shake(ours: ssl.SSLContext, theirs: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ours.wrap_bio(down, up, server_hostname=name)
    server = theirs.wrap_bio(up, down, server_side=True)
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    raise AssertionError("it was believed")


def test_certificates_are_what_they_should_be(tmp_path: Path, certificates: Callable[..., str]) -> None:
    place = Path(certificates("client", "bob", "--role", "read", "--role", "agent", "--role", "evidence", "--job", "j1", "--days", "30"))
    found = x509.load_pem_x509_certificate((place / "tls.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = ["understudy:read:j1", "understudy:agent:bob", "understudy:evidence:j1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == uris
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=29) < left <= datetime.timedelta(days=30)
    keys = sorted(tmp_path.rglob("*.key"))
    assert len(keys) == 2 and all(path.stat().st_mode & 0o777 == 0o600 for path in keys)
    shown_uris = ("understudy:read:j1", "understudy:root", "understudy:evidence", "understudy:agent:n1", "understudy:agent")
    shown = (*(("URI", uri) for uri in shown_uris), ("DNS", "understudy:submit"))
    grants = Access(["x"]).grants(None, {"subjectAltName": shown})
    assert [(grant.role, grant.job, grant.node) for grant in grants] == [
        (Role.READ, "j1", ""),
        (Role.EVIDENCE, "", ""),
        (Role.AGENT, "", "n1"),
        (Role.AGENT, "", ""),
    ]
    assert [grant.serves("n1") for grant in grants if grant.role is Role.AGENT] == [True, False]
    assert not grants[2].serves("n2")


def test_mistakes_are_reported(tmp_path: Path) -> None:
    def says(*words: str, **variables: str) -> str:
        done = CliRunner().invoke(app, list(words), env=variables)
        assert done.exit_code != 0
        return done.output

    place, empty = tmp_path / "tls", tmp_path / "empty"
    empty.write_text("\n")
    assert has(says("certs", "client", str(place), "x", "--role", "read"), tools.AUTHORITY_MISSING, path=place / "ca" / "ca.crt")
    assert CliRunner().invoke(app, ["certs", "init", str(place)]).exit_code == 0
    assert has(says("certs", "init", str(place)), tools.CERTIFICATE_EXISTS)
    assert has(says("certs", "client", str(place), "../x", "--role", "read"), orchestrators.CERTIFICATE_NAME_REFUSED, name="../x")
    assert has(says("token", "--role", "read", UNDERSTUDY_TOKEN=""), tools.SECRET_NEEDED_FOR_TOKEN)
    assert has(says("token", "--role", "agent", UNDERSTUDY_TOKEN=TOKEN), tools.AGENT_NEEDS_NODE)
    assert has(says("token", "--role", "read", "--node", "a", UNDERSTUDY_TOKEN=TOKEN), tools.NODE_OF_AGENT, role="read")
    assert has(says("token", "--role", "read", "--token-file", str(empty)), orchestrators.SECRET_FILE_EMPTY, path=empty)
    missing = {"folder": place / "ca", "file": "tls.crt"}
    assert has(refused_orchestrator(tmp_path, "--tls", f"{place}/ca"), orchestrators.CERTIFICATE_FOLDER_INCOMPLETE, **missing)


def refused_orchestrator(tmp_path: Path, *words: str) -> str:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.kill_orchestrator()
        done = service.command("orchestrator", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "o"), *words)
        assert done.returncode == 2
        return done.stderr
