"""Kubernetes' API server: why it could not be asked, and what it refused."""

from __future__ import annotations

from understudy.messages.base import Message

_AGAIN = "What was asked for is asked for again. Look at the API server if it goes on."

NO_CLIENT = Message(
    "US6600",
    "Kubernetes needs its client: pip install 'understudy[kubernetes]' ({reason})",
    cause="The Python package `kubernetes` is not installed here.",
    remedy="Install understudy[kubernetes] into the image or the environment.",
)
NO_CLUSTER = Message(
    "US6601",
    "no Kubernetes cluster is configured here: {reason}",
    cause="There is neither a service account of a pod nor a usable kubeconfig file.",
    remedy="Set KUBECONFIG, or run this in a pod.",
)
STOPPED = Message(
    "US6602",
    "{request}: the API server does not go on ({kind})",
    cause="The connection to the API server broke in the middle of an answer.",
    remedy=_AGAIN,
)
NOT_JSON = Message(
    "US6603",
    "{request}: the answer is no JSON",
    cause="What answers is no API server, or something between has changed the answer.",
    remedy="Check the server's address in the kubeconfig file, and proxies.",
)
SILENT = Message(
    "US6604",
    "{request}: the API server does not answer ({kind})",
    cause="No connection to the API server came about, or no answer came in time.",
    remedy=_AGAIN,
)
NOT_ASKED = Message(
    "US6605",
    "{request}: {reason}",
    cause="The client of Kubernetes could not send the request.",
    remedy="The reason is the client's own. As a rule the credentials cannot be had.",
)
REFUSED = Message(
    "US6606",
    "{request}: {answer} ({status})",
    cause="The API server refused the request. What it said is quoted.",
    remedy="A status 403 says that the account lacks a right: see the roles in deploy/kubernetes. A status 422 says what is wrong with the "
    "object.",
)
NO_ANSWER_YET = Message(
    "US6607",
    "GET {path}: no answer yet",
    cause="The objects of this kind were asked for, and the API server has not listed them yet.",
    remedy=_AGAIN,
)
