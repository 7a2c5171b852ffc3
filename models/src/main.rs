//! Models of the threads of a mount: small programs on a tree without a kernel, in many orders.
//!
//! Only one thread runs at a time. After each call of a lock or an atomic variable a scheduler
//! chooses the thread that runs next, so a seed chooses the order, and the same seed finds it again.
//! A panic, a failed assertion and threads that wait for each other are failures.
//!
//! `zarrfs-models [NAME..]`: `ZARRFS_SCHEDULES` for each model and scheduler [200],
//! `ZARRFS_SEED` of the first ones [1]. With `ZARRFS_WHERE=1` a failure shows where threads wait.

mod mount;
mod programs;
mod runs;

use std::process::ExitCode;
use std::time::Instant;

use runs::{Found, Model, Order};

/// Runs a model with both schedulers, and prints a line for each. Whether nothing was found.
fn run(model: &Model, schedules: usize, seed: u64) -> bool {
    let mut is_right = true;
    for order in [Order::Random, Order::Priorities] {
        let started = Instant::now();
        let Found { tried, failure } = runs::run(model, order, schedules, seed);
        let seconds = started.elapsed().as_secs_f64();
        let result = if failure.is_none() { "nothing found" } else { "FAILED" };
        println!("{:<18} {:<11} {tried:>9} {seconds:>9.1}  {result}", model.name, order.name());
        if let Some(failure) = failure {
            println!(
                "    {}\n    again: ZARRFS_SEED={} ZARRFS_SCHEDULES={} scripts/models.sh {}",
                failure.message.trim_end().replace('\n', "\n    "),
                failure.seed,
                runs::BATCH,
                model.name
            );
            for place in parking_lot::waiting() {
                let (thread, place) = place.split_once('\n').unwrap_or((&place, ""));
                println!("    {thread}\n    {}", runs::lines_of(place).replace('\n', "\n    "));
            }
            is_right = false;
        }
    }
    is_right
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(or)
}

fn main() -> ExitCode {
    runs::use_one_processor();
    if std::env::var_os("ZARRFS_WHERE").is_some() {
        parking_lot::trace();
    }
    scheduled_std::sync::atomic::schedule();
    let names: Vec<String> = std::env::args().skip(1).collect();
    let models: Vec<&Model> = programs::MODELS
        .iter()
        .filter(|model| names.is_empty() || names.iter().any(|name| name == model.name))
        .collect();
    if models.is_empty() || models.len() < names.len() {
        let all: Vec<&str> = programs::MODELS.iter().map(|model| model.name).collect();
        eprintln!("the models are {}", all.join(", "));
        return ExitCode::from(2);
    }
    let schedules = usize::try_from(number("ZARRFS_SCHEDULES", 200)).unwrap_or(usize::MAX);
    let seed = number("ZARRFS_SEED", 1);
    println!("{:<18} {:<11} {:>9} {:>9}  result", "model", "scheduler", "schedules", "seconds");
    let right = models.into_iter().filter(|model| !run(model, schedules, seed)).count() == 0;
    mount::remove_directories();
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
