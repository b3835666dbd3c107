//! What a launch consists of, and the typed parameters that it is made from.

/// A launch, ready for a stream. Only the structs of [`crate::args`] make one, after they have checked what the kernel needs;
/// whoever has one can read it, not change it:
///
/// ```
/// let count = moss_kernels::args::ToBf16 { x: 0x1000, out: 0x2000, count: 1000 };
/// let launch = count.launch()?;
/// assert_eq!((launch.kernel(), launch.grid(), launch.block()), ("to_bf16", [4, 1, 1], [256, 1, 1]));
/// # Ok::<(), moss_kernels::LaunchError>(())
/// ```
/// ```compile_fail,E0451
/// moss_kernels::Launch { kernel: "to_bf16", grid: [1; 3], block: [512, 1, 1], lds: 0, args: vec![] };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    kernel: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    lds: u32,
    args: Vec<u8>,
}

impl Launch {
    /// Name of the kernel in its code object.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// Workgroups in x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a workgroup in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Bytes of dynamic LDS.
    pub fn lds(&self) -> u32 {
        self.lds
    }

    /// The kernel's parameters, laid out as the kernel expects them.
    pub fn args(&self) -> &[u8] {
        &self.args
    }
}

/// A launch that a kernel cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A size outside what the kernel was written for.
    #[error("{kernel}: {what} is {found}, the kernel needs {need}")]
    Size {
        /// The kernel.
        kernel: &'static str,
        /// The parameter or product of parameters.
        what: &'static str,
        /// Its value.
        found: i64,
        /// What it must be.
        need: &'static str,
    },
    /// A missing operand or one that is not aligned for vector access.
    #[error(
        "{kernel}: {operand} is at {address:#x}, the kernel needs an address that is a multiple of {need}, not 0"
    )]
    Address {
        /// The kernel.
        kernel: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its device address.
        address: u64,
        /// Alignment in bytes.
        need: u64,
    },
}

/// Type of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device address.
    Address,
    /// A 32-bit integer.
    I32,
    /// A 32-bit float.
    F32,
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the kernel's source.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Byte of the kernel argument segment.
    pub offset: u32,
}

impl Kind {
    /// Bytes.
    pub fn size(self) -> u32 {
        match self {
            Kind::Address => 8,
            Kind::I32 | Kind::F32 => 4,
        }
    }
}

/// A Rust type that is a kernel parameter.
pub(super) trait Scalar: Copy {
    const KIND: Kind;
    fn put(self, to: &mut Vec<u8>);
}

macro_rules! scalar {
    ($($type:ty: $kind:ident),*) => {$(
        impl Scalar for $type {
            const KIND: Kind = Kind::$kind;
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
scalar!(u64: Address, i32: I32, f32: F32);

/// Declares the parameters of a kernel: a `repr(C)` struct whose bytes are the kernel argument segment.
macro_rules! params {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type),*
        }

        impl $name {
            /// The parameters in order.
            pub fn params() -> Vec<$crate::Param> {
                vec![$($crate::Param {
                    name: stringify!($field),
                    kind: <$type as $crate::args::launch::Scalar>::KIND,
                    offset: std::mem::offset_of!($name, $field) as u32,
                }),*]
            }

            fn bytes(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(size_of::<Self>());
                $(
                    bytes.resize(std::mem::offset_of!($name, $field), 0);
                    $crate::args::launch::Scalar::put(self.$field, &mut bytes);
                )*
                bytes
            }
        }
    };
}
pub(super) use params;

/// Checks of one launch.
pub(super) struct Check(pub(super) &'static str);

impl Check {
    /// `found` must satisfy `ok`.
    pub(super) fn size(
        &self,
        ok: bool,
        what: &'static str,
        found: impl Into<i64>,
        need: &'static str,
    ) -> Result<(), LaunchError> {
        if ok {
            return Ok(());
        }
        Err(LaunchError::Size { kernel: self.0, what, found: found.into(), need })
    }

    /// A count of at least one.
    pub(super) fn positive(&self, what: &'static str, found: i32) -> Result<(), LaunchError> {
        self.size(found > 0, what, found, "1 or more")
    }

    /// A count that is a multiple of `of`, at least one.
    pub(super) fn multiple(
        &self,
        what: &'static str,
        found: i32,
        of: i32,
        need: &'static str,
    ) -> Result<(), LaunchError> {
        self.size(found > 0 && found % of == 0, what, found, need)
    }

    /// A multiple of 16, at least one and at most `most`.
    pub(super) fn sixteens(
        &self,
        what: &'static str,
        found: i32,
        most: i32,
        need: &'static str,
    ) -> Result<(), LaunchError> {
        self.size(found > 0 && found % 16 == 0 && found <= most, what, found, need)
    }

    /// A code of the kernel's list, which counts from 0.
    pub(super) fn code(&self, what: &'static str, found: i32, all: &[i32]) -> Result<(), LaunchError> {
        self.size(all.contains(&found), what, found, "a code of hip/codes.h")
    }

    /// A switch: 0 or 1.
    pub(super) fn switch(&self, what: &'static str, found: i32) -> Result<(), LaunchError> {
        self.size(matches!(found, 0 | 1), what, found, "0 or 1")
    }

    /// Tokens `first .. first + length` of a segment.
    pub(super) fn segment(&self, first: i32, length: i32) -> Result<(), LaunchError> {
        self.positive("length", length)?;
        self.size(first >= 0, "first", first, "0 or more")
    }

    /// Operands that must be there, at multiples of 16 bytes.
    pub(super) fn operands(&self, operands: &[(&'static str, u64)]) -> Result<(), LaunchError> {
        for &(operand, address) in operands {
            if address == 0 {
                return Err(LaunchError::Address { kernel: self.0, operand, address, need: 16 });
            }
        }
        self.optional(operands)
    }

    /// Operands that may be 0.
    pub(super) fn optional(&self, operands: &[(&'static str, u64)]) -> Result<(), LaunchError> {
        for &(operand, address) in operands {
            if address % 16 != 0 {
                return Err(LaunchError::Address { kernel: self.0, operand, address, need: 16 });
            }
        }
        Ok(())
    }

    /// The launch of a kernel with a thread for each of `units`.
    pub(super) fn threads(&self, units: i64, args: Vec<u8>) -> Result<Launch, LaunchError> {
        self.launch([(units + 255) / 256, 1, 1], 256, args)
    }

    /// The launch of a kernel with a wave for each head of each token.
    pub(super) fn waves(&self, tokens: i32, heads: i32, args: Vec<u8>) -> Result<Launch, LaunchError> {
        let rows = i64::from(tokens) * i64::from(heads);
        self.size(rows <= i64::from(i32::MAX), "tokens * heads", rows, "less than 2^31")?;
        self.launch([(rows + 7) / 8, 1, 1], 8 * 32, args)
    }

    /// A grid of workgroups; each dimension must fit the runtime's 32-bit thread count.
    pub(super) fn launch(&self, grid: [i64; 3], threads: u32, args: Vec<u8>) -> Result<Launch, LaunchError> {
        let limits = [i64::from(u32::MAX / threads), 65535, 65535];
        for (i, what) in ["workgroups in x", "workgroups in y", "workgroups in z"].into_iter().enumerate() {
            self.size(0 < grid[i] && grid[i] <= limits[i], what, grid[i], "a size that fits one launch")?;
        }
        let grid = grid.map(|n| n as u32);
        Ok(Launch { kernel: self.0, grid, block: [threads, 1, 1], lds: 0, args })
    }
}

/// `a / b`, rounded up.
pub(super) fn ceil(a: i32, b: i32) -> i64 {
    i64::from(a).div_euclid(i64::from(b)) + i64::from(a % b != 0)
}
