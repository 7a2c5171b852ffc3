#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zarrfs_fuzz::file_formats(data));
