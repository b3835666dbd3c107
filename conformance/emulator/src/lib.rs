//! An emulator of the RDNA3 and RDNA4 machine code that moss ships.
//!
//! [`CodeObject::load`] takes what the compiler wrote, [`launch()`] runs a kernel of it over a [`Memory`] and
//! stops at the first wrong access, race, uninitialised value or unknown instruction with a [`Fault`] that
//! names kernel, instruction and lane. What matrix instructions sum is a named [`MatrixModel`]: no public source
//! defines the order that silicon uses, so equality under emulation is no statement about a card.

mod agree;
mod arch;
mod decode;
mod disasm;
mod elf;
mod exec;
mod fault;
#[cfg(test)]
mod formulas;
mod inst;
mod isa;
mod launch;
mod matrix_model;
mod memory;
mod msgpack;
mod npy;
mod numeric;
mod object;

pub use agree::compare_with_objdump;
pub use arch::{ARCHS, Arch, Gen};
pub use decode::{Unknown, decode};
pub use disasm::line;
pub use elf::ObjectError;
pub use fault::{Fault, What};
pub use inst::{Enc, Inst};
pub use launch::{LaunchError, Options, Order, Report, launch, validate};
pub use matrix_model::MatrixModel;
pub use memory::{Memory, NotAllocated};
pub use npy::{Npy, dtype};
pub use object::{Arg, CodeObject, Kernel};
