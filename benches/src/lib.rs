//! Criterion benches of the host side and of the CPU backend.
