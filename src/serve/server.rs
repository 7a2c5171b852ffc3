//! The connections of the server, and their limits.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use super::body::BlockMemory;
use super::client::{Clients, ConnectionSlot, Watched};
use super::request::Context;
use crate::pool::Pool;
use crate::vfs::Vfs;

/// The longest time that a client may take for the headers of a request.
const HEADERS: Duration = Duration::from_secs(15);

/// The longest time that a client may take nothing of an answer.
const STALL: Duration = Duration::from_secs(60);

/// The longest headers of a request, in bytes.
const MAX_HEADERS_LEN: usize = 64 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 100;

/// The longest time for answers that are being sent when the server ends.
const GRACE: Duration = Duration::from_millis(500);

/// The interval of dropping inodes and memory that nobody uses.
const TICK: Duration = Duration::from_millis(500);

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The name of the root, on pages.
    pub title: String,
    /// The first name in each path, which only the user knows.
    pub token: Option<String>,
    /// The path before that, where a proxy shows the server.
    pub base: String,
    /// Further names of the host.
    pub hosts: Vec<String>,
    /// The threads that decode.
    pub workers: usize,
    /// The most of them that may decode in advance.
    pub ahead: usize,
    /// The most connections at a time. Others wait.
    pub connections: usize,
}

/// A server that has its address, and does not answer yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    stopper: Stopper,
    stopped: watch::Receiver<bool>,
}

/// Ends a server.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Ends the server soon.
    pub fn stop(&self) {
        // If there is no receiver, the server has ended.
        let _ended = self.0.send(true);
    }
}

impl Bound {
    /// Takes the address. Port 0 is any free port.
    pub fn new(listen: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (sender, stopped) = watch::channel(false);
        Ok(Self { listener, address, stopper: Stopper(Arc::new(sender)), stopped })
    }

    /// Returns the address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that ends the server.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves `vfs` until the server is stopped.
    pub fn run(self, vfs: Arc<Vfs>, options: ServeOptions) -> io::Result<()> {
        let pool = Arc::new(Pool::new(options.workers, options.ahead)?);
        vfs.use_pool(Arc::clone(&pool));
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            // Half of them begin answers while the others produce bodies.
            .max_blocking_threads(options.workers.saturating_mul(2))
            .thread_name("http")
            .enable_io()
            .enable_time()
            .build()?;
        let tree = Arc::clone(&vfs);
        let blocks = BlockMemory::new(options.workers);
        let context = Arc::new(Context { vfs, address: self.address, options, blocks });
        let ended = runtime.block_on(accept(self.listener, self.stopped, context));
        tree.stop_waiting();
        runtime.shutdown_timeout(GRACE);
        pool.close();
        ended
    }
}

/// Accepts connections until the server is stopped.
async fn accept(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    context: Arc<Context>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let clients = Arc::new(Clients::new(context.options.connections));
    let ticks = tokio::spawn(tick(Arc::clone(&context.vfs)));
    loop {
        let accepted = async {
            let (stream, address) = listener.accept().await?;
            io::Result::Ok(clients.take(address.ip()).await.map(|place| (stream, place)))
        };
        tokio::select! {
            // It only fails when its sender is gone, and that also ends the server.
            _ = stopped.changed() => break,
            accepted = accepted => match accepted {
                Ok(Some((stream, place))) => {
                    let (context, stopped) = (Arc::clone(&context), stopped.clone());
                    tokio::spawn(serve(stream, place, context, stopped));
                }
                Ok(None) => break,
                Err(error) => {
                    // A client that has gone again is no reason to wait, but a lack of descriptors
                    // is.
                    log::debug!("accept: {error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
        }
    }
    ticks.abort();
    // Those who are answered get the rest, if they take it soon.
    let _late = timeout(GRACE, clients.until_gone()).await;
    Ok(())
}

/// Drops inodes and memory that nobody uses, now and then.
async fn tick(tree: Arc<Vfs>) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        let tree = Arc::clone(&tree);
        tokio::task::spawn_blocking(move || tree.tick());
    }
}

/// Answers the requests of a connection.
async fn serve(
    stream: tokio::net::TcpStream,
    place: ConnectionSlot,
    context: Arc<Context>,
    mut stopped: watch::Receiver<bool>,
) {
    let client = Arc::clone(&place.client);
    stream.set_nodelay(true).unwrap_or_else(|error| log::debug!("{error}"));
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL));
    let stream = Watched { stream: Box::pin(stream), client: Arc::clone(&client) };
    let answer = service_fn(move |request| {
        let (context, client) = (Arc::clone(&context), Arc::clone(&client));
        async move { Ok::<_, Infallible>(context.answer(request, client).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(MAX_HEADERS_LEN)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.client.ended.notified() => return,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        log::debug!("connection: {error}");
    }
}
