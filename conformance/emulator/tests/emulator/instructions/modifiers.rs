//! Modifiers: an instruction follows each as the documents say, or stops with its name.

use half::f16;
use moss_emulator::{CodeObject, LaunchError, Memory, Options, What};

use super::{In, Result_::*, case, case2, check};
use crate::common::{Args, BOTH, compile_source, put_u32};

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// Clamped, a NaN to 0: what DX10_CLAMP, which the compiler sets, asks for.
fn unit(x: f64) -> u64 {
    if x > 0.0 { x.min(1.0).to_bits() } else { 0 }
}

#[test]
fn a_field_beyond_the_value_repeats_its_sign() {
    let cases = [
        case("v_bfe_i32 %0, %1, 31, 17", U32, |i| if i.i()[0] < 0 { u32::MAX.into() } else { 0 }),
        case("v_bfe_i32 %0, %1, 24, 20", U32, |i| (i.i()[0] >> 24) as u32 as u64),
        case("v_bfe_i32 %0, %1, 4, 5", U32, |i| (i.i()[0] << 23 >> 27) as u32 as u64),
    ];
    check("bfe_sign", &cases, |_| true);
}

#[test]
fn clamp_of_conversions_and_f64() {
    let cases = [
        case("v_cvt_f64_i32_e64 %0, %1 clamp", F64, |i| unit(i.i()[0].into())),
        case("v_cvt_f64_u32_e64 %0, %1 clamp", F64, |i| unit(i.u()[0].into())),
        case("v_cvt_f64_f32_e64 %0, -%1 clamp", F64, |i| unit((-i.f()[0]).into())),
        case("v_ldexp_f64 %0, %4, -2 clamp", F64, |i| unit(i.f64s()[0] / 4.0)),
        case("v_add_f64 %0, %4, -%5 clamp", F64, |i| unit(i.f64s()[0] - i.f64s()[1])),
        // inf - inf and every NaN among the inputs.
        case("v_fma_f64 %0, %4, %5, %6 clamp", F64, |i| unit(i.f64s()[0].mul_add(i.f64s()[1], i.f64s()[2]))),
    ];
    check("clamp64", &cases, |_| true);
    let down = [case("v_cvt_f32_f64_e64 %0, |%4| clamp", F32, |i| {
        let x = i.f64s()[0].abs() as f32;
        if x > 0.0 { bits(x.min(1.0)) } else { 0 }
    })];
    check("clamp_down", &down, |_| true);
}

#[test]
fn clamp_saturates_integers() {
    let halves = |i: In| [i.a, i.b].map(|x| [x as u16, (x >> 16) as u16]);
    let both = move |i: In, f: fn(u16, u16) -> u16| {
        let [a, b] = halves(i);
        u64::from(f(a[0], b[0])) | u64::from(f(a[1], b[1])) << 16
    };
    let add: fn(u16, u16) -> u16 = |a, b| (a as i16).saturating_add(b as i16) as u16;
    let sub: fn(u16, u16) -> u16 = |a, b| (a as i16).saturating_sub(b as i16) as u16;
    let low = |i: In, x: u16| (i.d & 0xffff_0000) | u64::from(x);
    let cases = [
        case("v_add_nc_u16 %0, %1, %2 clamp", U32, move |i| low(i, i.h()[0].saturating_add(i.h()[1]))),
        case("v_sub_nc_u16 %0, %1, %2 clamp", U32, move |i| low(i, i.h()[0].saturating_sub(i.h()[1]))),
        case("v_add_nc_i16 %0, %1, %2 clamp", U32, move |i| low(i, add(i.h()[0], i.h()[1]))),
        case("v_sub_nc_i16 %0, %1, %2 clamp", U32, move |i| low(i, sub(i.h()[0], i.h()[1]))),
        case("v_pk_add_u16 %0, %1, %2 clamp", U32, move |i| both(i, u16::saturating_add)),
        case("v_pk_sub_u16 %0, %1, %2 clamp", U32, move |i| both(i, u16::saturating_sub)),
        case("v_pk_add_i16 %0, %1, %2 clamp", U32, move |i| both(i, add)),
        case("v_pk_sub_i16 %0, %1, %2 clamp", U32, move |i| both(i, sub)),
    ];
    check("clamp16", &cases, |_| true);
}

/// Output modifiers are ignored where output denormals are on, and in gfx11's IEEE mode, which the compiler
/// sets. gfx12 has no such mode.
#[test]
fn output_modifiers_depend_on_the_mode() {
    let flush = |x: f32| if x.is_subnormal() { 0.0f32.copysign(x) } else { x };
    let plain = |i: In| bits(i.f()[0] * i.f()[1]);
    let product = move |i: In| flush(i.f()[0]) * flush(i.f()[1]);
    let off = |text: &str| format!("s_denorm_mode 12\n{text}\ns_denorm_mode 15");
    let ieee = |text: &str| {
        format!(
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 0\n{text}\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 1"
        )
    };
    let twice = off("v_mul_f32_e64 %0, %1, %2 mul:2");
    let cases = [
        case("v_mul_f32_e64 %0, %1, %2 mul:2", F32, plain),
        case("v_mul_f32_e64 %0, %1, %2 div:2", F32, plain),
        case2(&twice, "", F32, move |i| bits(flush(product(i)))),
        case2(&ieee(&twice), &twice, F32, move |i| bits(flush(product(i) * 2.0) + 0.0)),
        case2(&ieee(&off("v_mul_f32_e64 %0, %1, %2 div:2")), "", F32, move |i| {
            bits(flush(product(i) * 0.5) + 0.0)
        }),
    ];
    check("omod", &cases, |_| true);
}

#[test]
fn a_selected_half_takes_its_signs() {
    let low = |i: In, x: u16| (i.d & 0xffff_0000) | u64::from(x);
    let cases = [
        case("s_mov_b32 vcc_lo, -1\nv_cndmask_b16 %0, %1, -%2, vcc_lo", U32, move |i| {
            low(i, i.h()[1] ^ 0x8000)
        }),
        case("s_mov_b32 vcc_lo, 0\nv_cndmask_b16 %0, -|%1|, %2, vcc_lo", U32, move |i| {
            low(i, i.h()[0] | 0x8000)
        }),
    ];
    check("cndmask16", &cases, |_| true);
}

#[test]
fn constants_of_packed_halves() {
    let h = |x: u64| f16::from_bits(x as u16);
    let cases = [
        // -1 is 0xffff_ffff, a NaN in both halves; 2 and 1.0 are 0 in the high half.
        case("v_pk_add_f16 %0, %1, -1", F16x2, |_| 0xffff_ffff),
        case("v_pk_add_f16 %0, %1, 1.0", F16x2, move |i| {
            let low = f16::from_f64(h(i.a).to_f64() + 1.0).to_bits();
            u64::from(low) | u64::from((h(i.a >> 16) + f16::ZERO).to_bits()) << 16
        }),
        case("v_pk_add_u16 %0, %1, -1", U32, |i| {
            u64::from((i.a as u16).wrapping_sub(1)) | u64::from(((i.a >> 16) as u16).wrapping_sub(1)) << 16
        }),
    ];
    check("pk_constants", &cases, |_| true);
}

/// gfx11 in IEEE mode, which the compiler sets, gives a quiet NaN; gfx12's MIN_NUM and MAX_NUM drop it.
#[test]
fn minimum_and_maximum_of_a_signalling_nan() {
    for name in ["min", "max"] {
        let quiet = |mnemonic: &str| format!("v_mov_b32 %0, 0x7fc00001\nv_{mnemonic} %0, %0, %1");
        let (old, new) = (format!("{name}_f32"), format!("{name}_num_f32"));
        let cases = [
            case2(&format!("v_{old} %0, 0x7f800001, %1"), "", F32, |_| bits(f32::NAN)),
            case2("", &format!("v_{new} %0, 0x7f800001, %1"), F32, |i| i.a),
            case2(&quiet(&old), &quiet(&new), F32, |i| i.a),
            // The quiet NaN of the first two then loses against the third.
            case2(&format!("v_{name}3_f32 %0, %1, 0x7f800001, %2"), "", F32, |i| i.b),
            case2(&format!("v_{name}_f16 %0, 0x7c01, %1"), "", F16x2, |i| (i.d & 0xffff_0000) | 0x7e00),
        ];
        check(&format!("{name}_snan"), &cases, |i| i.f().into_iter().all(|x| !x.is_nan()));
    }
}

#[test]
fn the_high_half_of_a_scalar_constant() {
    let cases = [
        case2("", "s_cvt_hi_f32_f16 %0, 0.5\ns_cmp_eq_u32 0, 1", S32, |_| 0),
        case2("", "s_cvt_hi_f32_f16 %0, %1\ns_cmp_eq_u32 0, 1", S32, |i| {
            f16::from_bits((i.a >> 16) as u16).to_f32().to_bits().into()
        }),
    ];
    check("cvt_hi", &cases, |i| !f16::from_bits((i.a >> 16) as u16).is_nan());
}

/// Runs one line of assembly that must stop with a name.
fn refused(arch: &str, name: &str, asm: &str) -> String {
    let source = format!(
        "#include \"prelude.h\"\nextern \"C\" __global__ void BOUNDS(32) k(u32 *p) {{\n\
         u32 r = p[TID]; unsigned long long q = r;\n\
         asm volatile(\"{asm}\" : \"+v\"(r), \"+v\"(q) : \"v\"(p[TID]) : \"vcc\");\np[TID] = r + q;\n}}\n"
    );
    let object = CodeObject::load(&std::fs::read(compile_source(name, &source, arch)).expect("compiled"));
    let (object, memory) = (object.expect("loads"), Memory::new());
    let p = put_u32(&memory, &[7; 32]);
    match Args::new().ptr(p).run(&object, "k", [1, 1, 1], [32, 1, 1], &memory, &Options::default()) {
        Err(LaunchError::Fault(f)) => match f.what {
            What::NotEmulated(text) => text,
            other => panic!("{arch} {asm}: {other}"),
        },
        other => panic!("{arch} {asm}: {other:?}"),
    }
}

#[test]
fn what_is_not_followed_is_named() {
    for arch in BOTH {
        for (n, (asm, what)) in [
            ("v_mad_u32_u16 %0, %0, %2, %2 clamp", "v_mad_u32_u16 with clamp"),
            ("v_mad_i32_i16 %0, %0, %2, %2 clamp", "v_mad_i32_i16 with clamp"),
            ("v_cvt_i32_f32_e64 %0, %2 clamp", "v_cvt_i32_f32 with clamp"),
            ("v_mul_u32_u24_e64 %0, %0, %2 clamp", "v_mul_u32_u24 with clamp"),
            ("v_cmp_lt_f32_e64 vcc_lo, %0, %2 clamp", "v_cmp_lt_f32 with clamp"),
            ("v_add_nc_u16 %0, 7, %2 op_sel:[1,0,0]", "v_add_nc_u16 with op_sel of a constant"),
            ("v_add_nc_u16 %0, 0.5, %2", "v_add_nc_u16 with a float constant"),
            ("v_pk_mad_u16 %0, %0, %2, %2 clamp", "v_pk_mad_u16 with clamp"),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(refused(arch, &format!("refused{n}"), asm), what, "{arch}");
        }
    }
}
