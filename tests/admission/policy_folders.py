"""Policy files and mounted ConfigMaps as they change on a disk."""

import shutil
from pathlib import Path

from giveway_policy.defaults import default_spec
from giveway_policy.documents import PolicyName, document_json, make_document

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: SLOPolicy
metadata: {name: chat}
spec:
  classes:
  - {name: realtime, kind: Interactive, weight: 70}
  - {name: batch, kind: Batch, weight: 5}
"""


def policy(weight: int = 70, *, name: str = "chat") -> str:
    return POLICY.replace("weight: 70", f"weight: {weight}").replace("name: chat", f"name: {name}")


def tenant(name: str, *, weight: int = 1, maximum: str = "realtime", keys: str = "") -> str:
    recognized = f", recognizedBy: [{{apiKey: {{keyFile: {keys}}}}}]" if keys else ""
    spec = f"{{tenant: {name}, maximumClass: {maximum}, weight: {weight}{recognized}}}"
    head = "apiVersion: giveway.dev/v1alpha1\nkind: TenantPriority\n"
    return f"{head}metadata: {{name: {name}}}\nspec: {spec}\n"


def document_text(
    *, epoch: int = 1, generation: int = 1, name: str = "chat", share: float = 1.0
) -> str:
    document = make_document(
        PolicyName(namespace="llm", name=name),
        default_spec(),
        epoch=epoch,
        generation=generation,
        share=share,
    )
    return document_json(document)


class MountedConfigMap:
    """A folder as kubelet mounts it: files link to ..data, which links to a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()

    def swap(self, files: dict[str, str]) -> None:
        """Put new content in place as kubelet does: all at once, the former folder gone at once."""
        self._versions += 1
        version = self.folder / f"..2025_01_01.{self._versions}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text)
        link = self.folder / "..data"
        former = link.readlink() if link.is_symlink() else None
        beside = self.folder / "..data_tmp"
        beside.symlink_to(version.name)
        beside.replace(link)
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        for link_to_file in self.folder.iterdir():
            if not link_to_file.name.startswith("..") and link_to_file.name not in files:
                link_to_file.unlink()
        if former is not None:
            shutil.rmtree(self.folder / former)
