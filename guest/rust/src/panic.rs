//! Panics: the message goes to the standard error of the module, from where the host takes it
//! into the text of its error, and the call ends.

use core::fmt;

/// One line of text, cut to its room.
pub(crate) struct Line {
    bytes: [u8; 1024],
    n: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line { bytes: [0; 1024], n: 0 }
    }

    /// Writes the line to the standard error.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn print(&self) {
        #[link(wasm_import_module = "wasi_snapshot_preview1")]
        extern "C" {
            fn fd_write(fd: u32, buffers: *const [usize; 2], n: u32, written: *mut u32) -> u32;
        }
        let mut written = 0;
        unsafe {
            fd_write(2, &[self.bytes.as_ptr() as usize, self.n], 1, &mut written);
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for &b in s.as_bytes() {
            if self.n < self.bytes.len() {
                self.bytes[self.n] = if b == b'\n' { b' ' } else { b };
                self.n += 1;
            }
        }
        Ok(())
    }
}

#[cfg(target_arch = "wasm32")]
fn report(info: &dyn fmt::Display) {
    use fmt::Write;
    let mut line = Line::new();
    let _ = write!(line, "{}", info);
    line.print();
}

/// Makes panics of the standard library report what they are about.
#[cfg(all(target_arch = "wasm32", feature = "std"))]
pub(crate) fn install() {
    std::panic::set_hook(std::boxed::Box::new(|info| report(info)));
}

#[cfg(all(target_arch = "wasm32", not(feature = "std")))]
pub(crate) fn install() {}

#[cfg(all(target_arch = "wasm32", not(feature = "std")))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    report(info);
    core::arch::wasm32::unreachable()
}
