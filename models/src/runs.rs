//! Runs a model in many orders.

use std::any::Any;
use std::backtrace::Backtrace;
use std::sync::Mutex;
use std::thread;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// A program of several threads.
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Runs it once, and checks what it promises.
    pub run: fn(),
}

/// How the next thread is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each thread that can run is as likely as the others.
    Random,
    /// Threads have random priorities, which change at a few random places: probabilistic
    /// concurrency testing. It finds faults that need one thread to be slow at the wrong place.
    Priorities,
}

impl Order {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Priorities => "pct",
        }
    }
}

/// The number of schedules that share a seed and a thread.
pub const BATCH: usize = 100;

/// The depth of [`Order::Priorities`]: it is sure to have a good chance to find faults that need
/// three steps of different threads in a certain order.
const DEPTH: usize = 3;

/// What was found.
pub struct Found {
    /// How many schedules were run.
    pub tried: usize,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// A failure.
pub struct Failure {
    /// The seed of the schedules in which it is.
    pub seed: u64,
    /// What was wrong.
    pub message: String,
}

/// The first message of a panic.
static MESSAGE: Mutex<Option<String>> = Mutex::new(None);

/// Runs all threads of this process on one processor: zarrfs then shares no work with threads that
/// the scheduler does not know.
pub fn use_one_processor() {
    let mut one = rustix::thread::CpuSet::new();
    let all = rustix::thread::sched_getaffinity(None).expect("processors");
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|processor| all.is_set(*processor));
    one.set(first.expect("a processor"));
    rustix::thread::sched_setaffinity(None, &one).expect("bound");
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    config
}

/// Runs a model in this many orders, at least, until one fails.
pub fn run(model: &Model, order: Order, schedules: usize, seed: u64) -> Found {
    let run = model.run;
    let mut tried = 0;
    std::panic::set_hook(Box::new(|info| {
        let mut message = MESSAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if message.is_none() {
            let is_traced = std::env::var_os("ZARRFS_WHERE").is_some();
            let place = is_traced.then(|| lines_of(&Backtrace::force_capture().to_string()));
            *message = Some(format!("{info}\n{}", place.unwrap_or_default()));
        }
    }));
    for seed in seed.. {
        if tried >= schedules {
            break;
        }
        // A new thread, so that no thread-local variable of the ones before is left.
        let batch = thread::Builder::new().stack_size(8 << 20).spawn(move || match order {
            Order::Random => {
                Runner::new(RandomScheduler::new_from_seed(seed, BATCH), config()).run(run)
            }
            Order::Priorities => {
                Runner::new(PctScheduler::new_from_seed(seed, DEPTH, BATCH), config()).run(run)
            }
        });
        match batch.expect("a thread").join() {
            Ok(count) => tried += count,
            Err(panic) => {
                let first =
                    MESSAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                let message = first.unwrap_or_else(|| text_of(&*panic));
                return Found { tried, failure: Some(Failure { seed, message }) };
            }
        }
    }
    Found { tried, failure: None }
}

/// Returns the lines of a backtrace that name files of zarrfs and of the models.
pub fn lines_of(backtrace: &str) -> String {
    let is_ours = |line: &&str| line.contains("/../../src/") || line.contains("src/programs");
    let lines = backtrace.lines().filter(|line| line.trim_start().starts_with("at ./"));
    lines.filter(is_ours).map(|line| format!("{}\n", line.trim())).collect()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
