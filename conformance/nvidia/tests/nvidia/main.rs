//! The shared library as a program finds it, over a CUDA driver that is a library of the tests: opened by name, used through
//! HIP's C interface and by the program's own backend, in processes with environments of their own.

#![allow(unsafe_code)]

mod library;
mod machine;
mod program;
mod streams;
