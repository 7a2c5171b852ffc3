"""AnnData writes into a mount as it is, and reads a store as `.h5ad`."""

import subprocess
import sys

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from anndata.tests.helpers import assert_equal

from views import cat

pytestmark = [pytest.mark.filterwarnings("ignore")]
CELLS, GENES = 60, 20
PLACES = [("v3",), ("v3", "--shards", "1M"), ("v2",), ("v3", "--as", "zarr2")]


def annotated():
    """Every type of element that AnnData writes."""
    rng = np.random.default_rng(0)
    half = CELLS // 2
    obs = pd.DataFrame(
        {
            "category": pd.Categorical(rng.choice(list("abc"), CELLS)),
            "ordered": pd.Categorical(rng.choice(list("xyz"), CELLS), ordered=True, categories=list("zyx")),
            "missing": pd.Categorical(["a", None] * half),
            "float": rng.random(CELLS),
            "int": rng.integers(0, 9, CELLS),
            "bool": rng.random(CELLS) > 0.5,
            "text": [f"Zürich {i}" for i in range(CELLS)],
            "maybe int": pd.array([1, None] * half, dtype="Int64"),
            "maybe bool": pd.array([True, None] * half, dtype="boolean"),
        },
        index=[f"cell{i}" for i in range(CELLS)],
    )
    data = ad.AnnData(
        X=sp.random(CELLS, GENES, 0.2, format="csr", dtype="f4", random_state=0),
        obs=obs,
        var=pd.DataFrame(index=[f"gene{i}" for i in range(GENES)]),
    )
    data.layers["dense"] = rng.random((CELLS, GENES))
    data.layers["csc"] = sp.random(CELLS, GENES, 0.2, format="csc", random_state=1)
    data.layers["empty"] = sp.csr_matrix((CELLS, GENES))
    data.obsm["X_pca"] = rng.random((CELLS, 5))
    data.obsm["frame"] = pd.DataFrame({"q": rng.random(CELLS)}, index=obs.index)
    data.obsp["distances"] = sp.random(CELLS, CELLS, 0.1, format="csr", random_state=2)
    nested = {"y": np.arange(3), "text": "words", "int": 3, "float": 2.5, "bool": True, "none": {}}
    data.uns["nested"] = {"x": nested, "list": np.array(["a", "bcd", ""])}
    data.uns["empty"] = np.array([])
    data.uns["empty frame"] = pd.DataFrame(index=["a", "b"])
    data.uns["null"] = None
    data.uns["records"] = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    data.raw = data.copy()
    return data


@pytest.fixture(params=[2, 3])
def zarr_format(request):
    before = ad.settings.zarr_write_format
    ad.settings.zarr_write_format = request.param
    yield request.param
    ad.settings.zarr_write_format = before


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(part.strip("-") for part in place))
def test_anndata_writes_into_a_mount_and_reads_an_h5ad(mount, tmp_path, place, zarr_format):
    if zarr_format == 3 and "zarr2" in place:
        pytest.skip("this mount takes no Zarr 3")
    data = annotated()
    with mount(tmp_path / "store", "--create", "--format", *place, copy=False) as m:
        data.write_zarr(m / "new")
        assert_equal(ad.read_zarr(m / "new"), data)
        other = f"import anndata, sys; assert anndata.read_zarr(sys.argv[1]).shape == {data.shape}"
        subprocess.run([sys.executable, "-W", "ignore", "-c", other, m / "new"], check=True)
        assert_equal(ad.read_h5ad(m / "new.h5ad"), data)
    with mount(m.store, copy=False) as m:
        assert_equal(ad.read_zarr(m / "new"), data)
        assert_equal(ad.read_h5ad(m / "new.h5ad"), data)
        backed = ad.read_h5ad(m / "new.h5ad", backed="r")
        assert_equal(backed[10:20].to_memory(), data[10:20].copy())
        backed.file.close()
        with h5py.File(m / "new.h5ad") as file:
            assert h5py.check_string_dtype(file["obs/text"].dtype) == ("utf-8", None)
            assert file["obs/bool"].dtype == bool
            assert file["obs/ordered"].attrs["ordered"].dtype == bool
    assert_equal(ad.read_zarr(m.store / "new"), data)
    assert sorted(zarr.open_group(m.store / "new", mode="r")) == sorted(zarr.open_group(m.store, mode="r")["new"])


RECORDS = {
    "names": np.array([("g0", "g12"), ("Zürich", ""), ("🐈", "g1")], [("B cell", "O"), ("T cell", "O")]),
    "mixed": np.array([("é", 1, 2.5, True), ("", 3, np.inf, False)], [("n", "O"), ("i", "i4"), ("f", "f8"), ("b", "?")]),
    "scores": np.array([(1.5, 2.5)], [("a", "f4"), ("b", "f4")]),
}


@pytest.mark.parametrize("raw", [False, True])
def test_an_h5ad_is_the_one_that_anndata_writes(tmp_path, zarr_format, raw):
    data = ad.AnnData(np.arange(12, dtype="f4").reshape(3, 4))
    data.uns["rank_genes_groups"] = {"params": {"method": "t-test"}, **RECORDS}
    data.uns["none"] = None
    if raw:
        data.raw = data.copy()
    data.write_zarr(tmp_path / "a.zarr")
    data.write_h5ad(tmp_path / "own.h5ad")
    cat(tmp_path / "a.zarr", "h5", tmp_path / "view.h5ad")
    own, view = ad.read_h5ad(tmp_path / "own.h5ad"), ad.read_h5ad(tmp_path / "view.h5ad")
    assert_equal(view, own)
    for name in RECORDS:
        one, other = (of.uns["rank_genes_groups"][name] for of in (own, view))
        assert one.dtype == other.dtype and one.tolist() == other.tolist()
    with h5py.File(tmp_path / "own.h5ad") as one, h5py.File(tmp_path / "view.h5ad") as other:
        assert set(one) == set(other) and ("raw" in other) == raw
        assert one["uns/none"].shape is other["uns/none"].shape is None
        for name in RECORDS:
            assert one["uns/rank_genes_groups"][name].dtype == other["uns/rank_genes_groups"][name].dtype
    backed = ad.read_h5ad(tmp_path / "view.h5ad", backed="r")
    assert_equal(backed[1:].to_memory(), data[1:].copy())
    backed.file.close()
