"""The graphs of the paper, and some more: where their files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...engine.datasets import File, locate

# The small graphs are part of PyKEEN (Ali et al., 2021; MIT licence).
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/v1.11.1/src/pykeen/datasets"


def _files(folder: str, checksums: Mapping[str, str], copy: str | None = None) -> dict[str, File]:
    return {
        name: File(f"{folder}/{name}", sha256, () if copy is None else (f"{copy}/{name}",))
        for name, sha256 in checksums.items()
    }


GRAPHS: dict[str, dict[str, File]] = {
    "wn11": _files(
        "wn11",
        {
            "dev.txt.gz": "7bbc11ffe72e54141cf14cacc39d9754ae4e0a03e382ca0dc86db4c8c105a00e",
            "entities.txt.gz": "0d14553d9fe40a0d64a20e6f7cca1de94e27b60cc05fc26cd9a37ac79662f04a",
            "paths/dev.npz": "fdca9ba847cc1b6eb2425541d3ad00e32b2a3d891fc17b55b0ed807e571f4c5f",
            "paths/test.npz": "0619db4ba4d30431ae3fd5b5693322083fe69b723cca41f2e74fea64717817ea",
            "paths/train.npz": "8041a8e74b0f04f87f1e58f7282656e6a35baff991fb436480cc4c4d4fdd8ad6",
            "relations.txt": "1abbcb63f698476c510cb73996beee21699852278c243d445e6c9893a79f973c",
            "test.txt.gz": "6ac2e9a7606feff7ae73274856464687e435e63e87cc91cf8895aef3e05e5990",
            "train.txt.gz": "b840d4c0b8f6af92a75a78762dc4bb121b4cf6de6b6a64acd38c7abdac12a3af",
        },
    ),
    "fb13": _files(
        "fb13",
        {
            "dev.txt.gz": "f91e99fd1f5dc3fb3cd318a2048b4de0c79eca662ad2979b95f538aa54679b90",
            "entities.txt.gz": "49ba69351d96e3bd38e8fb9d81914912d5467c9dad2a0991f48fcbd8d12ff66f",
            "paths/dev.npz": "ec706c31d0c9748da52d895223b24c1346de6d211a93c9f02a16e9531a8abe48",
            "paths/test.npz": "c5a8b0ac38b4fd77485b136eeb22d64756e95af43e9d627e923fb08dc141cac5",
            "paths/train.npz": "7f93a05e3b22687466cecf2e844b1b548021f271a6269e9e9b62954346a4ecf5",
            "relations.txt": "dd7e8f0e8f4926dd31acc536d5fe9f8743d24d1e4dcf1011f1a5cba77e58b9e1",
            "test.txt.gz": "f20e01ac1d8bf59c14ae66570ce8e748aa01e9d0910bdbc841f5850252af3c34",
            "train.txt.gz": "fcc42d3485685fbed23ae594426ef223708a11384393363af2cd0f38eb25b08a",
        },
    ),
    "fb15k-237": _files(
        "fb15k-237",
        {
            "test.txt.gz": "047a9ad8bc9c371ec319f1284a81dfe972a1dd2523ccb614e9b7b29e663f25d5",
            "train.txt.gz": "25c2babac9aae6414004a5e4ce83534a48d2b60ec791e0b4f48bd926ebb2f20d",
            "valid.txt.gz": "571cc165d7800ad21e71a641baf233f9c036e8fbe585b9d15f8c32b83f14022c",
        },
    ),
    "wn18rr": _files(
        "wn18rr",
        {
            "test.txt.gz": "44e826dc083adad5baea9dc96bb29f2bb7a55471078f2f26802a7f87de84a722",
            "train.txt.gz": "be00cacfeffa49a33672df41e965dfccc60917da36cb05e777eec45130515848",
            "valid.txt.gz": "d5c9c681ce9ac11cf41c31c5f94d9347c21bd2489ead507b15a00e6ab3069482",
        },
    ),
    "nations": _files(
        "small-kg/nations",
        {
            "test.txt": "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
            "train.txt": "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
            "valid.txt": "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        },
        f"{_PYKEEN}/nations",
    ),
    "umls": _files(
        "small-kg/umls",
        {
            "test.txt": "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
            "train.txt": "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
            "valid.txt": "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        },
        f"{_PYKEEN}/umls",
    ),
    "kinships": _files(
        "small-kg/kinships",
        {
            "test.txt": "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
            "train.txt": "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
            "valid.txt": "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        },
        f"{_PYKEEN}/kinships",
    ),
}
"""The files of each graph, as they stand below a data folder."""


def located(name: str, data_dir: Path | None = None) -> dict[str, Path]:
    """Where the files of a graph are, by their names below its folder.

    They are found as :func:`dcgraph.experiments.engine.datasets.locate` describes.
    """
    return {short: locate(file, data_dir) for short, file in GRAPHS[name].items()}
