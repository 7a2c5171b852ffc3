"""Views of VCF Zarr as files of PLINK 1, read by bed-reader. (`vcztools view-plink` and plink 1.9 were tried by hand.)"""

import errno
import os
import time

import bed_reader
import numpy as np
import pytest
import zarr

from views import cat, refused

DIMENSIONS = {"call_genotype": "variants samples ploidy", "variant_allele": "variants alleles", "sample_id": "samples", "contig_id": "contigs"}
BASES = np.array(["A", "C", "G", "T"])


def put(group, name, values, chunks=None, **options):
    values = np.array(values, "U" if isinstance(values, list) else None)
    values = values.astype(np.dtypes.StringDType()) if values.dtype.kind == "U" else values
    names = DIMENSIONS.get(name, "variants").split()
    options |= {"attributes": {"_ARRAY_DIMENSIONS": names}} if group.metadata.zarr_format == 2 else {"dimension_names": names}
    dtype = "str" if values.dtype.kind == "T" else values.dtype
    array = group.create_array(name, shape=values.shape, dtype=dtype, chunks=chunks or values.shape, **options)
    array[...] = values


def vcf_zarr(path, zarr_format=3, dtype="i1", alleles=2, count=37, samples=11):
    """Genotypes with missing, half missing, haploid and monomorphic ones."""
    dice = np.random.default_rng(7)
    group = zarr.create_group(path, zarr_format=zarr_format, attributes={"vcf_zarr_version": "0.4"})
    calls = dice.integers(0, 2, (count, samples, 2)).astype(dtype)
    calls[dice.random((count, samples)) < 0.15] = -1
    calls[dice.random((count, samples)) < 0.1, 1] = -2
    calls[dice.random((count, samples)) < 0.05, 0] = -1
    is_same = np.arange(count) % 7 == 3
    calls[is_same] = np.minimum(calls[is_same], 0)
    put(group, "call_genotype", calls, (10, 4, 2), fill_value=-1)
    texts = np.full((count, alleles), "", "U5")
    texts[:, 0] = dice.choice(BASES, count)
    texts[:, 1] = np.where(is_same, "", dice.choice(["A", "CTT", "<DEL>", "*"], count))
    put(group, "variant_allele", texts, (10, alleles))
    put(group, "variant_id", [f"rs{n}" if n % 3 else "." for n in range(count)], (9,))
    put(group, "variant_contig", np.sort(dice.integers(0, 4, count)).astype("i2"), (10,))
    put(group, "variant_position", np.arange(count, dtype="i4") * 1000 + 1, (10,))
    put(group, "sample_id", [f"s{n}" for n in range(samples)])
    put(group, "contig_id", ["chr1", "chrX", "chrUn_1", "chrM"])
    return group


@pytest.mark.parametrize(("zarr_format", "dtype", "alleles"), [(2, "i1", 2), (3, "i4", 4)])
def test_programs_of_plink_read_the_genotypes_in_a_mount(mount, tmp_path, zarr_format, dtype, alleles):
    group = vcf_zarr(tmp_path / "s.vcz", zarr_format, dtype, alleles)
    calls = group["call_genotype"][...].astype(int)
    one, two = calls[..., 0], calls[..., 1]
    expected = np.where((one < 0) | (two == -1), -127, np.where(two == -2, 2 * one, one + two))
    with mount(tmp_path / "s.vcz", "--views", "bed,bim,fam", copy=False) as m:
        assert {f"__root__.{view}" for view in ("bed", "bim", "fam")} <= set(os.listdir(m.path))
        with bed_reader.open_bed(m / "__root__.bed") as bed:
            assert (bed.read(dtype="int8").T == expected).all()
            assert (bed.read((3, 20), dtype="int8") == expected[20, 3]).all()
            assert bed.iid.tolist() == bed.fid.tolist() == group["sample_id"][...].tolist()
            assert bed.sid.tolist() == group["variant_id"][...].tolist()
            assert bed.bp_position.tolist() == group["variant_position"][...].tolist()
            names = np.array(["1", "X", "chrUn_1", "MT"])
            assert bed.chromosome.tolist() == names[group["variant_contig"][...]].tolist()
            texts = group["variant_allele"][...].tolist()
            assert [bed.allele_1.tolist(), bed.allele_2.tolist()] == [[row[1] or "." for row in texts], [row[0] for row in texts]]
        for view, sentence in {"bed": "the genotypes cannot change", "bim": "the lines of a table cannot change"}.items():
            with open(m / f"__root__.{view}", "r+b", buffering=0) as file:
                file.seek(9)
                m.refused(errno.EPERM, sentence, lambda: file.write(b"\0"))
        group["call_genotype"][0, 0] = 1 - max(0, calls[0, 0, 0])
        time.sleep(1.5)
        with bed_reader.open_bed(m / "__root__.bed") as bed:
            assert bed.read((0, 0), dtype="int8")[0, 0] == 2 * (1 - max(0, calls[0, 0, 0])), "a change elsewhere is seen"


def test_genotypes_for_which_there_is_no_memory_are_read_in_part(mount, tmp_path):
    count, samples = 400_000, 200_000
    group = zarr.create_group(tmp_path / "s.vcz")
    group.create_array("call_genotype", shape=(count, samples, 2), dtype="i1", chunks=(1000, 1000, 2), fill_value=-1)
    for name in ("variant_contig", "variant_position"):
        group.create_array(name, shape=(count,), chunks=(count,), dtype="i4")
    group.create_array("variant_allele", shape=(count, 2), chunks=(count, 2), dtype="str")
    put(group, "sample_id", [f"s{n}" for n in range(samples)])
    put(group, "contig_id", ["1"])
    group["call_genotype"][399_999, 199_999] = [0, 1]
    with mount(tmp_path / "s.vcz", "--cache-size", "64M", copy=False) as m:
        assert os.stat(m / "__root__.bed").st_size == 3 + count * samples // 4
        with open(m / "__root__.bed", "rb") as file:
            file.seek(-2, os.SEEK_END)
            assert file.read() == bytes([0b01_01_01_01, 0b10_01_01_01])


def test_a_group_that_plink_cannot_hold_has_no_files(tmp_path):
    def of(number, change, sentence, views=("bed", "bim", "fam")):
        group = vcf_zarr(tmp_path / f"{number}.vcz", alleles=3)
        change(group)
        for view in views:
            assert sentence in refused(tmp_path / f"{number}.vcz", view)

    def replace(name, values):
        def change(group):
            del group[name]
            put(group, name, values)

        return change

    def set_to(name, value):
        return lambda group: group[name].__setitem__(5, value)

    of(0, lambda group: group["variant_allele"].__setitem__((31, 2), "T"), "two alleles for each variant, variant 31 has more")
    of(1, replace("call_genotype", np.zeros((37, 11, 4), "i1")), "call_genotype has 4 alleles for each")
    of(2, replace("call_genotype", np.zeros((37, 11, 2), "f4")), "call_genotype has elements of type float32")
    of(3, lambda group: group.__delitem__("contig_id"), "not VCF Zarr: it has no array contig_id")
    of(4, set_to("sample_id", "a b"), "sample_id of sample 5 has a space")
    of(5, set_to("sample_id", ""), "sample_id of sample 5 is empty")
    of(6, set_to("variant_contig", -1), "variant 5 is on contig -1, and contig_id has 4 names", ["bim"])
    of(7, set_to("variant_id", "a\tb"), "a word of variant 5 has a space", ["bim"])
    of(8, replace("variant_position", np.zeros(36, "i4")), "variant_position is not an integer for each variant")
    empty = vcf_zarr(tmp_path / "empty.vcz", count=0, samples=0)
    assert cat(empty.store.root, "bed", tmp_path / "bed").read_bytes() == b"\x6c\x1b\x01"
    assert not cat(empty.store.root, "bim", tmp_path / "bim").read_bytes() + cat(empty.store.root, "fam", tmp_path / "fam").read_bytes()
