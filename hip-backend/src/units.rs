//! Sizes for people.

/// A size for messages: GiB with two digits, MiB with one below 64 MiB, bytes below 64 KiB.
pub fn human(bytes: u64) -> String {
    match bytes {
        0..0x1_0000 => format!("{bytes} bytes"),
        0x1_0000..0x400_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_shows_them() {
        let found = [0, 65_535, 65_536, (64 << 20) - 1, 64 << 20, 6 << 30].map(human);
        assert_eq!(found, ["0 bytes", "65535 bytes", "0.1 MiB", "64.0 MiB", "0.06 GiB", "6.00 GiB"]);
    }
}
