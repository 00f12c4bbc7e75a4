"""Resolve a pod's references to other objects: environment variables, and volumes with files in them.

Known: `value`, `fieldRef`, `secretKeyRef`, `configMapKeyRef`, `envFrom`; the volumes emptyDir, hostPath, secret, configMap, downwardAPI and
projected (of these and service account tokens). Files from labels and annotations follow them; files from secrets and configMaps stay as
they were when the container was started, and a token is not renewed.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Api, Object, Refused


class NotYet(Exception):
    """Something that the pod needs is not there; it is tried again."""


def field(pod: Object, path: str, address: str, node_address: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if keyed := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = sorted((metadata.get(path.split(".")[1]) or {}).items())
        return "\n".join(f'{key}="{_escaped(value)}"' for key, value in pairs)
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": node_address,
    }
    return str(values[path])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Materials:
    """Of one pod, as it is now."""

    def __init__(self, api: Api, pod: Object, address: str, node_address: str) -> None:
        self._api, self._pod = api, pod
        self._address, self._node_address = address, node_address

    def field(self, path: str) -> str:
        return field(self._pod, path, self._address, self._node_address)

    def _data(self, kind: str, source: Object) -> dict[str, bytes]:
        """Of a secret or configMap; `kind` is as in its path."""
        name = source.get("name") or source["secretName"]
        try:
            found = self._api.get(f"/api/v1/namespaces/{self._pod['metadata']['namespace']}/{kind}/{name}")
        except Refused as refused:
            if refused.status == 404 and source.get("optional"):
                return {}
            raise NotYet(f"{kind} {name}: {refused}") from None
        data = found.get("data") or {}
        if kind == "secrets":
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}

    # Environment

    def environment(self, container: Object, base: dict[str, str]) -> dict[str, str]:
        found = dict(base)
        for source in container.get("envFrom") or []:
            for key, kind in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if key in source:
                    found |= {source.get("prefix", "") + name: value.decode() for name, value in self._data(kind, source[key]).items()}
        for variable in container.get("env") or []:
            value = self._value(variable, found)
            if value is not None:
                found[variable["name"]] = value
        return found

    def _value(self, variable: Object, known: dict[str, str]) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable.get("value", ""), known)
        if "fieldRef" in source:
            return self.field(source["fieldRef"]["fieldPath"])
        for key, kind in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if key in source:
                data = self._data(kind, source[key])
                if source[key]["key"] in data:
                    return data[source[key]["key"]].decode()
                if source[key].get("optional"):
                    return None
                raise NotYet(f"{kind} {source[key]['name']} has no {source[key]['key']}")
        raise NotYet(f"this stand-in knows nothing of {', '.join(source)}")

    # Volumes

    def volumes(self, disk: Path, memory: Path) -> dict[str, Path]:
        """Where each of the pod's volumes is, with its files in it."""
        return {volume["name"]: self._volume(volume, disk, memory) for volume in self._pod["spec"].get("volumes") or []}

    def _volume(self, volume: Object, disk: Path, memory: Path) -> Path:
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                raise NotYet(f"there is no {path}")
            return path
        in_memory = "emptyDir" not in volume or (volume["emptyDir"] or {}).get("medium") == "Memory"
        place = (memory if in_memory else disk) / str(volume["name"])
        place.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            place.chmod(0o777)
            return place
        for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
            for file, content in self._files(source).items():
                self._write(place / file, content)
        return place

    def follow_fields(self, memory: Path) -> None:
        """Brings the files that show labels and annotations up to date."""
        for volume in self._pod["spec"].get("volumes") or []:
            for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
                if "downwardAPI" in source and (memory / volume["name"]).exists():
                    for path, content in self._files(source).items():
                        self._write(memory / volume["name"] / path, content)

    def _files(self, source: Object) -> dict[str, bytes]:
        if "downwardAPI" in source:
            return {item["path"]: self.field(item["fieldRef"]["fieldPath"]).encode() for item in source["downwardAPI"].get("items") or []}
        if "serviceAccountToken" in source:
            return {source["serviceAccountToken"]["path"]: self._token(source["serviceAccountToken"])}
        for key, kind in (("secret", "secrets"), ("configMap", "configmaps")):
            if key in source:
                data = self._data(kind, source[key])
                items = source[key].get("items")
                if items is None:
                    return data
                if missing := [item["key"] for item in items if item["key"] not in data and not source[key].get("optional")]:
                    raise NotYet(f"{kind} has no {', '.join(missing)}")
                return {item["path"]: data[item["key"]] for item in items if item["key"] in data}
        raise NotYet(f"this stand-in knows nothing of volumes of the kind {', '.join(key for key in source if key != 'name')}")

    def _token(self, source: Object) -> bytes:
        """Bound to the pod: the server does not accept it any more once the pod is gone."""
        metadata = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        spec: dict[str, Any] = {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source.get("expirationSeconds", 3600),
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        }
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self._api.create(f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token", request)
        return str(made["status"]["token"]).encode()

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        """Whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() == content:
            return
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content)
        new.replace(path)


def expanded(text: str, known: dict[str, str]) -> str:
    """`$(NAME)` becomes that variable's value if it is known; `$$(NAME)` stays, with one dollar."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]+)\)", value, text)
