//! Scalar memory.

use super::{r, refused};
use crate::{
    exec::{
        mem::{Width, scalar_load, scalar_load_small},
        nop,
    },
    inst::{NO, Row},
};

pub(super) static SMEM: &[Row] = &[
    r("s_load_b32", 0, 0, |w, i, g| scalar_load(w, i, g, 1, false)),
    r("s_load_b64", 1, 1, |w, i, g| scalar_load(w, i, g, 2, false)),
    r("s_load_b128", 2, 2, |w, i, g| scalar_load(w, i, g, 4, false)),
    r("s_load_b256", 3, 3, |w, i, g| scalar_load(w, i, g, 8, false)),
    r("s_load_b512", 4, 4, |w, i, g| scalar_load(w, i, g, 16, false)),
    r("s_load_b96", NO, 5, |w, i, g| scalar_load(w, i, g, 3, false)),
    r("s_load_i8", NO, 8, |w, i, g| scalar_load_small(w, i, g, Width::I8, false)),
    r("s_load_u8", NO, 9, |w, i, g| scalar_load_small(w, i, g, Width::U8, false)),
    r("s_load_i16", NO, 10, |w, i, g| scalar_load_small(w, i, g, Width::I16, false)),
    r("s_load_u16", NO, 11, |w, i, g| scalar_load_small(w, i, g, Width::U16, false)),
    r("s_buffer_load_b32", 8, 16, |w, i, g| scalar_load(w, i, g, 1, true)),
    r("s_buffer_load_b64", 9, 17, |w, i, g| scalar_load(w, i, g, 2, true)),
    r("s_buffer_load_b128", 10, 18, |w, i, g| scalar_load(w, i, g, 4, true)),
    r("s_buffer_load_b256", 11, 19, |w, i, g| scalar_load(w, i, g, 8, true)),
    r("s_buffer_load_b512", 12, 20, |w, i, g| scalar_load(w, i, g, 16, true)),
    r("s_buffer_load_b96", NO, 21, |w, i, g| scalar_load(w, i, g, 3, true)),
    r("s_buffer_load_i8", NO, 24, |w, i, g| scalar_load_small(w, i, g, Width::I8, true)),
    r("s_buffer_load_u8", NO, 25, |w, i, g| scalar_load_small(w, i, g, Width::U8, true)),
    r("s_buffer_load_i16", NO, 26, |w, i, g| scalar_load_small(w, i, g, Width::I16, true)),
    r("s_buffer_load_u16", NO, 27, |w, i, g| scalar_load_small(w, i, g, Width::U16, true)),
    r("s_gl1_inv", 32, NO, nop),
    r("s_dcache_inv", 33, 33, nop),
    refused("s_atc_probe", 34, 34),
    refused("s_atc_probe_buffer", 35, 35),
    r("s_prefetch_inst", NO, 36, nop),
    r("s_prefetch_inst_pc_rel", NO, 37, nop),
    r("s_prefetch_data", NO, 38, nop),
    r("s_buffer_prefetch_data", NO, 39, nop),
    r("s_prefetch_data_pc_rel", NO, 40, nop),
];
