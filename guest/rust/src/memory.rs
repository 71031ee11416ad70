//! Memory: what belongs to one call, and the allocator of a module.

use alloc::vec::Vec;

use crate::Call;

#[cfg(target_arch = "wasm32")]
mod call {
    use super::*;
    use crate::global::Global;

    /// Room for what belongs to the call that runs: answers of the host and decoded strings.
    /// It is used again for the next call. Chunks never move while they are in use.
    struct Arena {
        chunks: Vec<Vec<u8>>,
        /// The number of the call, from 1.
        number: u32,
    }

    static ARENA: Global<Arena> = Global::new(Arena { chunks: Vec::new(), number: 0 });

    const CHUNK: usize = 16 << 10;
    /// More than this is given back after the call.
    const KEPT: usize = 1 << 20;

    /// Begins a call.
    ///
    /// # Safety
    ///
    /// Nothing of the call before may be used any more.
    #[inline]
    pub(crate) unsafe fn begin() {
        crate::index::forget();
        let arena = ARENA.get();
        arena.number = arena.number.wrapping_add(1);
        match arena.chunks.as_mut_slice() {
            [] => {}
            [only] if only.capacity() <= KEPT => only.clear(),
            _ => give_back(arena),
        }
    }

    /// Keeps one chunk, the largest.
    #[inline(never)]
    fn give_back(arena: &mut Arena) {
        let last = arena.chunks.pop();
        arena.chunks.clear();
        if let Some(mut last) = last.filter(|c| c.capacity() <= KEPT) {
            last.clear();
            arena.chunks.push(last);
        }
    }

    #[inline]
    pub(crate) fn number() -> u32 {
        unsafe { ARENA.get().number }
    }

    /// Returns room for at least `n` bytes, and all that the present chunk has.
    ///
    /// # Safety
    ///
    /// The reference must end before the next one begins.
    unsafe fn room<'a>(n: usize) -> &'a mut Vec<u8> {
        let arena = ARENA.get();
        let enough = matches!(arena.chunks.last(), Some(c) if c.capacity() - c.len() >= n);
        if !enough {
            let least = arena.chunks.last().map_or(CHUNK, |c| c.capacity());
            arena.chunks.push(Vec::with_capacity(least.max(n)));
        }
        arena.chunks.last_mut().unwrap()
    }

    /// The least room that an answer gets before its length is known.
    const GUESS: usize = 512;

    /// Returns what `ask` answers by the buffer-limit rule.
    pub(crate) fn fill<'a>(_: Call<'a>, mut ask: impl FnMut(*mut u8, u32) -> u32) -> &'a [u8] {
        unsafe {
            let mut chunk = room(GUESS);
            let limit = chunk.capacity() - chunk.len();
            let n = ask(chunk.as_mut_ptr().add(chunk.len()), limit as u32) as usize;
            if n > limit {
                chunk = room(n);
                let limit = chunk.capacity() - chunk.len();
                if ask(chunk.as_mut_ptr().add(chunk.len()), limit as u32) as usize != n {
                    panic!("the host answered with another length than before");
                }
            }
            let at = chunk.len();
            chunk.set_len(at + n);
            core::slice::from_raw_parts(chunk.as_ptr().add(at), n)
        }
    }

    /// Returns `bytes` in memory of the call.
    pub(crate) fn keep<'a>(_: Call<'a>, bytes: Vec<u8>) -> &'a [u8] {
        unsafe {
            let chunk = room(bytes.len());
            let at = chunk.len();
            chunk.extend_from_slice(&bytes);
            core::slice::from_raw_parts(chunk.as_ptr().add(at), bytes.len())
        }
    }
}

#[cfg(target_arch = "wasm32")]
pub(crate) use call::*;

/// Natively there is no call: what a test decodes stays.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn keep<'a>(_: Call<'a>, bytes: Vec<u8>) -> &'a [u8] {
    alloc::boxed::Box::leak(bytes.into_boxed_slice())
}

/// Natively the host answers nothing.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn fill<'a>(_: Call<'a>, _: impl FnMut(*mut u8, u32) -> u32) -> &'a [u8] {
    &[]
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) unsafe fn begin() {}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn number() -> u32 {
    0
}

/// The allocator of a module: lists of free blocks by size, each a power of two. A block is
/// never split or joined, so that allocating and freeing take a few instructions. Blocks of
/// more than half a page are whole pages.
#[cfg(target_arch = "wasm32")]
mod allocator {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::{memory_grow, memory_size};

    use crate::global::Global;

    struct Blocks {
        /// The first free block of each size, whose first word is the address of the next.
        free: [usize; 32],
        /// Memory that was never a block.
        from: usize,
        to: usize,
    }

    static BLOCKS: Global<Blocks> = Global::new(Blocks { free: [0; 32], from: 0, to: 0 });

    struct Allocator;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    const PAGE: usize = 65536;
    const SMALLEST: u32 = 4; // 16 bytes.

    #[inline(always)]
    fn class(layout: Layout) -> u32 {
        let n = layout.size().max(layout.align());
        if n <= 1 << SMALLEST {
            SMALLEST
        } else {
            32 - (n as u32 - 1).leading_zeros()
        }
    }

    unsafe impl GlobalAlloc for Allocator {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let blocks = BLOCKS.get();
            let class = class(layout);
            if class >= 31 {
                exhausted(layout.size());
            }
            let block = blocks.free[class as usize];
            if block != 0 {
                blocks.free[class as usize] = *(block as *const usize);
                return block as *mut u8;
            }
            fresh(class)
        }

        #[inline]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            let free = &mut BLOCKS.get().free[class(layout) as usize];
            *(block as *mut usize) = *free;
            *free = block as usize;
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            if class(layout) == class(new) {
                return block;
            }
            let to = self.alloc(new);
            core::ptr::copy_nonoverlapping(block, to, layout.size().min(size));
            self.dealloc(block, layout);
            to
        }
    }

    /// Ends the call, since the limit of memory is reached.
    #[cold]
    fn exhausted(size: usize) -> ! {
        use core::fmt::Write;
        let mut line = crate::panic::Line::new();
        let _ = write!(line, "out of memory: {} bytes", size);
        line.print();
        core::arch::wasm32::unreachable()
    }

    #[inline(never)]
    unsafe fn fresh(class: u32) -> *mut u8 {
        let blocks = BLOCKS.get();
        let size = 1usize << class;
        let from = (blocks.from + size.min(PAGE) - 1) & !(size.min(PAGE) - 1);
        if from != 0 && from <= blocks.to && blocks.to - from >= size {
            blocks.from = from + size;
            return from as *mut u8;
        }
        let pages = (size + PAGE - 1) / PAGE;
        let end = memory_size(0) * PAGE;
        if memory_grow(0, pages) == usize::MAX {
            exhausted(size);
        }
        let end_of_new = end + pages * PAGE;
        if blocks.to == end && size < PAGE {
            // The page follows the one before.
            let from = (blocks.from + size - 1) & !(size - 1);
            blocks.from = from + size;
            blocks.to = end_of_new;
            return from as *mut u8;
        }
        if size < PAGE {
            blocks.from = end + size;
            blocks.to = end_of_new;
        }
        end as *mut u8
    }
}
