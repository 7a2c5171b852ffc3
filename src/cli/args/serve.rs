//! The server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::mount::TreeOptions;

/// Serve a hierarchy over HTTP, read-only: the files that a mount would show.
///
/// The server prints its URL, and answers until Ctrl-C. A browser shows the groups and arrays;
/// programs read every file of the tree that `zarrfs mount` would show, as a whole or in ranges,
/// and programs that list follow the links. OPeNDAP clients (ncdump, CDO, NCO, R, Octave) read the
/// group or array NODE at URL/dap/NODE.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
  zarrfs serve climate.zarr
  curl -O http://127.0.0.1:8600/TOKEN/t2m.nc
  ncdump -h http://127.0.0.1:8600/TOKEN/dap
  ssh -t -L 8600:127.0.0.1:8600 server zarrfs serve /data/climate.zarr")]
pub struct Serve {
    /// What to serve, as for `zarrfs mount`.
    pub source: PathBuf,
    /// The address and port, or a port alone. Other machines can reach the server only if this is
    /// not a loopback address, such as 0.0.0.0:8600, and only by the IP address unless --allow-host
    /// has the name; the connection is not encrypted.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8600", value_parser = address)]
    pub listen: SocketAddr,
    /// The secret in each URL [default: a new random one].
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub token: Option<String>,
    /// Answer requests without a token: every user of this machine, and every page in its browsers,
    /// can then read the data.
    #[arg(long, conflicts_with = "token")]
    pub no_token: bool,
    /// The path under which a proxy shows the server, such as /user/me/proxy/8600.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub base: String,
    /// A further name of the host in requests, such as that of a proxy; * permits all. Without it,
    /// the server answers to localhost and to the address that it listens on.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// The most connections at a time; more of them wait [default: half of the descriptors that the
    /// process may have, at most 4096].
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    #[command(flatten)]
    pub tree: TreeOptions,
}

fn address(typed: &str) -> Result<SocketAddr, String> {
    let port = typed.strip_prefix("localhost:").unwrap_or(typed).trim_start_matches(':');
    let of_port = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = typed.parse().or_else(|_| port.parse().map(of_port));
    address.map_err(|_| "expected an IP address and a port, such as 127.0.0.1:8600".to_owned())
}

fn token(typed: &str) -> Result<String, String> {
    let is_of_url = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if typed.is_empty() || !typed.bytes().all(is_of_url) || typed.starts_with('.') {
        return Err("expected letters, digits, and - . _ ~".to_owned());
    }
    Ok(typed.to_owned())
}
