//! Where each lane's first source comes from with DPP16 and DPP8.

use super::Random;

/// A DPP word's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dpp {
    /// DPP_CTRL, or the eight selectors of DPP8.
    control: u32,
    eight: bool,
    row_mask: u32,
    bank_mask: u32,
    bound_control: bool,
    fetch_inactive: bool,
}

/// What a lane reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Lane(usize),
    Zero,
    /// Nothing: the lane is not written.
    Off,
}

impl Dpp {
    pub(super) fn random(r: &mut Random) -> Self {
        let one = 1 + r.below(15);
        let control = match r.below(8) {
            0 => r.below(256),
            1 => 0x100 + one,
            2 => 0x110 + one,
            3 => 0x120 + one,
            4 => 0x140,
            5 => 0x141,
            6 => 0x150 + r.below(16),
            _ => 0x160 + r.below(16),
        };
        let eight = r.one_in(4);
        let mut mask = || if r.one_in(2) { 15 } else { r.below(16) };
        let (row_mask, bank_mask) = (mask(), mask());
        Dpp {
            control: if eight { r.u32() & 0xff_ffff } else { control },
            eight,
            row_mask,
            bank_mask,
            bound_control: r.one_in(2),
            fetch_inactive: r.one_in(2),
        }
    }

    /// Operand code in place of the first source's.
    pub(super) fn code(self) -> u32 {
        match (self.eight, self.fetch_inactive) {
            (true, false) => 233,
            (true, true) => 234,
            _ => 250,
        }
    }

    /// The word after the instruction.
    pub(super) fn word(self, register: u32) -> u32 {
        if self.eight {
            return register | self.control << 8;
        }
        let flags = u32::from(self.fetch_inactive) << 18 | u32::from(self.bound_control) << 19;
        register | self.control << 8 | flags | self.bank_mask << 24 | self.row_mask << 28
    }

    /// Where active lane `l` reads; rows are of 16 lanes, banks of four.
    pub(super) fn source(self, l: usize, exec: u32) -> From {
        if self.eight {
            let from = l / 8 * 8 + (self.control >> (3 * (l % 8)) & 7) as usize;
            return if self.fetch_inactive || exec >> from & 1 == 1 { From::Lane(from) } else { From::Zero };
        }
        if self.row_mask >> (l / 16) & 1 == 0 || self.bank_mask >> (l % 16 / 4) & 1 == 0 {
            return From::Off;
        }
        let (row, n, by) = (l / 16 * 16, l % 16, (self.control & 15) as usize);
        let from = match self.control >> 4 {
            // A permutation of each four.
            0..=15 => Some(l / 4 * 4 + (self.control >> (2 * (l % 4)) & 3) as usize),
            // Shifts left and right, rotation right.
            0x10 => (n + by < 16).then_some(l + by),
            0x11 => (n >= by).then(|| l - by),
            0x12 => Some(row + (n + 16 - by) % 16),
            // The row, or its half, backwards.
            0x14 if by == 0 => Some(row + 15 - n),
            0x14 => Some(row + n / 8 * 8 + 7 - n % 8),
            0x15 => Some(row + by),
            _ => Some(row + (n ^ by)),
        };
        match from {
            Some(from) if self.fetch_inactive || exec >> from & 1 == 1 => From::Lane(from),
            _ if self.bound_control => From::Zero,
            _ => From::Off,
        }
    }
}
