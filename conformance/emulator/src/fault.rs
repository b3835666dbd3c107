//! What stops a launch, with the place it happened.

use std::fmt;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// A global access that touches no allocation.
    #[error("{access} of {size} bytes at {address:#x}, which is in no allocation ({nearest})")]
    Unmapped {
        /// `load`, `store` or `atomic`.
        access: &'static str,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The nearest allocation and the distance to it.
        nearest: String,
    },
    /// A write to code or constants.
    #[error("write of {size} bytes at {address:#x}, which is read-only")]
    ReadOnly {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
    },
    /// LDS access beyond what the launch has.
    #[error("LDS access of {size} bytes at offset {offset}, beyond the workgroup's {limit} bytes")]
    LdsBounds {
        /// Byte offset.
        offset: u32,
        /// Bytes.
        size: u32,
        /// Static and dynamic LDS of the launch, bytes.
        limit: u32,
    },
    /// Scratch access beyond the lane's private segment.
    #[error("scratch access of {size} bytes at offset {offset}, beyond the lane's {limit} bytes")]
    ScratchBounds {
        /// Byte offset.
        offset: i64,
        /// Bytes.
        size: u32,
        /// Bytes a lane.
        limit: u32,
    },
    /// An address that its access width does not divide.
    #[error("misaligned {space} access of {size} bytes at {address:#x}")]
    Misaligned {
        /// `global`, `LDS`, `scratch` or `scalar`.
        space: &'static str,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
    },
    /// LDS bytes that nobody wrote.
    #[error("read of LDS offset {offset} that no wave has written")]
    LdsUninitialised {
        /// Byte offset.
        offset: u32,
    },
    /// Two waves touch the same LDS without a barrier between.
    #[error(
        "LDS race at offset {offset}: this {access} of wave {wave} and an earlier {other} have no barrier between"
    )]
    LdsRace {
        /// Byte offset.
        offset: u32,
        /// `read`, `write` or `atomic`.
        access: &'static str,
        /// The wave that stops here.
        wave: u32,
        /// The earlier access and its wave.
        other: String,
    },
    /// Two waves or workgroups touch the same global memory, and nothing orders them.
    #[error("race at {address:#x}: this {access} and an earlier {other} are not ordered")]
    GlobalRace {
        /// First byte that both touch, at most one before it.
        address: u64,
        /// `read`, `write` or `atomic`.
        access: &'static str,
        /// The earlier access and who did it. With several threads it depends on them which of two
        /// workgroups comes first.
        other: String,
    },
    /// A scalar register that was never written.
    #[error("read of {register}, which was never written")]
    SgprUninitialised {
        /// `s5`, `vcc_lo` ...
        register: String,
    },
    /// A vector register whose value depends on one that was never written.
    #[error("use of v{register}, which was never written, as {used_as}")]
    VgprUninitialised {
        /// Register number.
        register: u32,
        /// `address`, `store data`, `comparison` ...
        used_as: &'static str,
    },
    /// WMMA operand of gfx11 without the repeated half.
    #[error("WMMA operand v{register}: lanes 16-31 do not repeat lanes 0-15 (lane {lane} differs)")]
    WmmaNotRepeated {
        /// Register number.
        register: u32,
        /// First lane of the upper half that differs.
        lane: u32,
    },
    /// A matrix instruction while some lanes are off, for which no document says what it does.
    #[error("WMMA with lanes switched off (EXEC is {exec:#010x})")]
    WmmaInactive {
        /// The active lanes.
        exec: u32,
    },
    /// Waves ended while others wait.
    #[error("barrier not reached by all waves: waves {waiting:?} wait, waves {ended:?} have ended")]
    Barrier {
        /// Waves at the barrier.
        waiting: Vec<u32>,
        /// Waves that ended.
        ended: Vec<u32>,
    },
    /// A second arrival before the first phase completed.
    #[error("barrier signalled again before it was waited for")]
    BarrierTwice,
    /// The instruction budget is spent.
    #[error("still running after {budget} instructions of this wave")]
    Budget {
        /// Instructions a wave may execute.
        budget: u64,
    },
    /// Words that no table has.
    #[error("unknown instruction: {0}")]
    Unknown(String),
    /// A known instruction, or a field of it, that the emulator does not execute.
    #[error("not emulated: {0}")]
    NotEmulated(String),
    /// The program counter left the code.
    #[error("jump to {0:#x}, where no instruction starts")]
    Jump(u64),
}

impl What {
    /// The check that found it, in a few words that hold no numbers.
    pub fn check(&self) -> &'static str {
        match self {
            Self::Unmapped { .. } => "access outside every allocation",
            Self::ReadOnly { .. } => "write to constants",
            Self::LdsBounds { .. } => "LDS access out of bounds",
            Self::ScratchBounds { .. } => "scratch access out of bounds",
            Self::Misaligned { .. } => "misaligned access",
            Self::LdsUninitialised { .. } => "uninitialised LDS",
            Self::LdsRace { .. } => "LDS race",
            Self::GlobalRace { .. } => "global memory race",
            Self::SgprUninitialised { .. } => "uninitialised scalar register",
            Self::VgprUninitialised { .. } => "uninitialised register",
            Self::WmmaNotRepeated { .. } => "unrepeated half of a WMMA operand",
            Self::WmmaInactive { .. } => "WMMA with lanes switched off",
            Self::Barrier { .. } => "barrier not reached by all waves",
            Self::BarrierTwice => "barrier signalled twice",
            Self::Budget { .. } => "instruction budget",
            Self::Unknown(_) => "unknown instruction",
            Self::NotEmulated(_) => "instruction that is not emulated",
            Self::Jump(_) => "jump out of the code",
        }
    }
}

/// One finding: what, and exactly where.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Fault {
    /// What is wrong.
    pub what: What,
    /// Kernel that was launched.
    pub kernel: String,
    /// Workgroup id x, y, z.
    pub workgroup: [u32; 3],
    /// Wave of the workgroup.
    pub wave: u32,
    /// Lane, where one is to blame.
    pub lane: Option<u32>,
    /// Byte offset of the instruction from the kernel's entry; negative in functions before it.
    pub pc: i64,
    /// Disassembled instruction.
    pub line: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup;
        write!(f, "kernel {} at +{:#x}", self.kernel, self.pc)?;
        write!(f, ", workgroup {x},{y},{z}, wave {}", self.wave)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, ": {}\n    {}", self.what, self.line)
    }
}
