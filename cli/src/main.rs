//! The moss command.

fn main() {}
