//! Decides what to do with the unstored bytes of a file. Every close, `fsync`, rename and `sync`,
//! and the ticker, asks here.
//!
//! | reason | chunk, metadata file | ordinary file |
//! | ------ | -------------------- | ------------- |
//! | a close | stored | left, since most are renamed or removed at once |
//! | `fsync`, rename | stored | stored |
//! | `sync`, unmount | stored if complete | stored, unless the kernel still writes it |
//! | the ticker | stored if it waited for its array | stored after the delay |
//!
//! A file is complete if no program has it open to write, or a close came after the last write. The
//! ticker leaves what a program is still writing, waits for the delay after a refusal, and leaves
//! an ordinary file whose name another program has taken.
//!
//! Bytes that equal the stored ones are dropped, lock files are never stored, and a chunk that no
//! array has yet waits for the metadata file that makes it one.

/// Why a file is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreReason {
    /// A descriptor was closed. Scratch files stay unstored, since most are renamed or removed at
    /// once.
    Closing,
    /// The file must be stored now.
    Asked,
    /// Everything must be stored, except files that their writers have not completed.
    Everything,
    /// The ticker stores scratch files that are old enough.
    Aged,
}

/// How the store has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileClass {
    /// A chunk or a metadata file.
    Translated,
    /// An ordinary file.
    Ordinary,
    /// A lock file of TensorStore, which renames it onto its key or removes it.
    Lock,
}

/// The facts on which the decision depends.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact, and all may hold together")]
pub struct UnstoredState {
    pub class: FileClass,
    /// Whether they differ from what is stored.
    pub is_changed: bool,
    /// Whether a program has the file open to write.
    pub has_writers: bool,
    /// Whether the kernel may still write them by itself.
    pub kernel_writes: bool,
    /// Whether a close or `fsync` came after the last write.
    pub is_settled: bool,
    /// Whether they are a chunk that the array does not have yet.
    pub waits: bool,
    /// Whether they have been one since a close.
    pub has_waited: bool,
    /// Whether they have waited for their array for too long.
    pub is_late: bool,
    /// Whether the delay for writing back has passed.
    pub is_old: bool,
    /// Whether the store has refused them.
    pub was_refused: bool,
    /// Whether it always will.
    pub is_refused_for_good: bool,
    /// Whether their name was taken when they were to be stored.
    pub is_taken: bool,
    /// Whether the store keeps them as a file.
    pub is_kept_as_file: bool,
}

/// What to do with unstored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Drop them.
    Drop,
    /// Keep them as they are.
    Leave,
    /// Keep them, and let the close fail as the last attempt to store them did.
    FailAgain,
    /// Keep them under their name until their array is there.
    Wait,
    /// Keep them, and return the error that their array is not there.
    FailWaiting,
    /// Like `FailWaiting`, and remember that this was reported.
    GiveUp,
    /// Keep them, and return the reason why they can never be stored.
    Refuse,
    /// Make them a file of the store.
    StoreAsFile,
    /// Store them as the kind of file that their place says.
    Store,
}

/// Decides what to do with unstored bytes in this state.
pub fn next_step(reason: StoreReason, state: UnstoredState) -> NextStep {
    if !state.is_changed {
        // If the kernel may write to them, they are looked at again.
        return if state.kernel_writes { NextStep::Leave } else { NextStep::Drop };
    }
    if state.waits {
        return waiting_step(reason, state);
    }
    if !is_due(reason, state) {
        // The ticker has tried to store it since it was written.
        let is_told = reason == StoreReason::Closing && state.was_refused;
        return if is_told { NextStep::FailAgain } else { NextStep::Leave };
    }
    match state {
        UnstoredState { is_kept_as_file: true, .. } => NextStep::StoreAsFile,
        UnstoredState { is_refused_for_good: true, .. } => NextStep::Refuse,
        _ => NextStep::Store,
    }
}

fn waiting_step(reason: StoreReason, state: UnstoredState) -> NextStep {
    match reason {
        StoreReason::Closing => NextStep::Wait,
        StoreReason::Aged if state.is_late && !state.has_writers => NextStep::GiveUp,
        StoreReason::Aged => NextStep::Leave,
        StoreReason::Everything if state.has_writers && !state.is_settled => NextStep::Leave,
        StoreReason::Asked | StoreReason::Everything => NextStep::FailWaiting,
    }
}

fn is_due(reason: StoreReason, state: UnstoredState) -> bool {
    match (state.class, reason) {
        (FileClass::Lock, _) | (FileClass::Ordinary, StoreReason::Closing) => false,
        (FileClass::Translated, StoreReason::Closing) | (_, StoreReason::Asked) => true,
        // A program may still be writing it, and half of the file would be stored.
        (FileClass::Translated, StoreReason::Everything) => !state.has_writers || state.is_settled,
        // It has waited for the array that is there now.
        (FileClass::Translated, StoreReason::Aged) => {
            !state.has_writers && state.has_waited && (!state.was_refused || state.is_old)
        }
        // The kernel still writes to it, so it cannot become the value yet.
        (FileClass::Ordinary, _) if state.kernel_writes => false,
        (FileClass::Ordinary, StoreReason::Everything) => true,
        // If its name is taken, that was reported; the next `fsync` tries again.
        (FileClass::Ordinary, StoreReason::Aged) => !state.is_taken && state.is_old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StoreReason::{Aged, Asked, Closing, Everything};

    /// Every state, for every reason.
    fn all() -> impl Iterator<Item = (StoreReason, UnstoredState)> {
        let classes = [FileClass::Translated, FileClass::Ordinary, FileClass::Lock];
        let reasons = [Closing, Asked, Everything, Aged];
        let pairs =
            classes.into_iter().flat_map(move |class| reasons.map(|reason| (class, reason)));
        pairs.flat_map(|(class, reason)| {
            (0_u32..1 << 12).map(move |bits| {
                let is = |bit: u32| bits & (1 << bit) != 0;
                let state = UnstoredState {
                    class,
                    is_changed: is(0),
                    has_writers: is(1),
                    kernel_writes: is(2),
                    is_settled: is(3),
                    waits: is(4),
                    has_waited: is(5),
                    is_late: is(6),
                    is_old: is(7),
                    was_refused: is(8),
                    is_refused_for_good: is(9),
                    is_taken: is(10),
                    is_kept_as_file: is(11),
                };
                (reason, state)
            })
        })
    }

    fn check(promise: &str, holds: impl Fn(StoreReason, UnstoredState, NextStep) -> bool) {
        for (reason, state) in all() {
            let step = next_step(reason, state);
            assert!(holds(reason, state, step), "{promise}: {step:?} for {reason:?}, {state:?}");
        }
    }

    fn stores(step: NextStep) -> bool {
        matches!(step, NextStep::Store | NextStep::StoreAsFile)
    }

    #[test]
    fn the_decision_to_store_keeps_its_promises_in_every_state() {
        check("only bytes that differ are stored", |_, state, step| {
            state.is_changed || !stores(step)
        });
        check("only bytes that equal the stored ones are dropped", |_, state, step| {
            step != NextStep::Drop || !state.is_changed && !state.kernel_writes
        });
        check("lock files are never stored", |_, state, step| {
            state.class != FileClass::Lock || !stores(step)
        });
        check("no chunk is stored in an array that does not have it", |_, state, step| {
            !state.waits || !stores(step)
        });
        check("who asks has the bytes stored, or an error", |reason, state, step| {
            let is_silent = matches!(step, NextStep::Leave | NextStep::Wait);
            let is_left = !state.is_changed || state.class == FileClass::Lock && !state.waits;
            reason != Asked || is_left || !is_silent
        });
        check("a close stores chunks and metadata files", |reason, state, step| {
            let is_of_zarr = state.class == FileClass::Translated && !state.waits;
            let is_asked = reason == Closing && state.is_changed && is_of_zarr;
            !is_asked || stores(step) || step == NextStep::Refuse
        });
        check("a close leaves ordinary files", |reason, state, step| {
            reason != Closing || state.class != FileClass::Ordinary || !stores(step)
        });
        check("a close that stores nothing tells of a refusal", |reason, state, step| {
            let is_told = !matches!(step, NextStep::Leave);
            !(reason == Closing && state.is_changed && state.was_refused) || is_told
        });
        check("nothing is stored unasked while a program writes it", |reason, state, step| {
            let is_half = match state.class {
                FileClass::Translated => state.has_writers && !state.is_settled,
                FileClass::Ordinary | FileClass::Lock => state.kernel_writes,
            };
            matches!(reason, Closing | Asked) || !is_half || !stores(step)
        });
        check(
            "the ticker repeats a refused attempt only after the delay",
            |reason, state, step| {
                reason != Aged || !state.was_refused || state.is_old || !stores(step)
            },
        );
        check("the ticker stores a chunk only if it has waited", |reason, state, step| {
            let is_of_zarr = state.class == FileClass::Translated;
            reason != Aged || !is_of_zarr || state.has_waited || !stores(step)
        });
        check("everything that nobody writes is stored by sync", |reason, state, step| {
            let is_free = !state.has_writers && !state.kernel_writes && state.is_changed;
            let is_stored =
                stores(step) || matches!(step, NextStep::Refuse | NextStep::FailWaiting);
            reason != Everything || !is_free || is_stored || state.class == FileClass::Lock
        });
    }
}
