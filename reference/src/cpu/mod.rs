//! The CPU backend: every operation's definition made runnable, fast, with the same bits on every
//! instruction set and for any number of threads.

pub mod simd;
