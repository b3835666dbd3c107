//! 32-bit integers and bits.

use super::{
    operand::T,
    trial::{Form, X, check},
};
use crate::inst::mods::CLAMP;

use T::{Mask, U32};

fn u1(name: &str, f: fn(u32) -> u32) -> Form {
    Form::new(name, &[U32], U32, move |x| f(x.u()[0]).into())
}

fn u2(name: &str, f: fn(u32, u32) -> u32) -> Form {
    Form::new(name, &[U32; 2], U32, move |x| f(x.u()[0], x.u()[1]).into())
}

fn u3(name: &str, f: fn(u32, u32, u32) -> u32) -> Form {
    Form::new(name, &[U32; 3], U32, move |x| {
        let [a, b, c] = x.u();
        f(a, b, c).into()
    })
}

fn i2(name: &str, f: fn(i64, i64) -> i64) -> Form {
    Form::new(name, &[U32; 2], U32, move |x| f(x.i()[0].into(), x.i()[1].into()) as u64)
}

fn i3(name: &str, f: fn(i32, i32, i32) -> i32) -> Form {
    Form::new(name, &[U32; 3], U32, move |x| {
        let [a, b, c] = x.i();
        f(a, b, c) as u64
    })
}

/// The low `n` bits with their sign.
fn signed(x: u32, n: u32) -> i64 {
    let v = i64::from(x) & ((1 << n) - 1);
    if v >> (n - 1) & 1 == 1 { v - (1 << n) } else { v }
}

fn s24(x: i64) -> i64 {
    signed(x as u32, 24)
}

fn u24(x: u32) -> u64 {
    u64::from(x % (1 << 24))
}

fn bytes(x: u32) -> [i64; 4] {
    x.to_le_bytes().map(i64::from)
}

fn differences(a: u32, b: u32, counted: impl Fn(i64) -> bool) -> u32 {
    let pairs = bytes(a).into_iter().zip(bytes(b));
    pairs.filter(|&(_, b)| counted(b)).map(|(a, b)| (a - b).unsigned_abs() as u32).sum()
}

fn permuted(a: u32, b: u32, select: u32) -> u32 {
    let data: Vec<u8> = b.to_le_bytes().into_iter().chain(a.to_le_bytes()).collect();
    u32::from_le_bytes(select.to_le_bytes().map(|s| match s {
        0..=7 => data[usize::from(s)],
        8..=11 => {
            if data[2 * usize::from(s) - 15] >= 128 {
                255
            } else {
                0
            }
        }
        12 => 0,
        _ => 255,
    }))
}

fn position(bits: impl Iterator<Item = u32>) -> u32 {
    let mut bits = bits;
    bits.position(|b| b == 1).map_or(u32::MAX, |n| n as u32)
}

fn one() -> Vec<Form> {
    vec![
        u1("v_mov_b32", |a| a),
        u1("v_not_b32", |a| a ^ u32::MAX),
        u1("v_bfrev_b32", |a| (0..32).fold(0, |m, n| m | (a >> n & 1) << (31 - n))),
        u1("v_clz_i32_u32", |a| position((0..32).map(|n| a >> (31 - n) & 1))),
        u1("v_ctz_i32_b32", |a| position((0..32).map(|n| a >> n & 1))),
        u1("v_cls_i32", |a| {
            let differs = position((1..32).map(|n| (a >> (31 - n) ^ a >> 31) & 1));
            if differs == u32::MAX { differs } else { differs + 1 }
        }),
    ]
}

fn two() -> Vec<Form> {
    let saturating = |name: &str, wrap: fn(i64, i64) -> i64, bounds: [i64; 2], sign: bool| {
        Form::new(name, &[U32; 2], U32, move |x| {
            let [a, b, _] = x.u().map(|v| if sign { i64::from(v as i32) } else { v.into() });
            let v = wrap(a, b);
            (if x.clamp { v.clamp(bounds[0], bounds[1]) } else { v }) as u64
        })
        .with(CLAMP)
    };
    let (unsigned, int) = ([0, 0xffff_ffff], [-0x8000_0000, 0x7fff_ffff]);
    vec![
        saturating("v_add_nc_u32", |a, b| a + b, unsigned, false),
        saturating("v_sub_nc_u32", |a, b| a - b, unsigned, false),
        saturating("v_subrev_nc_u32", |a, b| b - a, unsigned, false),
        saturating("v_add_nc_i32", |a, b| a + b, int, true),
        saturating("v_sub_nc_i32", |a, b| a - b, int, true),
        i2("v_mul_i32_i24", |a, b| s24(a) * s24(b)),
        i2("v_mul_hi_i32_i24", |a, b| (s24(a) * s24(b)) >> 32),
        u2("v_mul_u32_u24", |a, b| (u24(a) * u24(b)) as u32),
        u2("v_mul_hi_u32_u24", |a, b| ((u24(a) * u24(b)) >> 32) as u32),
        u2("v_mul_lo_u32", |a, b| (u64::from(a) * u64::from(b)) as u32),
        u2("v_mul_hi_u32", |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        i2("v_mul_hi_i32", |a, b| (a * b) >> 32),
        i2("v_min_i32", |a, b| if a < b { a } else { b }),
        i2("v_max_i32", |a, b| if a >= b { a } else { b }),
        u2("v_min_u32", |a, b| if a < b { a } else { b }),
        u2("v_max_u32", |a, b| if a >= b { a } else { b }),
        u2("v_lshlrev_b32", |a, b| (u64::from(b) << (a % 32)) as u32),
        u2("v_lshrrev_b32", |a, b| (u64::from(b) >> (a % 32)) as u32),
        i2("v_ashrrev_i32", |a, b| b >> (a & 31)),
        u2("v_and_b32", |a, b| a & b),
        u2("v_or_b32", |a, b| a | b),
        u2("v_xor_b32", |a, b| a ^ b),
        u2("v_xnor_b32", |a, b| a ^ b ^ u32::MAX),
        u2("v_bfm_b32", |a, b| (((1u64 << (a % 32)) - 1) << (b % 32)) as u32),
        u2("v_bcnt_u32_b32", |a, b| (0..32).map(|n| a >> n & 1).sum::<u32>().wrapping_add(b)),
        Form::new("v_mbcnt_lo_u32_b32", &[U32; 2], U32, |x| {
            let below = (0..x.lane).map(|n| x.s[0] >> n & 1).sum::<u64>();
            below + x.s[1]
        }),
        u2("v_mbcnt_hi_u32_b32", |_, b| b),
        u2("v_cvt_pk_u16_u32", |a, b| a.min(65535) | b.min(65535) << 16),
        i2("v_cvt_pk_i16_i32", |a, b| {
            let hold = |x: i64| x.clamp(-32768, 32767) & 0xffff;
            hold(a) | hold(b) << 16
        }),
    ]
}

fn three() -> Vec<Form> {
    vec![
        i3("v_mad_i32_i24", |a, b, c| (s24(a.into()) * s24(b.into()) + i64::from(c)) as i32),
        u3("v_mad_u32_u24", |a, b, c| (u24(a) * u24(b)).wrapping_add(c.into()) as u32),
        u3("v_bfe_u32", |a, b, c| {
            let field = (u64::from(a) >> (b % 32)) & ((1 << (c % 32)) - 1);
            field as u32
        }),
        u3("v_bfe_i32", |a, b, c| {
            // The value continues with its sign beyond bit 31.
            let field = (i64::from(a as i32) >> (b % 32)) as u32;
            if c % 32 == 0 { 0 } else { signed(field, c % 32) as u32 }
        }),
        u3("v_bfi_b32", |a, b, c| (0..32).fold(0, |m, n| m | (if a >> n & 1 == 1 { b } else { c }) & 1 << n)),
        u3("v_lerp_u8", |a, b, c| {
            let sum = |n: usize| (bytes(a)[n] + bytes(b)[n] + (bytes(c)[n] & 1)) / 2;
            u32::from_le_bytes(std::array::from_fn(|n| sum(n) as u8))
        }),
        u3("v_alignbit_b32", |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c % 32)) as u32),
        u3("v_alignbyte_b32", |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c % 4))) as u32),
        i3("v_min3_i32", |a, b, c| a.min(b).min(c)),
        i3("v_max3_i32", |a, b, c| a.max(b).max(c)),
        u3("v_min3_u32", |a, b, c| a.min(b).min(c)),
        u3("v_max3_u32", |a, b, c| a.max(b).max(c)),
        i3("v_med3_i32", |a, b, c| {
            let mut v = [a, b, c];
            v.sort_unstable();
            v[1]
        }),
        u3("v_med3_u32", |a, b, c| {
            let mut v = [a, b, c];
            v.sort_unstable();
            v[1]
        }),
        u3("v_maxmin_u32", |a, b, c| a.max(b).min(c)),
        u3("v_minmax_u32", |a, b, c| a.min(b).max(c)),
        i3("v_maxmin_i32", |a, b, c| a.max(b).min(c)),
        i3("v_minmax_i32", |a, b, c| a.min(b).max(c)),
        u3("v_sad_u8", |a, b, c| c.wrapping_add(differences(a, b, |_| true))),
        u3("v_sad_hi_u8", |a, b, c| c.wrapping_add(differences(a, b, |_| true) << 16)),
        u3("v_msad_u8", |a, b, c| c.wrapping_add(differences(a, b, |b| b != 0))),
        u3("v_sad_u16", |a, b, c| {
            let part =
                |s: u32| (i64::from(a >> s & 0xffff) - i64::from(b >> s & 0xffff)).unsigned_abs() as u32;
            c.wrapping_add(part(0)).wrapping_add(part(16))
        }),
        u3("v_sad_u32", |a, b, c| c.wrapping_add((i64::from(a) - i64::from(b)).unsigned_abs() as u32)),
        u3("v_xor3_b32", |a, b, c| a ^ b ^ c),
        u3("v_perm_b32", permuted),
        u3("v_xad_u32", |a, b, c| (u64::from(a ^ b) + u64::from(c)) as u32),
        u3("v_lshl_add_u32", |a, b, c| (u64::from(a) << (b % 32)).wrapping_add(c.into()) as u32),
        u3("v_add_lshl_u32", |a, b, c| ((u64::from(a) + u64::from(b)) << (c % 32)) as u32),
        u3("v_add3_u32", |a, b, c| (u64::from(a) + u64::from(b) + u64::from(c)) as u32),
        u3("v_lshl_or_b32", |a, b, c| (u64::from(a) << (b % 32)) as u32 | c),
        u3("v_and_or_b32", |a, b, c| a & b | c),
        u3("v_or3_b32", |a, b, c| a | b | c),
    ]
}

/// Sums with a carry: the value and the lane's bit of the scalar result.
fn carries() -> Vec<Form> {
    let form = |name: &str, with: bool, f: fn(i64, i64) -> i64| {
        let sources: &[T] = if with { &[U32, U32, Mask] } else { &[U32, U32] };
        let total = move |x: &X| {
            let carry = i64::from(with && x.bit(2));
            let v = f(x.s[0] as i64, x.s[1] as i64);
            // A borrow is taken where the form subtracts.
            if f(1, 0) + f(0, 1) == 2 { v + carry } else { v - carry }
        };
        Form::new(name, sources, U32, move |x| total(x) as u64)
            .carry(move |x| !(0..1 << 32).contains(&total(x)))
    };
    vec![
        form("v_add_co_u32", false, |a, b| a + b),
        form("v_sub_co_u32", false, |a, b| a - b),
        form("v_subrev_co_u32", false, |a, b| b - a),
        form("v_add_co_ci_u32", true, |a, b| a + b),
        form("v_sub_co_ci_u32", true, |a, b| a - b),
        form("v_subrev_co_ci_u32", true, |a, b| b - a),
    ]
}

pub(super) fn forms() -> Vec<Form> {
    [one(), two(), three(), carries()].into_iter().flatten().collect()
}

#[test]
fn integer_forms() {
    check(&forms());
}
