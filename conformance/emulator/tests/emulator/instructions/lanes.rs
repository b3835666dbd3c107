//! Instructions across lanes: DPP, permutes, swizzles, lane reads and writes.
//!
//! Every lane holds its own number times 3 plus 100, so results tell where they came from.

use moss_emulator::{CodeObject, Memory, Options};

use crate::common::{Args, BOTH, compile_source, get_u32, put_u32};

/// What a lane holds before: its number times 3 plus 100.
fn value(l: usize) -> u32 {
    l as u32 * 3 + 100
}

/// Destination before the instruction.
const OLD: u32 = 7;

/// Runs an instruction with `%0` the destination (7 before), `%1` the lane's value, `%2` a second operand,
/// and the given lanes active.
fn run(
    name: &str,
    asm: &str,
    exec: u32,
    second: &[u32; 32],
    generations: &[&str],
    want: impl Fn(usize) -> u32,
) {
    let source = format!(
        "#include \"prelude.h\"\nextern \"C\" __global__ void BOUNDS(32) k(const u32 *in, const u32 *b, u32 *out, u32 exec) {{\n\
         u32 v = in[TID], w = b[TID], r = 7;\n\
         asm volatile(\"s_nop 0\\ns_mov_b32 s20, exec_lo\\ns_mov_b32 exec_lo, %3\\n{}\\ns_mov_b32 exec_lo, s20\" : \"+&v\"(r) : \
         \"v\"(v), \"v\"(w), \"s\"(exec) : \"s20\", \"s21\", \"vcc\", \"scc\", \"v100\", \"memory\");\nout[TID] = r;\n}}\n",
        asm.replace('\n', "\\n")
    );
    for &arch in generations {
        let file = compile_source(name, &source, arch);
        moss_emulator::compare_with_objdump("llvm-objdump-19", &file)
            .unwrap_or_else(|e| panic!("{asm}: {e}"));
        let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
        let m = Memory::new();
        let values: Vec<u32> = (0..32).map(value).collect();
        let (a, b, out) = (put_u32(&m, &values), put_u32(&m, second), put_u32(&m, &[0; 32]));
        let args = Args::new().ptr(a).ptr(b).ptr(out).u32(exec);
        args.run(&object, "k", [1, 1, 1], [32, 1, 1], &m, &Options::default())
            .unwrap_or_else(|e| panic!("{arch} {asm}: {e}"));
        let got = get_u32(&m, out, 32);
        for l in 0..32 {
            let expected = if exec >> l & 1 == 1 { want(l) } else { OLD };
            assert_eq!(got[l], expected, "{arch} {asm}, exec {exec:#x}, lane {l}: {got:?}");
        }
    }
}

/// A DPP16 control: where each lane reads, `None` outside of the row.
fn dpp(name: &str, control: &str, from: impl Fn(usize) -> Option<usize>) {
    let none = [0; 32];
    let all = u32::MAX;
    // Without bound control a lane that has no source keeps what it had; with it, it reads 0.
    run(
        &format!("{name}_keep"),
        &format!("v_mov_b32_dpp %0, %1 {control} row_mask:0xf bank_mask:0xf"),
        all,
        &none,
        &BOTH,
        |l| from(l).map_or(OLD, value),
    );
    let bound = format!("v_mov_b32_dpp %0, %1 {control} row_mask:0xf bank_mask:0xf bound_ctrl:1");
    run(&format!("{name}_zero"), &bound, all, &none, &BOTH, |l| from(l).map_or(0, value));
    // Inactive sources count as missing, unless they are fetched.
    let exec = 0xf0ff_3333;
    let active = move |l: usize| exec >> l & 1 == 1;
    run(&format!("{name}_inactive"), &bound, exec, &none, &BOTH, |l| match from(l) {
        Some(s) if active(s) => value(s),
        _ => 0,
    });
    run(&format!("{name}_fi"), &format!("{bound} fi:1"), exec, &none, &BOTH, |l| from(l).map_or(0, value));
    // In place: every lane must read what was there before the instruction.
    run(
        &format!("{name}_place"),
        &format!("v_mov_b32 %0, %1\nv_mov_b32_dpp %0, %0 {control} row_mask:0xf bank_mask:0xf bound_ctrl:1"),
        all,
        &none,
        &BOTH,
        |l| from(l).map_or(0, value),
    );
    // The long encoding with two sources.
    run(
        &format!("{name}_add"),
        &format!("v_add_nc_u32_dpp %0, %1, %1 {control} row_mask:0xf bank_mask:0xf bound_ctrl:1"),
        all,
        &none,
        &BOTH,
        |l| from(l).map_or(0, value) + value(l),
    );
}

#[test]
fn dpp16_controls() {
    dpp("quad_perm", "quad_perm:[3,0,1,2]", |l| Some(l & !3 | [3, 0, 1, 2][l & 3]));
    dpp("row_shl", "row_shl:3", |l| (l % 16 + 3 < 16).then_some(l + 3));
    dpp("row_shr", "row_shr:5", |l| (l % 16 >= 5).then(|| l - 5));
    dpp("row_ror", "row_ror:4", |l| Some((l & 16) | ((l % 16 + 12) % 16)));
    dpp("row_mirror", "row_mirror", |l| Some(l & 16 | (15 - l % 16)));
    dpp("row_half_mirror", "row_half_mirror", |l| Some(l & 24 | (7 - l % 8)));
    dpp("row_share", "row_share:9", |l| Some(l & 16 | 9));
    dpp("row_xmask", "row_xmask:6", |l| Some(l ^ 6));
}

#[test]
fn dpp_masks_and_long_encodings() {
    let none = [0; 32];
    let masked = "v_mov_b32_dpp %0, %1 row_xmask:1 row_mask:0x2 bank_mask:0x5";
    run("dpp_masks", masked, u32::MAX, &none, &BOTH, |l| {
        if l >= 16 && (l / 4) % 2 == 0 { value(l ^ 1) } else { OLD }
    });
    let vop3 = "v_add3_u32_e64_dpp %0, %1, %1, 5 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1";
    run("dpp_vop3", vop3, u32::MAX, &none, &["gfx1200"], |l| {
        (if l % 16 == 0 { 0 } else { value(l - 1) }) + value(l) + 5
    });
    let eight = "v_mov_b32_dpp %0, %1 dpp8:[7,6,5,4,3,2,1,0]";
    run("dpp8", eight, u32::MAX, &none, &BOTH, |l| value(l & 24 | (7 - l % 8)));
    run("dpp8_inactive", eight, 0x0f0f_ffff, &none, &BOTH, |l| {
        let s = l & 24 | (7 - l % 8);
        if 0x0f0f_ffffu32 >> s & 1 == 1 { value(s) } else { 0 }
    });
    let eight = "v_add3_u32_e64_dpp %0, %1, %1, 5 dpp8:[1,0,3,2,5,4,7,6]";
    run("dpp8_vop3", eight, u32::MAX, &none, &["gfx1200"], |l| value(l ^ 1) + value(l) + 5);
    let compare = "v_cmp_lt_u32_dpp vcc_lo, %1, %2 row_xmask:1 row_mask:0xf bank_mask:0xf\nv_cndmask_b32 %0, 0, 1, vcc_lo";
    let second: [u32; 32] = std::array::from_fn(value);
    // The lane's neighbour is smaller for odd lanes.
    run("dpp_compare", compare, u32::MAX, &second, &BOTH, |l| (l % 2) as u32);
}

#[test]
fn permutes_of_rows() {
    let none = [0; 32];
    // Selectors are nibbles, one per lane of the row.
    let set = "s_mov_b32 s20, exec_lo\n";
    let lo = 0x7654_3210u32;
    let hi = 0x0000_ba98u32;
    let pick =
        move |l: usize| (if l % 16 < 8 { lo >> (4 * (l % 8)) } else { hi >> (4 * (l % 8)) } & 15) as usize;
    for (name, cross) in [("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)] {
        let text = format!(
            "{set}s_movk_i32 s21, 0xba98\ns_and_b32 s21, s21, 0xffff\n{name} %0, %1, 0x76543210, s21"
        );
        run(name, &text, u32::MAX, &none, &BOTH, |l| value((l & 16 ^ cross) | pick(l)));
        // Scalar constants as selectors: all lanes take lane 0 of a row.
        run(&format!("{name}_zero"), &format!("{name} %0, %1, 0, 0"), u32::MAX, &none, &BOTH, |l| {
            value(l & 16 ^ cross)
        });
        let identity = format!("{name} %0, %1, -1, -1 op_sel:[0,1]");
        run(&format!("{name}_bound"), &identity, 0x7fff_ffff, &none, &BOTH, |l| {
            let s = (l & 16 ^ cross) | 15;
            if s == 31 { 0 } else { value(s) }
        });
    }
    let second: [u32; 32] = std::array::from_fn(|l| (l as u32 * 5 + 3) % 16 + 0x30);
    for (name, cross) in [("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)] {
        run(name, &format!("{name} %0, %1, %2"), u32::MAX, &second, &["gfx1200"], |l| {
            value((l & 16 ^ cross) | ((l * 5 + 3) % 16))
        });
    }
}

#[test]
fn ds_permutes_and_swizzles() {
    let none = [0; 32];
    let wait = "\ns_nop 0";
    let backward: [u32; 32] = std::array::from_fn(|l| 4 * (31 - l as u32) + 128 * 7);
    run("bpermute", &format!("ds_bpermute_b32 %0, %2, %1{wait}"), u32::MAX, &backward, &BOTH, |l| {
        value(31 - l)
    });
    run(
        "bpermute_inactive",
        &format!("ds_bpermute_b32 %0, %2, %1{wait}"),
        0x0000_ffff,
        &backward,
        &BOTH,
        |_| 0,
    );
    run(
        "bpermute_offset",
        &format!("ds_bpermute_b32 %0, %2, %1 offset:8{wait}"),
        u32::MAX,
        &backward,
        &BOTH,
        |l| value((31 - l + 2) % 32),
    );
    // Two lanes push to one: the higher wins; nobody pushes to the upper half.
    let half: [u32; 32] = std::array::from_fn(|l| 4 * (l as u32 / 2));
    run("permute", &format!("ds_permute_b32 %0, %2, %1{wait}"), u32::MAX, &half, &BOTH, |l| {
        if l < 16 { value(2 * l + 1) } else { 0 }
    });
    let swizzle = |pattern: &str| format!("ds_swizzle_b32 %0, %1 offset:swizzle({pattern}){wait}");
    run("swizzle_swap", &swizzle("SWAP,16"), u32::MAX, &none, &BOTH, |l| value(l ^ 16));
    run("swizzle_reverse", &swizzle("REVERSE,8"), u32::MAX, &none, &BOTH, |l| value(l & 24 | (7 - l % 8)));
    run("swizzle_broadcast", &swizzle("BROADCAST,8,5"), u32::MAX, &none, &BOTH, |l| value(l & 24 | 5));
    run("swizzle_quad", &swizzle("QUAD_PERM,2,0,3,1"), u32::MAX, &none, &BOTH, |l| {
        value(l & !3 | [2, 0, 3, 1][l & 3])
    });
    run("swizzle_inactive", &swizzle("SWAP,1"), 0x5555_5555, &none, &BOTH, |_| 0);
}

#[test]
fn single_lanes() {
    let none = [0; 32];
    run("readlane", "v_readlane_b32 s21, %1, 13\nv_mov_b32 %0, s21", u32::MAX, &none, &BOTH, |_| value(13));
    run("readlane_inactive", "v_readlane_b32 s21, %1, 13\nv_mov_b32 %0, s21", 1, &none, &BOTH, |_| value(13));
    run("readfirstlane", "v_readfirstlane_b32 s21, %1\nv_mov_b32 %0, s21", 0xffff_ff00, &none, &BOTH, |_| {
        value(8)
    });
    // A literal and an inline constant as the value.
    run("writelane", "v_writelane_b32 %0, 0x12345, 9", u32::MAX, &none, &["gfx1200"], |l| {
        if l == 9 { 0x12345 } else { OLD }
    });
    run("writelane_sgpr", "s_movk_i32 s21, 99\nv_writelane_b32 %0, s21, 9", u32::MAX, &none, &BOTH, |l| {
        if l == 9 { 99 } else { OLD }
    });
    run(
        "mbcnt",
        "v_mbcnt_lo_u32_b32 %0, -1, 0\nv_mbcnt_hi_u32_b32 %0, -1, %0",
        0xffff_0000,
        &none,
        &BOTH,
        |l| l as u32,
    );
    run("mbcnt_mask", "v_mbcnt_lo_u32_b32 %0, 0x0f0f0f0f, 5", u32::MAX, &none, &BOTH, |l| {
        5 + (0..l).filter(|n| n % 8 < 4).count() as u32
    });
    run(
        "swap",
        "v_mov_b32 v100, %1\nv_mov_b32 %0, 1\nv_swap_b32 %0, v100\nv_add_nc_u32 %0, %0, v100",
        u32::MAX,
        &none,
        &BOTH,
        |l| value(l) + 1,
    );
}
