//! State of the module. A guest has one thread and runs one call at a time.

use core::cell::UnsafeCell;

/// A static value that can be changed.
pub(crate) struct Global<T>(UnsafeCell<T>);

// A module of WebAssembly has one thread. Natively, only tests run, and what they share is
// behind a lock of its own or not used.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub(crate) const fn new(value: T) -> Self {
        Global(UnsafeCell::new(value))
    }

    /// Returns the value.
    ///
    /// # Safety
    ///
    /// No other reference to the value may be used while this one is.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> &mut T {
        &mut *self.0.get()
    }
}
