//! SOPK and SOPP: constants, modes, waits, branches, the end.

use super::{r, refused};
use crate::{
    exec::{nop, not_emulated, scalar, wave::State},
    inst::{NO, Row},
};

pub(super) static SOPK: &[Row] = &[
    r("s_movk_i32", 0, 0, |w, i, _| {
        w.set_s(i.dst, i.imm as i16 as u32);
        Ok(())
    }),
    r("s_version", 1, 1, nop),
    r("s_cmovk_i32", 2, 2, |w, i, _| {
        if w.scc {
            w.set_s(i.dst, i.imm as i16 as u32);
        }
        Ok(())
    }),
    r("s_cmpk_eq_i32", 3, NO, |w, i, _| w.sck(i, |d, k, _| d as i32 == k)),
    r("s_cmpk_lg_i32", 4, NO, |w, i, _| w.sck(i, |d, k, _| d as i32 != k)),
    r("s_cmpk_gt_i32", 5, NO, |w, i, _| w.sck(i, |d, k, _| d as i32 > k)),
    r("s_cmpk_ge_i32", 6, NO, |w, i, _| w.sck(i, |d, k, _| d as i32 >= k)),
    r("s_cmpk_lt_i32", 7, NO, |w, i, _| w.sck(i, |d, k, _| (d as i32) < k)),
    r("s_cmpk_le_i32", 8, NO, |w, i, _| w.sck(i, |d, k, _| d as i32 <= k)),
    r("s_cmpk_eq_u32", 9, NO, |w, i, _| w.sck(i, |d, _, k| d == k)),
    r("s_cmpk_lg_u32", 10, NO, |w, i, _| w.sck(i, |d, _, k| d != k)),
    r("s_cmpk_gt_u32", 11, NO, |w, i, _| w.sck(i, |d, _, k| d > k)),
    r("s_cmpk_ge_u32", 12, NO, |w, i, _| w.sck(i, |d, _, k| d >= k)),
    r("s_cmpk_lt_u32", 13, NO, |w, i, _| w.sck(i, |d, _, k| d < k)),
    r("s_cmpk_le_u32", 14, NO, |w, i, _| w.sck(i, |d, _, k| d <= k)),
    r("s_addk_i32", 15, NO, addk),
    r("s_addk_co_i32", NO, 15, addk),
    r("s_mulk_i32", 16, 16, |w, i, _| {
        let d = w.scalar(i.dst);
        w.set_s(i.dst, d.wrapping_mul(i.imm as i16 as u32));
        Ok(())
    }),
    r("s_getreg_b32", 17, 17, scalar::getreg),
    r("s_setreg_b32", 18, 18, |w, i, g| {
        let v = w.scalar(i.dst);
        scalar::setreg(w, i, g.generation, v)
    }),
    r("s_setreg_imm32_b32", 19, 19, |w, i, g| {
        let v = w.s32(i.src[0]);
        scalar::setreg(w, i, g.generation, v)
    }),
    r("s_call_b64", 20, 20, |w, i, g| {
        let next = w.next_address(g);
        w.set_s64(i.dst, next);
        w.branch(i, true)
    }),
    refused("s_subvector_loop_begin", 22, NO),
    refused("s_subvector_loop_end", 23, NO),
    r("s_waitcnt_vscnt", 24, NO, nop),
    r("s_waitcnt_vmcnt", 25, NO, nop),
    r("s_waitcnt_expcnt", 26, NO, nop),
    r("s_waitcnt_lgkmcnt", 27, NO, nop),
];

fn addk(
    w: &mut crate::exec::wave::Wave,
    i: &crate::inst::Inst,
    _: &mut crate::exec::group::Group<'_>,
) -> crate::exec::Flow {
    let (d, overflow) = (w.scalar(i.dst) as i32).overflowing_add(i.imm as i16 as i32);
    w.scc = overflow;
    w.set_s(i.dst, d as u32);
    Ok(())
}

pub(super) static SOPP: &[Row] = &[
    r("s_nop", 0, 0, nop),
    refused("s_setkill", 1, 1),
    refused("s_sethalt", 2, 2),
    r("s_sleep", 3, 3, nop),
    r("s_set_inst_prefetch_distance", 4, NO, nop),
    r("s_clause", 5, 5, nop),
    r("s_delay_alu", 7, 7, nop),
    r("s_waitcnt_depctr", 8, NO, nop),
    r("s_wait_alu", NO, 8, nop),
    r("s_waitcnt", 9, 9, nop),
    r("s_wait_idle", 10, 10, nop),
    r("s_wait_event", 11, 11, nop),
    r("s_trap", 16, 16, not_emulated),
    r("s_round_mode", 17, 17, |w, i, _| scalar::set_mode(w, w.mode & !0xf | i.imm & 0xf)),
    r("s_denorm_mode", 18, 18, |w, i, _| scalar::set_mode(w, w.mode & !0xf0 | (i.imm & 0xf) << 4)),
    r("s_barrier_wait", NO, 20, |w, _, g| scalar::wait(w, g)),
    refused("s_barrier_leave", NO, 21),
    r("s_code_end", 31, 31, not_emulated),
    r("s_branch", 32, 32, |w, i, _| w.branch(i, true)),
    r("s_cbranch_scc0", 33, 33, |w, i, _| w.branch(i, !w.scc)),
    r("s_cbranch_scc1", 34, 34, |w, i, _| w.branch(i, w.scc)),
    r("s_cbranch_vccz", 35, 35, |w, i, _| w.branch(i, w.vcc() == 0)),
    r("s_cbranch_vccnz", 36, 36, |w, i, _| w.branch(i, w.vcc() != 0)),
    r("s_cbranch_execz", 37, 37, |w, i, _| w.branch(i, w.exec() == 0)),
    r("s_cbranch_execnz", 38, 38, |w, i, _| w.branch(i, w.exec() != 0)),
    r("s_endpgm", 48, 48, |w, _, _| {
        w.state = State::Ended;
        Ok(())
    }),
    r("s_wakeup", 52, 52, nop),
    r("s_setprio", 53, 53, nop),
    // DEALLOC_VGPRS before the end is the one message that compilers send.
    r("s_sendmsg", 54, 54, |w, i, g| if i.imm == 3 { Ok(()) } else { not_emulated(w, i, g) }),
    refused("s_sendmsghalt", 55, 55),
    r("s_incperflevel", 56, 56, nop),
    r("s_decperflevel", 57, 57, nop),
    r("s_ttracedata", 58, 58, nop),
    r("s_ttracedata_imm", 59, 59, nop),
    r("s_icache_inv", 60, 60, nop),
    r("s_barrier", 61, NO, scalar::barrier),
    r("s_wait_loadcnt", NO, 64, nop),
    r("s_wait_storecnt", NO, 65, nop),
    r("s_wait_samplecnt", NO, 66, nop),
    r("s_wait_bvhcnt", NO, 67, nop),
    r("s_wait_expcnt", NO, 68, nop),
    r("s_wait_dscnt", NO, 70, nop),
    r("s_wait_kmcnt", NO, 71, nop),
    r("s_wait_loadcnt_dscnt", NO, 72, nop),
    r("s_wait_storecnt_dscnt", NO, 73, nop),
];
