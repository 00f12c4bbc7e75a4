"""Kubernetes' API server: why it did not answer, and requests that it refused."""

from __future__ import annotations

from understudy.messages.base import Message

_AGAIN = "Check the API server if it persists. The request is retried."

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
    "{request}: the API server stopped responding ({kind})",
    cause="The connection to the API server failed in the middle of an answer.",
    remedy=_AGAIN,
)
NOT_JSON = Message(
    "US6603",
    "{request}: the answer is not JSON",
    cause="The server is not an API server, or a proxy has changed the answer.",
    remedy="Check the server's address in the kubeconfig file, and proxies.",
)
SILENT = Message(
    "US6604",
    "{request}: the API server does not answer ({kind})",
    cause="No connection to the API server could be made, or no answer arrived in time.",
    remedy=_AGAIN,
)
NOT_ASKED = Message(
    "US6605",
    "{request}: {reason}",
    cause="The client of Kubernetes could not send the request.",
    remedy="Check the credentials, which are the usual cause. The reason comes from the client itself.",
)
REFUSED = Message(
    "US6606",
    "{request}: {answer} ({status})",
    cause="The API server refused the request. Its answer is quoted.",
    remedy="With status 403 the account lacks a permission: check the roles in deploy/kubernetes. With status 422 the answer names what "
    "is wrong with the object.",
)
NO_ANSWER_YET = Message(
    "US6607",
    "GET {path}: no answer yet",
    cause="The objects of this kind were requested, and the API server has not listed them yet.",
    remedy=_AGAIN,
)
