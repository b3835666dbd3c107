//! What instructions do: the wave's state, the workgroup's, and the shapes that opcode rows are made of.

pub(crate) mod atomic;
pub(crate) mod dot;
pub(crate) mod fma;
pub(crate) mod group;
pub(crate) mod lane;
pub(crate) mod lds;
pub(crate) mod mem;
pub(crate) mod scalar;
pub(crate) mod shadow;
pub(crate) mod valu;
pub(crate) mod valu16;
pub(crate) mod valu64;
pub(crate) mod wave;
pub(crate) mod wmma;

use crate::{fault::What, inst::Inst};
use group::Group;
use wave::Wave;

/// A finding and its lane, before the place is known.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) lane: Option<u32>,
    pub(crate) what: What,
}

/// Result of one instruction.
pub(crate) type Flow = Result<(), Box<Hit>>;

/// Stops without a lane.
pub(crate) fn stop<T>(what: What) -> Result<T, Box<Hit>> {
    Err(Box::new(Hit { lane: None, what }))
}

/// Stops at a lane.
#[cold]
pub(crate) fn stop_lane<T>(lane: usize, what: What) -> Result<T, Box<Hit>> {
    Err(Box::new(Hit { lane: Some(lane as u32), what }))
}

/// An instruction that has a name but no meaning here.
pub(crate) fn not_emulated(_: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    stop(What::NotEmulated(i.row.name.to_owned()))
}

/// Instructions without effect on results: waits, hints, cache control.
pub(crate) fn nop(_: &mut Wave, _: &Inst, _: &mut Group<'_>) -> Flow {
    Ok(())
}
