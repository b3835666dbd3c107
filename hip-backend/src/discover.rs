//! The devices of this machine: listing, and which one the program uses.

use std::fmt;

use crate::error::Error;
use crate::host::Host;
use crate::sys::{self, Api, Properties};
use crate::watch;
use moss_reference::memory::human;

/// A device as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number under which the runtime knows it.
    pub index: i32,
    /// Marketing name.
    pub name: String,
    /// Architecture without feature suffixes: `gfx1200`.
    pub arch: String,
    /// Compute units.
    pub compute_units: i32,
    /// Bytes of device memory.
    pub memory: u64,
    /// Lanes of a wave.
    pub warp_size: i32,
    /// Whether the runtime calls it integrated; see [`DeviceInfo::is_integrated`].
    pub integrated: bool,
    /// PCI address, `0000:03:00.0`.
    pub pci: String,
}

/// Architectures that only exist inside a CPU's package.
const INTEGRATED: [&str; 12] = [
    "gfx902", "gfx909", "gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150",
    "gfx1151", "gfx1152", "gfx1153",
];
/// No discrete card of a supported architecture has less memory than this.
const LEAST_DISCRETE: u64 = 4 << 30;

impl DeviceInfo {
    /// Whether it shares the CPU's package and memory. The runtime's flag is wrong on some machines, so the architecture and
    /// the memory's size count too.
    pub fn is_integrated(&self) -> bool {
        self.integrated || INTEGRATED.contains(&self.arch.as_str()) || self.memory < LEAST_DISCRETE
    }

    fn from_properties(index: i32, p: &Properties) -> Self {
        let (domain, bus, device) = p.pci();
        Self {
            index,
            name: p.name(),
            arch: base_arch(&p.arch()),
            compute_units: p.compute_units(),
            memory: p.total_memory(),
            warp_size: p.warp_size(),
            integrated: p.integrated(),
            pci: format!("{domain:04x}:{bus:02x}:{device:02x}.0"),
        }
    }
}

/// An architecture's name without its feature suffixes: `gfx1100` of `gfx1100:sramecc+:xnack-`.
fn base_arch(name: &str) -> String {
    name.split(':').next().unwrap_or("").to_owned()
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}: {} ({}, {} compute unit{}, {}, PCI {}{})",
            self.index,
            self.name,
            self.arch,
            self.compute_units,
            if self.compute_units == 1 { "" } else { "s" },
            human(self.memory),
            self.pci,
            if self.is_integrated() { ", integrated" } else { "" }
        )
    }
}

/// Kernel sets of this build: for each architecture, the names that `--backend-impl` takes, the default first.
pub type KernelSets = [(&'static str, &'static [&'static str])];

/// A device and whether the program can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The device.
    pub device: DeviceInfo,
    /// The kernel sets that fit, or why none does.
    pub kernels: Result<Vec<&'static str>, String>,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernels {
            Ok(sets) => write!(f, "{}\n  kernels: {} ({})", self.device, self.device.arch, sets.join(", ")),
            Err(reason) => write!(f, "{}\n  unusable: {reason}", self.device),
        }
    }
}

/// The answer to `--list-devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The loaded runtime and its version.
    pub runtime: String,
    /// Devices in the runtime's order.
    pub devices: Vec<Listed>,
    /// Index into `devices` of the default.
    pub default: Option<usize>,
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.runtime)?;
        for (i, listed) in self.devices.iter().enumerate() {
            let mark = if self.default == Some(i) { "\n  default" } else { "" };
            writeln!(f, "{listed}{mark}")?;
        }
        Ok(())
    }
}

/// Opens the runtime and asks for its devices.
///
/// # Errors
/// No library, no device, and why.
pub(crate) fn devices(host: &Host) -> Result<(Api, Vec<DeviceInfo>), Error> {
    let api = Api::load(host)?;
    let devices = query(&api, host)?;
    Ok((api, devices))
}

#[allow(unsafe_code)]
fn query(api: &Api, host: &Host) -> Result<Vec<DeviceInfo>, Error> {
    let call = |call: &'static str, code: sys::Code| {
        if code == sys::SUCCESS {
            return Ok(());
        }
        let (name, text) = api.describe(code);
        Err(Error::Call { call, code, name, text, context: String::new() })
    };
    // SAFETY: takes no pointer.
    let code = watch::call("hipInit", || unsafe { (api.functions.init)(0) });
    if code == sys::NO_DEVICE {
        return Err(host.why_no_device(&api.path));
    }
    call("hipInit", code)?;
    let mut count = 0;
    // SAFETY: `count` is a live variable.
    let code = watch::call("hipGetDeviceCount", || unsafe { (api.functions.device_count)(&mut count) });
    if code == sys::NO_DEVICE || (code == sys::SUCCESS && count == 0) {
        return Err(host.why_no_device(&api.path));
    }
    call("hipGetDeviceCount", code)?;
    (0..count)
        .map(|index| {
            let mut properties = Properties::zeroed();
            // SAFETY: `properties` is at least as large as the structure that the function fills.
            let code = watch::call("hipGetDevicePropertiesR0600", || unsafe {
                (api.functions.device_properties)(&mut properties, index)
            });
            call("hipGetDevicePropertiesR0600", code)?;
            Ok(DeviceInfo::from_properties(index, &properties))
        })
        .collect()
}

/// The runtime's path and version, for people.
#[allow(unsafe_code)]
pub(crate) fn runtime(api: &Api) -> String {
    let mut version = 0;
    // SAFETY: `version` is a live variable.
    let code = unsafe { (api.functions.runtime_version)(&mut version) };
    let version = if code == sys::SUCCESS {
        format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
    } else {
        "of unknown version".to_owned()
    };
    format!("HIP runtime {version} ({})", api.path.display())
}

/// Says of each device whether a kernel set of this build fits it.
pub(crate) fn judge(devices: &[DeviceInfo], sets: &KernelSets) -> Vec<Listed> {
    let supported: Vec<&str> = sets.iter().map(|(arch, _)| *arch).collect();
    let kernels = |device: &DeviceInfo| match sets.iter().find(|(arch, _)| *arch == device.arch) {
        None if supported.is_empty() => Err("this build holds no GPU code".to_owned()),
        None => Err(format!("no code for {} in this build, which has {}", device.arch, supported.join(", "))),
        Some(_) if device.warp_size != 32 => Err(format!("waves of {} lanes, not 32", device.warp_size)),
        Some((_, names)) => Ok(names.to_vec()),
    };
    devices.iter().map(|device| Listed { device: device.clone(), kernels: kernels(device) }).collect()
}

/// The default: of the devices that fit, a discrete one, then the most compute units, then the most memory, then the first.
pub(crate) fn default_device(listed: &[Listed]) -> Option<usize> {
    let rank = |l: &Listed| (!l.device.is_integrated(), l.device.compute_units, l.device.memory);
    (0..listed.len())
        .filter(|&i| listed[i].kernels.is_ok())
        .max_by_key(|&i| (rank(&listed[i]), std::cmp::Reverse(i)))
}

/// The device to use and one line for each that was passed over.
///
/// `asked` is `--device`: a number, a PCI address, or a part of the name (case does not count).
///
/// # Errors
/// [`Error::NoSuchDevice`], [`Error::AmbiguousDevice`], or [`Error::Unsupported`] with the reason for every device.
pub(crate) fn choose(
    listed: &[Listed],
    sets: &KernelSets,
    asked: Option<&str>,
) -> Result<(usize, Vec<String>), Error> {
    let supported = || sets.iter().map(|(arch, _)| (*arch).to_owned()).collect();
    let unusable = |l: &Listed| l.kernels.as_ref().err().map(|reason| format!("{}: {reason}", l.device));
    if let Some(asked) = asked {
        let i = find(listed, asked)?;
        return match unusable(&listed[i]) {
            None => Ok((i, Vec::new())),
            Some(reason) => Err(Error::Unsupported { passed_over: vec![reason], supported: supported() }),
        };
    }
    let Some(chosen) = default_device(listed) else {
        let passed_over = listed.iter().filter_map(unusable).collect();
        return Err(Error::Unsupported { passed_over, supported: supported() });
    };
    let best = &listed[chosen].device;
    let reason = |l: &Listed| {
        unusable(l).unwrap_or_else(|| {
            let d = &l.device;
            let why = if d.is_integrated() && !best.is_integrated() {
                "integrated"
            } else if d.compute_units < best.compute_units {
                "fewer compute units"
            } else if d.memory < best.memory {
                "less memory"
            } else {
                "the same, but later in the list"
            };
            format!("{d}: {why}")
        })
    };
    let passed_over = (0..listed.len()).filter(|&i| i != chosen).map(|i| reason(&listed[i])).collect();
    Ok((chosen, passed_over))
}

fn find(listed: &[Listed], asked: &str) -> Result<usize, Error> {
    let all = |which: &[usize]| which.iter().map(|&i| listed[i].device.to_string()).collect();
    let every: Vec<usize> = (0..listed.len()).collect();
    let by = |fit: &dyn Fn(&DeviceInfo) -> bool| -> Vec<usize> {
        every.iter().copied().filter(|&i| fit(&listed[i].device)).collect()
    };
    let fit = match asked.parse::<i32>() {
        Ok(index) => by(&|d| d.index == index),
        Err(_) => {
            let lower = asked.to_lowercase();
            let pci = by(&|d| d.pci == lower || d.pci.strip_prefix("0000:") == Some(&lower));
            let exact = by(&|d| d.name.to_lowercase() == lower);
            let part = by(&|d| d.name.to_lowercase().contains(&lower));
            [pci, exact, part].into_iter().find(|found| !found.is_empty()).unwrap_or_default()
        }
    };
    match fit[..] {
        [one] => Ok(one),
        [] => Err(Error::NoSuchDevice { asked: asked.to_owned(), devices: all(&every) }),
        _ => Err(Error::AmbiguousDevice { asked: asked.to_owned(), devices: all(&fit) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: &KernelSets = &[
        ("gfx1100", &["wmma"]),
        ("gfx1103", &["wmma"]),
        ("gfx1151", &["wmma"]),
        ("gfx1200", &["wmma", "plain"]),
    ];

    fn device(index: i32, name: &str, arch: &str, compute_units: i32, gib: u64) -> DeviceInfo {
        DeviceInfo {
            index,
            name: name.into(),
            arch: arch.into(),
            compute_units,
            memory: gib << 30,
            warp_size: 32,
            integrated: false,
            pci: format!("0000:{:02x}:00.0", index + 3),
        }
    }

    fn machine() -> Vec<Listed> {
        judge(
            &[
                device(0, "AMD Radeon 780M", "gfx1103", 12, 64),
                device(1, "AMD Radeon RX 6800", "gfx1030", 60, 16),
                device(2, "AMD Radeon RX 9060 XT", "gfx1200", 32, 16),
                device(3, "AMD Radeon RX 7900 XTX", "gfx1100", 96, 24),
            ],
            SETS,
        )
    }

    #[test]
    fn capability_comes_before_index_and_memory() {
        let (chosen, passed_over) = choose(&machine(), SETS, None).unwrap();
        assert_eq!(chosen, 3);
        assert_eq!(passed_over.len(), 3);
        assert!(
            passed_over[0].contains("780M") && passed_over[0].ends_with(": integrated"),
            "{passed_over:?}"
        );
        assert!(passed_over[1].contains("no code for gfx1030"), "{passed_over:?}");
        assert!(passed_over[2].ends_with("fewer compute units"), "{passed_over:?}");
    }

    #[test]
    fn one_compute_unit_is_one() {
        assert!(device(0, "a", "gfx1036", 1, 2).to_string().contains("gfx1036, 1 compute unit, "));
        assert!(device(0, "a", "gfx1036", 2, 2).to_string().contains("gfx1036, 2 compute units, "));
    }

    #[test]
    fn an_integrated_gpu_is_known_by_flag_architecture_or_memory() {
        assert!(device(0, "a", "gfx1151", 40, 96).is_integrated());
        assert!(device(0, "a", "gfx1100", 2, 2).is_integrated());
        assert!(!device(0, "a", "gfx1100", 96, 24).is_integrated());
        assert!(DeviceInfo { integrated: true, ..device(0, "a", "gfx1200", 32, 16) }.is_integrated());
        // With nothing else there, it is used.
        let only = judge(&[device(0, "Radeon 8060S", "gfx1151", 40, 96)], SETS);
        assert_eq!(choose(&only, SETS, None).unwrap(), (0, vec![]));
    }

    #[test]
    fn equal_cards_are_taken_by_memory_then_in_order() {
        let listed = judge(
            &[
                device(0, "a", "gfx1200", 32, 8),
                device(1, "b", "gfx1200", 32, 16),
                device(2, "c", "gfx1200", 32, 16),
            ],
            SETS,
        );
        let (chosen, passed_over) = choose(&listed, SETS, None).unwrap();
        assert_eq!(chosen, 1);
        assert!(passed_over[0].ends_with("less memory") && passed_over[1].ends_with("later in the list"));
    }

    #[test]
    fn a_device_is_named_by_number_name_or_address() {
        let listed = machine();
        let choose = |asked| choose(&listed, SETS, Some(asked)).map(|(i, _)| i);
        assert_eq!(choose("2").unwrap(), 2);
        assert_eq!(choose("9060 xt").unwrap(), 2);
        assert_eq!(choose("AMD Radeon 780M").unwrap(), 0);
        assert_eq!(choose("0000:06:00.0").unwrap(), 3);
        assert_eq!(choose("06:00.0").unwrap(), 3);
        let text = choose("7").unwrap_err().to_string();
        assert!(text.contains("--device 7: no such device") && text.contains("RX 7900 XTX"), "{text}");
        let text = choose("radeon rx").unwrap_err().to_string();
        assert!(
            text.contains("fits several") && text.contains("RX 6800") && !text.contains("780M"),
            "{text}"
        );
        let text = choose("1").unwrap_err().to_string();
        assert!(text.contains("gfx1030") && text.contains("code for gfx1100, gfx1103"), "{text}");
    }

    #[test]
    fn no_supported_device_names_each_and_the_list() {
        let listed = judge(&[device(0, "Vega", "gfx900", 64, 8), device(1, "MI", "gfx90a", 104, 64)], SETS);
        let text = choose(&listed, SETS, None).unwrap_err().to_string();
        assert!(text.contains("Vega") && text.contains("MI") && text.contains("gfx1151, gfx1200"), "{text}");
        let none = judge(&[device(0, "RX", "gfx1200", 32, 16)], &[]);
        assert_eq!(none[0].kernels, Err("this build holds no GPU code".into()));
    }

    #[test]
    fn waves_of_64_do_not_run_kernels_of_32() {
        let wide = DeviceInfo { warp_size: 64, ..device(0, "RX", "gfx1200", 32, 16) };
        assert!(judge(&[wide], SETS)[0].kernels.as_ref().unwrap_err().contains("64 lanes"));
    }

    #[test]
    fn the_listing_has_a_kernels_line_under_each_usable_device() {
        let devices = machine();
        let listing =
            Listing { runtime: "HIP runtime 7.0.1 (x)".into(), default: default_device(&devices), devices };
        let text = listing.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "HIP runtime 7.0.1 (x)");
        assert_eq!(lines[2], "  kernels: gfx1103 (wmma)");
        assert_eq!(
            lines[3],
            "device 1: AMD Radeon RX 6800 (gfx1030, 60 compute units, 16.00 GiB, PCI 0000:04:00.0)"
        );
        assert!(lines[4].starts_with("  unusable: no code for gfx1030"));
        assert_eq!(lines[6], "  kernels: gfx1200 (wmma, plain)");
        assert_eq!(lines[9], "  default");
    }

    #[test]
    fn feature_suffixes_are_cut() {
        assert_eq!(base_arch("gfx1100:sramecc+:xnack-"), "gfx1100");
        assert_eq!(base_arch("gfx1201"), "gfx1201");
    }
}
