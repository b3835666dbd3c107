//! `moss --list-devices`: the GPUs, and whether each can be used.

use moss_hip::{Error, Host, Listing};
use serde::Serialize;

use crate::error::{CliError, Result};
use crate::say;

/// The answer to `moss --list-devices --json`.
#[derive(Serialize)]
struct Devices {
    /// The loaded runtime and its version; none when there is none.
    runtime: Option<String>,
    devices: Vec<Device>,
}

/// A GPU.
#[derive(Serialize)]
struct Device {
    /// What `--device` takes.
    index: i32,
    name: String,
    arch: String,
    pci: String,
    compute_units: i32,
    memory_bytes: u64,
    integrated: bool,
    /// Whether a run takes it by itself.
    default: bool,
    /// The kernel sets that `--backend-impl` takes; empty when it cannot be used.
    kernels: Vec<&'static str>,
    /// Why it cannot be used.
    unusable: Option<String>,
}

/// Prints every GPU on stdout, with a `kernels:` line under each that can be used.
///
/// # Errors
/// A failure when there is no runtime or no device.
pub(crate) fn run(json: bool) -> Result<()> {
    match moss_hip::list_devices(&Host::current()) {
        Ok(listing) if json => say::json(&devices(&listing)),
        Ok(listing) => say::out(&listing.to_string()),
        Err(error) => {
            let none = matches!(
                error,
                Error::NoDevice { .. }
                    | Error::NoDriver { .. }
                    | Error::NoPermission { .. }
                    | Error::Hidden { .. }
            );
            if json {
                say::json(&Devices { runtime: None, devices: Vec::new() })?;
            } else if none {
                say::out("no HIP devices\n")?;
            }
            Err(CliError::failed("--list-devices", error))
        }
    }
}

fn devices(listing: &Listing) -> Devices {
    let device = |(i, listed): (usize, &moss_hip::Listed)| Device {
        index: listed.device.index,
        name: listed.device.name.clone(),
        arch: listed.device.arch.clone(),
        pci: listed.device.pci.clone(),
        compute_units: listed.device.compute_units,
        memory_bytes: listed.device.memory,
        integrated: listed.device.is_integrated(),
        default: listing.default == Some(i),
        kernels: listed.kernels.clone().unwrap_or_default(),
        unusable: listed.kernels.clone().err(),
    };
    Devices {
        runtime: Some(listing.runtime.clone()),
        devices: listing.devices.iter().enumerate().map(device).collect(),
    }
}
