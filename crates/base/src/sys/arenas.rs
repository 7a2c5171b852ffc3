//! The memory that the system's allocator keeps.

/// Has all threads allocate from one arena. By default, glibc gives each thread an arena of its
/// own, up to eight for each processor. Memory that a thread frees stays in its arena, and others
/// cannot use it, so the arenas together may keep several times the memory that was ever in use.
#[cfg(target_env = "gnu")]
pub fn use_one_arena() {
    // SAFETY: `mallopt` takes two numbers, and has a lock of its own.
    let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    if is_set == 0 {
        log::debug!("the allocator keeps its arenas");
    }
}

/// Other allocators have no arenas.
#[cfg(not(target_env = "gnu"))]
pub fn use_one_arena() {}
