//! Kernels compiled by clang-19 and run on the emulator. They need clang-19 and llvm-19 installed.

mod basic;
mod bugs;
mod command;
mod common;
mod decoder;
mod gemm;
mod instructions;
mod sanitizer;
