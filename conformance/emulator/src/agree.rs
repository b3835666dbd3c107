//! Does the decoder agree with LLVM's disassembler on a whole code object?

use std::{path::Path, process::Command};

use crate::{arch::Arch, decode::decode, elf};

/// Compares length and mnemonic of every instruction that `objdump` (`llvm-objdump-19`) lists for a code
/// object file. Returns how many there were, or a text that names each difference.
pub fn compare_with_objdump(objdump: &str, code_object: &Path) -> Result<usize, String> {
    let bytes = std::fs::read(code_object).map_err(|e| format!("{}: {e}", code_object.display()))?;
    let elf = elf::parse(&bytes).map_err(|e| e.to_string())?;
    let arch = Arch::by_mach(elf.flags & 0xff).ok_or_else(|| "unsupported target".to_owned())?;
    let out = Command::new(objdump)
        .args(["-d", "--no-show-raw-insn"])
        .arg(code_object)
        .output()
        .map_err(|e| format!("{objdump} does not start ({e}); install llvm-19"))?;
    if !out.status.success() {
        return Err(format!("{objdump}: {}", String::from_utf8_lossy(&out.stderr)));
    }
    let (mut count, mut differences) = (0, Vec::new());
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let Some((text, place)) = line.split_once("//") else { continue };
        let Some((_, words)) = place.trim().split_once(':') else { continue };
        let words: Option<Vec<u32>> = words
            .split_whitespace()
            .take_while(|w| !w.starts_with('<'))
            .map(|w| u32::from_str_radix(w, 16).ok())
            .collect();
        let Some(words) = words.filter(|w| !w.is_empty()) else { continue };
        let theirs = mnemonics(text);
        // Zero padding between functions is no instruction.
        if theirs.starts_with(".long") || theirs.is_empty() {
            continue;
        }
        count += 1;
        match decode(arch.generation, &words) {
            Ok(i) if i.len_bytes() == words.len() * 4 && i.mnemonic() == theirs => {}
            Ok(i) => differences.push(format!(
                "{arch}: {} of {} bytes, LLVM says {theirs} of {} bytes: {words:08x?}",
                i.mnemonic(),
                i.len_bytes(),
                words.len() * 4
            )),
            Err(u) => differences.push(format!("{arch}: {}, LLVM says {theirs}: {words:08x?}", u.what)),
        }
    }
    if count == 0 {
        return Err(format!("{objdump} listed no instruction of {}", code_object.display()));
    }
    differences.sort();
    differences.dedup();
    if differences.is_empty() { Ok(count) } else { Err(differences.join("\n")) }
}

/// Mnemonic without encoding suffixes; both of a pair.
fn mnemonics(text: &str) -> String {
    let one = |part: &str| {
        let mut name = part.split_whitespace().next().unwrap_or_default();
        for suffix in ["_e64_dpp", "_dpp", "_e32", "_e64"] {
            name = name.strip_suffix(suffix).unwrap_or(name);
        }
        name.to_owned()
    };
    text.split("::").map(one).collect::<Vec<_>>().join(" :: ")
}
