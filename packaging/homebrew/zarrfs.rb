# A formula for Homebrew on Linux. Not run: no Homebrew can be had where zarrfs is tested. `ruby -c`
# accepts it.
class Zarrfs < Formula
  desc "Mounts a Zarr hierarchy as a file system"
  # zarrfs has no published release yet: replace the address and the sum.
  url "https://example.invalid/zarrfs-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"zarrfs", "completions", shells: [:bash, :zsh, :fish])
    system bin/"zarrfs", "man", man
  end

  def caveats
    <<~EOS
      Users other than root need fusermount3 of the system (Debian: apt-get install fuse3).
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/zarrfs --version")
    system bin/"zarrfs", "create", testpath/"a.zarr"
    assert_path_exists testpath/"a.zarr/zarr.json"
  end
end
