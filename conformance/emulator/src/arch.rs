//! The eight targets and the two instruction encodings they share.

use std::fmt;

/// Instruction encoding generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gen {
    /// RDNA3 and RDNA3.5.
    Gfx11,
    /// RDNA4.
    Gfx12,
}

/// A target that the emulator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// Target name as the compiler spells it, `gfx1200`.
    pub name: &'static str,
    /// `EF_AMDGPU_MACH` of the code object's ELF flags.
    pub mach: u32,
    /// Encoding.
    pub generation: Gen,
}

/// Every target, in the order of the release's kernel table.
pub const ARCHS: [Arch; 8] = [
    Arch { name: "gfx1100", mach: 0x41, generation: Gen::Gfx11 },
    Arch { name: "gfx1101", mach: 0x46, generation: Gen::Gfx11 },
    Arch { name: "gfx1102", mach: 0x47, generation: Gen::Gfx11 },
    Arch { name: "gfx1103", mach: 0x44, generation: Gen::Gfx11 },
    Arch { name: "gfx1150", mach: 0x43, generation: Gen::Gfx11 },
    Arch { name: "gfx1151", mach: 0x4a, generation: Gen::Gfx11 },
    Arch { name: "gfx1200", mach: 0x48, generation: Gen::Gfx12 },
    Arch { name: "gfx1201", mach: 0x4e, generation: Gen::Gfx12 },
];

impl Arch {
    /// The target of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        ARCHS.into_iter().find(|a| a.name == name)
    }

    /// The target of that `EF_AMDGPU_MACH` number.
    pub fn by_mach(mach: u32) -> Option<Self> {
        ARCHS.into_iter().find(|a| a.mach == mach)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
