"""Views read in mounts by the languages of science: R, Octave (and so MATLAB), GDL (and so IDL)."""

import contextlib

import numpy as np
import pytest
import xarray as xr

from images import numbers, same
from programs import arrays, mounted, run, there
from test_views import climate
from views import array

# What CDF-2 has, which every reader of netCDF reads.
PLAIN = ["?", "i1", "i2", "u2", "i4", "u4", "f4", "f8"]
NUMBERS = [*PLAIN, "u1", "i8", "u8"]


@contextlib.contextmanager
def cases_of(mount, directory, types, ranks, formats):
    """Files in a mount with what is in them: `(file, name of the variable, values)`."""
    values = arrays(directory, types, ranks)
    with mounted(mount, directory) as at:
        yield [(f"{at(path)}.{format}", path[3:], values[path]) for format in formats for path in values]


def table(directory, cases):
    """A file of the cases for a program: the file to read, its variable, where the values go."""
    lines = [f"{file} {name} {directory}/out{number}\n" for number, (file, name, _) in enumerate(cases)]
    (directory / "cases").write_text("".join(lines))


def compare(directory, cases, dtype_of=lambda file, values: values.dtype):
    """What the program has written, against the values."""
    for number, (file, _, values) in enumerate(cases):
        values = numbers(values)
        found = np.fromfile(directory / f"out{number}", dtype_of(file, values))
        assert found.size == values.size, file
        found = found.reshape(values.shape)
        np.testing.assert_array_equal(found, values.astype(found.dtype), err_msg=file)


def in_cdf(file, values):
    """The type by which classic netCDF holds few values of a type that it does not have."""
    wider = {"u2": "i4", "u4": "f8", "f2": "f4", "b1": "i1"}
    return np.dtype(wider.get(values.dtype.str[1:], values.dtype)) if file.endswith(".nc") else values.dtype


R = """
suppressMessages(library(ncdf4))
cases <- read.table("cases", stringsAsFactors = FALSE)
for (i in seq_len(nrow(cases))) {
  file <- nc_open(cases[i, 1])
  values <- ncvar_get(file, cases[i, 2], collapse_degen = FALSE)
  nc_close(file)
  out <- file(cases[i, 3], "wb")
  writeBin(as.double(values), out)
  writeBin(as.double(dim(values)), out)
  close(out)
}
"""


@there("Rscript")
def test_r_reads_netcdf(tmp_path, mount):
    """R has doubles, into which it reads longer integers; its ncdf4 opens no CDF-5."""
    for types, ranks, formats in [(PLAIN, [1, 3], ["nc", "nc4"]), (NUMBERS[-3:], [2, 4], ["nc4"])]:
        with cases_of(mount, tmp_path / types[0].replace("?", "b1"), types, ranks, formats) as cases:
            table(tmp_path, cases)
            run(["Rscript", "--vanilla", "-e", R], tmp_path)
            for number, (file, _, values) in enumerate(cases):
                found = np.fromfile(tmp_path / f"out{number}", "f8")
                shape = found[-values.ndim :][::-1].astype(int).tolist()
                assert shape == list(values.shape), file
                expected = numbers(values).astype("f8").reshape(-1)
                np.testing.assert_array_equal(found[: values.size], expected, err_msg=file)


OCTAVE = """
pkg load netcdf
cases = textscan(fopen("cases"), "%s %s %s");
for i = 1:numel(cases{1})
  [file, name, out] = deal(cases{1}{i}, cases{2}{i}, cases{3}{i});
  [~, ~, extension] = fileparts(file);
  switch extension
    case ".h5"
      values = load(file).(name);
    case ".raw"
      kinds = {"u", "uint"; "i", "int"; "f", "float"};
      kind = [kinds{strcmp(kinds(:, 1), name(1)), 2} num2str(8 * str2num(name(2)))];
      id = fopen(file, "r", "ieee-le");
      values = fread(id, Inf, [kind "=>" kind]);
      fclose(id);
    otherwise
      values = ncread(file, name);
  end
  id = fopen(out, "w", "ieee-le");
  fwrite(id, values, class(values));
  fclose(id);
end
"""
OCTAVE_CLI = ["octave-cli", "--no-gui", "--norc", "--quiet", "--eval"]


@there("octave-cli")
def test_octave_reads_netcdf_hdf5_and_raw_files(tmp_path, mount):
    def dtype_of(file, values):
        if file.endswith("nc4"):
            return np.dtype("f4") if values.dtype == "f2" else values.dtype
        if file.endswith("nc"):
            return in_cdf(file, values)
        # Octave reads HDF5's floats as double.
        return np.dtype("f8" if values.dtype.kind == "f" and file.endswith("h5") else values.dtype)

    for types, formats in [(PLAIN, ["nc", "nc4"]), (NUMBERS[1:], ["nc4", "h5", "raw"]), (["i8", "u8", "f2"], ["nc4"])]:
        directory = tmp_path / "-".join(formats + types[:1])
        with cases_of(mount, directory, types, [1, 2, 5], formats) as cases:
            table(tmp_path, cases)
            run([*OCTAVE_CLI, OCTAVE], tmp_path)
            compare(tmp_path, cases, dtype_of)


GDL = """
pro read_all
  openr, list, 'cases', /get_lun
  line = ''
  while not eof(list) do begin
    readf, list, line
    case_ = strsplit(line, ' ', /extract)
    kind = strmid(case_[0], strpos(case_[0], '.', /reverse_search) + 1)
    if kind eq 'raw' then begin
      type = strmid(case_[1], 0, 2)
      n = (file_info(case_[0])).size / fix(strmid(type, 1, 1))
      case type of
        'u1': values = bytarr(n)
        'i2': values = intarr(n)
        'u2': values = uintarr(n)
        'i4': values = lonarr(n)
        'u4': values = ulonarr(n)
        'i8': values = lon64arr(n)
        'u8': values = ulon64arr(n)
        'f4': values = fltarr(n)
        'f8': values = dblarr(n)
        'c8': values = complexarr(n)
      endcase
      openr, unit, case_[0], /get_lun, /swap_if_big_endian
      readu, unit, values
      free_lun, unit
    endif else begin
      id = ncdf_open(case_[0])
      ncdf_varget, id, case_[1], values
      ncdf_close, id
    endelse
    openw, out, case_[2], /get_lun
    writeu, out, values
    free_lun, out
  endwhile
  free_lun, list
end
"""
RUN_GDL = ["gdl", "-quiet", "-e", "read_all"]


@there("gdl")
def test_gdl_reads_netcdf_and_raw_files(tmp_path, mount):
    """GDL has no signed bytes, and from netCDF-4 no unsigned integers."""
    bytes_of = {"b1": "u1", "i1": "u1"}

    def dtype_of(file, values):
        return np.dtype(bytes_of.get(values.dtype.str[1:], in_cdf(file, values)))

    (tmp_path / "read_all.pro").write_text(GDL)
    for types, formats in [(PLAIN[2:], ["nc"]), (["i2", "i4", "f4", "f8"], ["nc4"]), (["u1", *PLAIN[2:], "i8", "u8", "c8"], ["raw"])]:
        with cases_of(mount, tmp_path / formats[0], types, [1, 3, 5], formats) as cases:
            table(tmp_path, cases)
            run(RUN_GDL, tmp_path)
            compare(tmp_path, cases, dtype_of)


@there("gdl")
def test_idl_associates_a_variable_with_a_raw_file(tmp_path, mount):
    values = array(tmp_path / "g/x", np.arange(13 * 21 * 17, dtype="f4").reshape(13, 21, 17), (4, 8, 8), sharded=True)
    with mount(tmp_path / "g/x") as m:
        (tmp_path / "read_all.pro").write_text(
            f"pro read_all\nopenr, 1, '{m / '__root__.raw'}'\na = assoc(1, fltarr(17, 21))\nopenw, 2, 'out'\n"
            "for i = 12, 0, -1 do writeu, 2, a[i]\nclose, 2\nend\n"
        )
        run(RUN_GDL, tmp_path)
        same(np.fromfile(tmp_path / "out", "f4").reshape(values.shape)[::-1], values)


@there("Rscript")
def test_r_masks_what_is_missing_and_knows_dimensions(tmp_path, mount):
    climate(tmp_path / "climate.zarr")
    with xr.open_zarr(tmp_path / "climate.zarr", consolidated=False) as data, mount(tmp_path / "climate.zarr") as m:
        for format in ("nc", "nc4"):
            code = f"""
            suppressMessages(library(ncdf4))
            file <- nc_open("{m / f'__root__.{format}'}")
            t2m <- ncvar_get(file, "t2m", start = c(4, 3, 2), count = c(1, 1, 1))
            cat(is.na(t2m), names(file$dim), file$dim$lat$vals[2], ncatt_get(file, "t2m", "units")$value,
                ncatt_get(file, 0, "title")$value, sprintf("%.4f", mean(ncvar_get(file, "t2m"), na.rm = TRUE)))
            nc_close(file)"""
            said = run(["Rscript", "--vanilla", "-e", code], tmp_path).split()
            # R has the dimensions in the order of their numbers in the file.
            assert said[0] == "TRUE" and set(said[1:4]) == {"time", "lat", "lon"}
            assert said[4:8] == ["-75", "K", "a", "test"]
            assert float(said[8]) == pytest.approx(float(data["t2m"].astype("f8").mean()), abs=1e-3)
