//! The models: what their threads do, and what must hold.

mod chunks;
mod memory;
mod names;
mod nodes;
mod views;

use shuttle::thread::{self, JoinHandle};

use crate::mount::Mount;
use crate::runs::Model;

/// All models.
pub const MODELS: &[Model] = &[
    Model { name: "shard-writers", run: chunks::shard_writers },
    Model { name: "chunk-writers", run: chunks::chunk_writers },
    Model { name: "truncate-unlink", run: chunks::truncate_and_unlink },
    Model { name: "handles", run: chunks::handles },
    Model { name: "names", run: names::names },
    Model { name: "renames", run: names::renames },
    Model { name: "opposite-renames", run: names::opposite_renames },
    Model { name: "links", run: names::links },
    Model { name: "budget", run: memory::budget },
    Model { name: "small-memory", run: memory::small_memory },
    Model { name: "pool", run: memory::pool },
    Model { name: "prefetch", run: views::prefetch },
    Model { name: "views", run: views::views },
    Model { name: "edited-views", run: views::edited_views },
    Model { name: "moved-views", run: views::moved_views },
    Model { name: "moves", run: nodes::moves },
    Model { name: "new-nodes", run: nodes::new_nodes },
];

/// Runs programs on a mount, and waits until they have ended.
fn run(mount: &Mount, programs: Vec<Box<dyn FnOnce(&Mount) + Send>>) {
    let start = |program: Box<dyn FnOnce(&Mount) + Send>| {
        let mount = mount.clone();
        thread::spawn(move || program(&mount))
    };
    let threads: Vec<JoinHandle<()>> = programs.into_iter().map(start).collect();
    for thread in threads {
        thread.join().expect("ended");
    }
}
