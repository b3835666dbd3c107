//! `hipDeviceProp_tR0600`: the fields that programs look at, at the offsets of HIP's public header.

use moss_emulator::MatrixModel;

/// Bytes of the structure.
pub(crate) const PROPERTIES: usize = 1472;

/// Marketing name, compute units as HIP counts them (WGPs), and whether the GPU is integrated.
fn card(target: &str) -> (&'static str, i32, bool) {
    match target {
        "gfx1100" => ("AMD Radeon RX 7900 XTX", 48, false),
        "gfx1101" => ("AMD Radeon RX 7800 XT", 30, false),
        "gfx1102" => ("AMD Radeon RX 7600", 16, false),
        "gfx1103" => ("AMD Radeon 780M", 6, true),
        "gfx1150" => ("AMD Radeon 890M", 8, true),
        "gfx1151" => ("AMD Radeon 8060S", 20, true),
        "gfx1200" => ("AMD Radeon RX 9060 XT", 16, false),
        "gfx1201" => ("AMD Radeon RX 9070 XT", 32, false),
        "gfx1036" => ("AMD Radeon Graphics", 1, true),
        _ => ("AMD Radeon", 16, false),
    }
}

/// Whether the target is part of a processor.
pub(crate) fn integrated(target: &str) -> bool {
    card(target).2
}

/// PCI bus of the n-th device.
pub(crate) fn bus(index: usize) -> i32 {
    3 + index as i32
}

/// The structure for a device; its name says that it is emulated, and how matrix products are summed unless as a chain.
pub(crate) fn properties(target: &str, memory: u64, index: usize, model: MatrixModel) -> [u8; PROPERTIES] {
    let mut out = [0u8; PROPERTIES];
    let (name, units, integrated) = card(target);
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let sums = if model == MatrixModel::FmaChain { String::new() } else { format!(", {}", model.name()) };
    put(0, format!("{name} (emulated{sums})").as_bytes());
    put(256, format!("emulated-{target:>7}").as_bytes().get(..16).unwrap_or_default());
    put(288, &memory.to_ne_bytes());
    put(296, &65536u64.to_ne_bytes());
    put(312, &(i32::MAX as u64).to_ne_bytes());
    put(352, &(i32::MAX as u64).to_ne_bytes());
    put(640, &65536u64.to_ne_bytes());
    put(1416, &65536u64.to_ne_bytes());
    let digits = target.trim_start_matches("gfx");
    let (major, rest) = digits.split_at(digits.len().saturating_sub(2));
    let number = |text: &str, radix| i32::from_str_radix(text, radix).unwrap_or(0);
    for (at, value) in [
        (304, 65536),
        (308, 32),
        (320, 1024),
        (324, 1024),
        (328, 1024),
        (332, 1024),
        (336, i32::MAX),
        (340, 65535),
        (344, 65535),
        (348, 2_500_000),
        (360, number(major, 10)),
        (364, number(rest.get(..1).unwrap_or("0"), 16)),
        (384, 1),
        (388, units),
        (396, i32::from(integrated)),
        (400, 1),
        (576, 1),
        (584, bus(index)),
        (588, 0),
        (592, 0),
        (600, 2),
        (604, 1),
        (616, 4 << 20),
        (624, 2048),
        (1424, 100_000),
    ] {
        put(at, &value.to_ne_bytes());
    }
    put(1160, target.as_bytes());
    out
}
