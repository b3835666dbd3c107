//! Executed forms without a formula here, each with the reason.

use crate::isa::Format;

/// Where a form is tested instead, or why it has no result to test.
pub(super) fn reason(format: Format, name: &str) -> Option<&'static str> {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    match format {
        Format::Ds | Format::Flat | Format::Global | Format::Scratch | Format::Buffer => {
            Some("memory and its atomics: tests/emulator/instructions/{memory,atomics,lanes}.rs")
        }
        Format::Smem => Some("scalar loads: tests/emulator/instructions/scalar.rs and every launch"),
        Format::Vopd => Some("halves of pairs are the vector forms; the pairing is in float.rs"),
        Format::Sopp => {
            Some("control: branches, waits, barriers, modes; tests/emulator/{basic,bugs,sanitizer}.rs")
        }
        _ => match name {
            "v_nop" | "v_pipeflush" | "v_permlane64_b32" | "s_sleep_var" => Some("no result in a wave of 32"),
            "v_dot2acc_f32_f16" => {
                Some("short encoding of v_dot2_f32_f16: tests/emulator/instructions/half.rs")
            }
            "v_div_scale_f32" | "v_div_fmas_f32" => {
                Some("steps of IEEE division, which tests/emulator/basic.rs holds to a / b")
            }
            "s_cvt_hi_f32_f16" => Some("tests/emulator/instructions/modifiers.rs"),
            _ if starts(&["v_readlane", "v_readfirstlane", "v_writelane", "v_permlane"]) => {
                Some("across lanes: tests/emulator/instructions/lanes.rs")
            }
            _ if starts(&["v_wmma_"]) => Some("matrices: tests/emulator/instructions/matrix.rs, gemm.rs"),
            _ if starts(&[
                "s_getpc",
                "s_setpc",
                "s_swappc",
                "s_call",
                "s_barrier",
                "s_waitcnt",
                "s_version",
            ]) =>
            {
                Some("control: tests/emulator/{basic,bugs,sanitizer}.rs and calls in memory.rs")
            }
            _ if starts(&["s_getreg", "s_setreg"]) => {
                Some("the mode: every formula here runs in random modes; modifiers.rs sets it")
            }
            _ => None,
        },
    }
}
