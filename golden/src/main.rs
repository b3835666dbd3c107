//! The moss-golden command.

fn main() {}
