//! The demo model inside the program.

include!(concat!(env!("OUT_DIR"), "/demo.rs"));
