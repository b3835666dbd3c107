//! `hipDeviceProp_tR0600`: the fields that programs look at, at the offsets of HIP's public header.

use std::ffi::{CStr, c_char};

use crate::driver::{Code, Driver, SUCCESS, attribute};

/// Bytes of the structure.
pub(crate) const PROPERTIES: usize = 1472;

/// The structure for a CUDA device that claims to be `arch`; the name says what it is.
///
/// # Errors
/// The driver's code.
pub(crate) fn properties(driver: &Driver, device: i32, arch: &str) -> Result<[u8; PROPERTIES], Code> {
    let check = |code| if code == SUCCESS { Ok(()) } else { Err(code) };
    let mut name = [0 as c_char; 200];
    // SAFETY: the array is as long as the driver is told.
    check(unsafe { (driver.device_name)(name.as_mut_ptr(), name.len() as i32, device) })?;
    // SAFETY: the driver closes the text with a zero byte inside the array.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
    let mut memory = 0usize;
    // SAFETY: `memory` is a live variable.
    check(unsafe { (driver.device_memory)(&mut memory, device) })?;
    let number = |which| attribute_of(driver, device, which);

    let mut out = [0u8; PROPERTIES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, format!("logic check on {name}").as_bytes());
    put(288, &(memory as u64).to_ne_bytes());
    let shared = number(attribute::SHARED_OPT_IN)?;
    put(296, &(shared as u64).to_ne_bytes());
    for (at, value) in [
        (308, number(attribute::WARP_SIZE)?),
        (320, number(attribute::MAX_THREADS_PER_BLOCK)?),
        (388, number(attribute::MULTIPROCESSORS)?),
        (396, number(attribute::INTEGRATED)?),
        (584, number(attribute::PCI_BUS)?),
        (588, number(attribute::PCI_DEVICE)?),
        (592, number(attribute::PCI_DOMAIN)?),
    ] {
        put(at, &value.to_ne_bytes());
    }
    put(1160, arch.as_bytes());
    Ok(out)
}

/// A number that the driver knows about a device.
///
/// # Errors
/// The driver's code.
pub(crate) fn attribute_of(driver: &Driver, device: i32, which: i32) -> Result<i32, Code> {
    let mut value = 0;
    // SAFETY: `value` is a live variable.
    match unsafe { (driver.device_attribute)(&mut value, which, device) } {
        SUCCESS => Ok(value),
        code => Err(code),
    }
}
