//! Compares into masks and into EXEC.

use super::{Case, In, Result_::*, case, check};

/// 1 where the relation holds, through VCC, through an SGPR, and through EXEC.
fn relation(name: &str, wide: bool, holds: impl Fn(In) -> bool + Copy + 'static) -> Vec<Case> {
    let (a, b) = if wide { ("%4", "%5") } else { ("%1", "%2") };
    let want = move |i: In| u64::from(holds(i));
    let save = "s_mov_b32 s20, exec_lo\nv_mov_b32 %0, 0";
    vec![
        case(&format!("v_cmp_{name} vcc_lo, {a}, {b}\nv_cndmask_b32 %0, 0, 1, vcc_lo"), U32, want),
        case(&format!("v_cmp_{name} s20, {a}, {b}\nv_cndmask_b32 %0, 0, 1, s20"), U32, want),
        case(&format!("{save}\nv_cmpx_{name} {a}, {b}\nv_mov_b32 %0, 1\ns_mov_b32 exec_lo, s20"), U32, want),
    ]
}

macro_rules! floats {
    ($t:literal, $wide:literal, $get:expr) => {{
        let mut out = Vec::new();
        let get = $get;
        out.extend(relation(concat!("lt_", $t), $wide, move |i| get(i).0 < get(i).1));
        out.extend(relation(concat!("eq_", $t), $wide, move |i| get(i).0 == get(i).1));
        out.extend(relation(concat!("le_", $t), $wide, move |i| get(i).0 <= get(i).1));
        out.extend(relation(concat!("gt_", $t), $wide, move |i| get(i).0 > get(i).1));
        out.extend(relation(concat!("ge_", $t), $wide, move |i| get(i).0 >= get(i).1));
        let nan = move |i: In| get(i).0 != get(i).0 || get(i).1 != get(i).1;
        out.extend(relation(concat!("lg_", $t), $wide, move |i| get(i).0 != get(i).1 && !nan(i)));
        out.extend(relation(concat!("o_", $t), $wide, move |i| !nan(i)));
        out.extend(relation(concat!("u_", $t), $wide, nan));
        out.extend(relation(concat!("nlt_", $t), $wide, move |i| nan(i) || get(i).0 >= get(i).1));
        out.extend(relation(concat!("nle_", $t), $wide, move |i| nan(i) || get(i).0 > get(i).1));
        out.extend(relation(concat!("ngt_", $t), $wide, move |i| nan(i) || get(i).0 <= get(i).1));
        out.extend(relation(concat!("nge_", $t), $wide, move |i| nan(i) || get(i).0 < get(i).1));
        out.extend(relation(concat!("neq_", $t), $wide, move |i| nan(i) || get(i).0 != get(i).1));
        out.extend(relation(concat!("nlg_", $t), $wide, move |i| nan(i) || get(i).0 == get(i).1));
        out
    }};
}

macro_rules! ints {
    ($t:literal, $wide:literal, $get:expr) => {{
        let mut out = Vec::new();
        let get = $get;
        out.extend(relation(concat!("lt_", $t), $wide, move |i| get(i).0 < get(i).1));
        out.extend(relation(concat!("eq_", $t), $wide, move |i| get(i).0 == get(i).1));
        out.extend(relation(concat!("le_", $t), $wide, move |i| get(i).0 <= get(i).1));
        out.extend(relation(concat!("gt_", $t), $wide, move |i| get(i).0 > get(i).1));
        out.extend(relation(concat!("ge_", $t), $wide, move |i| get(i).0 >= get(i).1));
        out.extend(relation(concat!("ne_", $t), $wide, move |i| get(i).0 != get(i).1));
        out
    }};
}

#[test]
fn floats() {
    check("compare_f32", &floats!("f32", false, |i: In| (i.f()[0], i.f()[1])), |_| true);
    check("compare_f64", &floats!("f64", true, |i: In| (i.f64s()[0], i.f64s()[1])), |_| true);
    let half = |x: u16| half::f16::from_bits(x).to_f32();
    check("compare_f16", &floats!("f16", false, move |i: In| (half(i.h()[0]), half(i.h()[1]))), |_| true);
}

#[test]
fn integers() {
    check("compare_i32", &ints!("i32", false, |i: In| (i.i()[0], i.i()[1])), |_| true);
    check("compare_u32", &ints!("u32", false, |i: In| (i.u()[0], i.u()[1])), |_| true);
    check("compare_i64", &ints!("i64", true, |i: In| (i.a as i64, i.b as i64)), |_| true);
    check("compare_u64", &ints!("u64", true, |i: In| (i.a, i.b)), |_| true);
    check("compare_i16", &ints!("i16", false, |i: In| (i.h()[0] as i16, i.h()[1] as i16)), |_| true);
    check("compare_u16", &ints!("u16", false, |i: In| (i.h()[0], i.h()[1])), |_| true);
}

#[test]
fn classes() {
    let class = |x: f32, mask: u32| {
        let quiet = x.to_bits() & 0x40_0000 != 0;
        let n = match (x.classify(), x.is_sign_negative()) {
            (std::num::FpCategory::Nan, _) => u32::from(quiet),
            (std::num::FpCategory::Infinite, true) => 2,
            (std::num::FpCategory::Normal, true) => 3,
            (std::num::FpCategory::Subnormal, true) => 4,
            (std::num::FpCategory::Zero, true) => 5,
            (std::num::FpCategory::Zero, false) => 6,
            (std::num::FpCategory::Subnormal, false) => 7,
            (std::num::FpCategory::Normal, false) => 8,
            (std::num::FpCategory::Infinite, false) => 9,
        };
        mask >> n & 1 == 1
    };
    check("class", &relation("class_f32", false, move |i| class(i.f()[0], i.u()[1])), |_| true);
}
