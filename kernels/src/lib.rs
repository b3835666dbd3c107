//! HIP kernels, one operation a file, compiled ahead of time for every supported architecture.
//!
//! `hip/` holds the sources; each begins with the formula, the layout and the budget of its kernels. `build.rs` compiles
//! them, one code object a source and architecture, and embeds the code objects: [`code_objects`]. A kernel is launched
//! through its struct in [`args`], which has the kernel's own parameters, checks what the kernel needs of them and returns a
//! [`Launch`]; nothing here touches a device. The feature `nvptx` adds the same kernels as PTX ([`ptx`]). [`pack`] defines the order in which weights lie.

pub mod args;
pub mod check;
pub mod object;
pub mod pack;
mod table;
pub mod testing;

pub use args::{Kind, Launch, LaunchError, Param};
pub use table::{
    ARCHS, Built, COMPILER, Ptx, built_archs, code_objects, compile_command, kernel, kernel_names, ptx,
    why_empty,
};
