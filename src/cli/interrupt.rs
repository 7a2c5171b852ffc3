//! Ctrl-C and other signals to a command that has to clean up before it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::failure::Failure;
use crate::store::Store;
use crate::sys;

/// Sets `is_stopped` at the first signal, and interrupts all waits for the stores. Call it before
/// any other thread starts, so that only the waiting thread receives signals.
pub fn stop_on_signals(is_stopped: &Arc<AtomicBool>, stores: Vec<Store>) -> Result<(), Failure> {
    sys::block_signals()?;
    let is_stopped = Arc::clone(is_stopped);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while sys::wait_for_signal().is_ok() {
            is_stopped.store(true, Ordering::Relaxed);
            for store in &stores {
                store.read().stop();
            }
        }
    })?;
    Ok(())
}
