//! `zarrfs serve`: the tree of files over HTTP.

use std::io::{self, ErrorKind, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::args::{MountOptions, Serve};
use super::failure::{Failure, failed};
use super::mount::options::Flags;
use super::mount::serving::report_counters;
use super::mount::typed::Typed;
use super::output::logger;
use super::output::print;
use crate::resources;
use crate::serve::{Bound, ServeOptions, Stopper};
use crate::sys::{self, Signal};
use crate::vfs::Vfs;
use crate::width::ToUsize;

/// The most connections, if the user typed no number.
const MOST_CONNECTIONS: u64 = 4096;

/// The bytes of a random token.
const TOKEN_LEN: usize = 16;

/// Serves until a signal comes.
pub fn run(args: &Serve) -> Result<(), Failure> {
    // Before any thread starts, so that only the waiting thread receives signals.
    sys::block_signals()?;
    let sink = match &args.tree.log_file {
        Some(path) => logger::Sink::File(path.clone()),
        None => logger::Sink::Stderr,
    };
    logger::start(args.tree.log_level, sink)?;
    let descriptors = resources::raise_descriptor_limit();
    let flags = Flags { read_only: true, ..Flags::default() };
    let options = MountOptions::of_tree(args.tree.clone())?;
    let served = Typed { path: &args.source, options: &options, flags: &flags };
    let source = served.source()?;
    // The user learns of a port in use before the store is read.
    let bound = Bound::new(args.listen).map_err(|error| cannot_listen(args.listen, &error))?;
    let hierarchy = served.open_hierarchy(&source)?;
    let mut options = served.vfs_options(&source, descriptors);
    // No kernel caches the pages of views.
    options.kernel_keeps = false;
    options.follows_links = true;
    options.passthrough = None;
    let vfs = Arc::new(Vfs::new(hierarchy, options));
    let token = match (&args.token, args.no_token) {
        (_, true) => None,
        (Some(token), false) => Some(token.clone()),
        (None, false) => Some(random()?),
    };
    let (workers, ahead) = served.threads(&source);
    let connections = ((descriptors / 2).min(MOST_CONNECTIONS)).to_usize();
    let address = bound.address();
    let title = args.source.file_name();
    let options = ServeOptions {
        title: title.map_or_else(|| source.spelled(), |name| name.to_string_lossy().into_owned()),
        token,
        base: args.base.clone(),
        hosts: args.allow_host.clone(),
        workers,
        ahead,
        connections: args.connections.unwrap_or(connections).max(1),
    };
    print::output(&format!("{}\n", url(address, &options)))?;
    if !address.ip().is_loopback() && options.token.is_none() {
        print::error(&format!(
            "zarrfs: {address}: every machine that reaches this address can read {}",
            source.spelled()
        ));
    }
    answer_signals(bound.stopper(), Arc::clone(&vfs));
    let served = bound.run(vfs, options);
    log::logger().flush();
    served.map_err(|error| failed(format!("{address}: {error}")))
}

/// Returns the URL of the root.
fn url(address: SocketAddr, options: &ServeOptions) -> String {
    // A client cannot connect to "all addresses".
    let host = match address.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let base = options.base.trim_matches('/');
    let parts = [base, options.token.as_deref().unwrap_or_default()];
    let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let slash = if path.is_empty() { "" } else { "/" };
    format!("http://{host}:{}/{}{slash}", address.port(), path.join("/"))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    failed(match error.kind() {
        ErrorKind::AddrInUse => format!(
            "{address}: another program listens there; choose another port, or port 0 for any that \
             is free (--listen {}:0)",
            address.ip()
        ),
        ErrorKind::PermissionDenied => {
            format!("{address}: only root may listen on ports below 1024; choose another port")
        }
        ErrorKind::AddrNotAvailable => {
            format!(
                "{address}: this machine does not have the address; `ip addr` lists those it has"
            )
        }
        _ => format!("{address}: {error}"),
    })
}

/// Returns a token that nobody can guess.
fn random() -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_LEN];
    sys::fill_random(&mut bytes)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn answer_signals(stopper: Stopper, vfs: Arc<Vfs>) {
    let of_terminal = io::stdin().is_terminal();
    let wait = move || {
        while let Ok(signal) = sys::wait_for_signal() {
            match signal {
                Signal::HangUp if !of_terminal => logger::reopen(),
                Signal::Report => report_counters(&vfs),
                Signal::GiveUp => {}
                Signal::HangUp | Signal::Stop => stopper.stop(),
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("signals".to_owned()).spawn(wait) {
        log::error!("cannot wait for signals: {error}");
    }
}
