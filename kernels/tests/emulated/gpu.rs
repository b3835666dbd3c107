//! Launches on the emulator, and the comparison with the oracle.

use half::bf16;
use moss_emulator::{CodeObject, MatrixModel, Memory, Options, Order};
use moss_kernels::{Launch, LaunchError, code_objects, testing};
use moss_reference::backend::{Backend, HostData};
use moss_reference::oracle::{OracleBackend, OracleTensor};

/// All architectures; one of each generation runs with waves and workgroups in several orders.
const ARCHS: [(&str, &[Order]); 8] = [
    ("gfx1100", &[Order::Forward, Order::Reverse, Order::Shuffle(7)]),
    ("gfx1101", &[Order::Shuffle(1)]),
    ("gfx1102", &[Order::Shuffle(2)]),
    ("gfx1103", &[Order::Shuffle(3)]),
    ("gfx1150", &[Order::Shuffle(4)]),
    ("gfx1151", &[Order::Shuffle(5)]),
    ("gfx1200", &[Order::Forward, Order::Reverse, Order::Shuffle(7)]),
    ("gfx1201", &[Order::Shuffle(6)]),
];

/// An emulated GPU.
pub(crate) struct Gpu {
    pub(crate) arch: &'static str,
    objects: Vec<CodeObject>,
    memory: Memory,
    options: Options,
}

/// Calls `test` for each architecture that is built, and each order.
pub(crate) fn each(test: impl Fn(&Gpu)) {
    let built = testing::built(&ARCHS.map(|(arch, _)| arch));
    for (arch, orders) in ARCHS.into_iter().filter(|(arch, _)| built.contains(arch)) {
        let objects: Vec<&[u8]> = code_objects(arch).map(|built| built.bytes).collect();
        for &order in orders {
            test(&Gpu::new(arch, &objects, order));
        }
    }
}

impl Gpu {
    pub(crate) fn new(arch: &'static str, objects: &[&[u8]], order: Order) -> Self {
        let objects = objects.iter().map(|bytes| CodeObject::load(bytes).expect("a code object")).collect();
        let options = Options { order, model: MatrixModel::FmaChain, ..Options::default() };
        Self { arch, objects, memory: Memory::new(), options }
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) -> u64 {
        self.memory.alloc_from(bytes)
    }

    pub(crate) fn put(&self, data: &HostData) -> u64 {
        match data {
            HostData::Bf16(v) => self.bytes(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
            HostData::F32(v) => self.bytes(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
        }
    }

    pub(crate) fn room(&self, bytes: usize) -> u64 {
        self.memory.alloc(bytes as u64)
    }

    pub(crate) fn run(&self, launches: Result<impl IntoIterator<Item = Launch>, LaunchError>) {
        for launch in launches.unwrap_or_else(|error| panic!("{error}")) {
            self.launch(&launch).unwrap_or_else(|error| {
                panic!("{} {} {:?}: {error}", self.arch, launch.kernel(), self.options.order)
            });
        }
    }

    pub(crate) fn launch(&self, launch: &Launch) -> Result<(), moss_emulator::LaunchError> {
        let kernel = launch.kernel();
        let object = self.objects.iter().find(|object| object.kernel(kernel).is_some());
        let object = object.unwrap_or_else(|| panic!("{}: no kernel {kernel}", self.arch));
        let (grid, block, lds, args) = (launch.grid(), launch.block(), launch.lds(), launch.args());
        moss_emulator::launch(object, kernel, grid, block, lds, args, &self.memory, &self.options).map(drop)
    }

    /// What the device has at `address` must be, bit for bit, what the oracle returned.
    pub(crate) fn check(&self, case: &str, address: u64, expected: &OracleTensor) {
        if let Some(differences) = self.differences(address, expected) {
            panic!("{} {case} {:?}: {differences}", self.arch, self.options.order);
        }
    }

    /// Where the device's bits are not the oracle's.
    pub(crate) fn differences(&self, address: u64, expected: &OracleTensor) -> Option<String> {
        let expected = OracleBackend.download(expected).expect("the oracle");
        let len = expected.len() as u64 * expected.dtype().size() as u64;
        let bytes = self.memory.read(address, len).expect("allocated");
        let actual: Vec<f32> = match expected {
            HostData::Bf16(_) => {
                bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect()
            }
            HostData::F32(_) => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        };
        let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        let expected = expected.to_f32();
        let wrong: Vec<usize> = (0..actual.len()).filter(|&i| !same(&actual[i], &expected[i])).collect();
        let first = *wrong.first()?;
        Some(format!(
            "{} of {} elements differ, first {first}: {:e}, expected {:e}; {:?}",
            wrong.len(),
            actual.len(),
            actual[first],
            expected[first],
            &wrong[..wrong.len().min(16)]
        ))
    }
}

/// Random numbers (PCG-XSH-RR of a fixed seed).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    fn next(&mut self) -> u32 {
        let old = self.0;
        self.0 = old.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((((old >> 18) ^ old) >> 27) as u32).rotate_right((old >> 59) as u32)
    }

    /// About normal, standard deviation `scale`.
    fn normal(&mut self, scale: f32) -> f32 {
        let sum: f64 = (0..6).map(|_| f64::from(self.next()) / f64::from(u32::MAX) - 0.5).sum();
        (sum * std::f64::consts::SQRT_2) as f32 * scale
    }

    pub(crate) fn bf16(&mut self, len: usize, scale: f32) -> HostData {
        HostData::Bf16((0..len).map(|_| bf16::from_f32(self.normal(scale))).collect())
    }

    /// `x` `[tokens, k]` and `w` `[n, k]` whose first and last products are large and cancel, so that the order in which the
    /// others are added shows in the upper bits of the sum.
    pub(crate) fn cancelling(&mut self, tokens: usize, k: usize, n: usize) -> (HostData, HostData) {
        let (mut x, mut w) = (self.bf16(tokens * k, 1.0), self.bf16(n * k, 0.3));
        let (HostData::Bf16(xs), HostData::Bf16(ws)) = (&mut x, &mut w) else { unreachable!() };
        for row in xs.chunks_mut(k) {
            (row[0], row[k - 1]) = (bf16::from_f32(16384.0), bf16::from_f32(-16384.0));
        }
        for row in ws.chunks_mut(k) {
            (row[0], row[k - 1]) = (bf16::ONE, bf16::ONE);
        }
        (x, w)
    }

    pub(crate) fn f32(&mut self, len: usize, scale: f32) -> HostData {
        HostData::F32((0..len).map(|_| self.normal(scale)).collect())
    }
}

/// An operand of the oracle.
pub(crate) fn oracle(data: &HostData, shape: &[usize]) -> OracleTensor {
    OracleBackend.upload(data.clone(), shape).expect("the oracle")
}

pub(crate) fn bf16s(data: &HostData) -> &[bf16] {
    let HostData::Bf16(v) = data else { panic!("bf16 data") };
    v
}

pub(crate) fn f32s(data: &HostData) -> &[f32] {
    let HostData::F32(v) = data else { panic!("f32 data") };
    v
}
