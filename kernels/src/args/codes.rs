//! Codes of kernels' parameters: what `build.rs` made of `hip/codes.h`, the list that kernels and launches share.

include!(concat!(env!("OUT_DIR"), "/codes.rs"));
