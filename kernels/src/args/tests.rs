use super::*;
use crate::{Launch, LaunchError};

/// An address for each operand, all aligned.
const A: u64 = 0x10000;

fn linear() -> Linear {
    Linear { x: A, w: 2 * A, out: 3 * A, tokens: 100, k: 32, n: 70, ..Linear::default() }
}

fn attention() -> Attention {
    Attention {
        q: A,
        k: A,
        v: A,
        out: A,
        length: 300,
        q_heads: 4,
        kv_heads: 2,
        dim: 128,
        v_stride: 256,
        v_step: 128,
        scale: 1.0,
        ..Attention::default()
    }
}

fn conv() -> Conv2d {
    Conv2d {
        x: A,
        w: A,
        bias: A,
        out: A,
        height: 8,
        width: 24,
        inputs: 16,
        outputs: 65,
        side: 3,
        ..Conv2d::default()
    }
}

fn i32_at(launch: &Launch, offset: usize) -> i32 {
    i32::from_le_bytes(*launch.args()[offset..].first_chunk().expect("a parameter"))
}

fn u64_at(launch: &Launch, offset: usize) -> u64 {
    u64::from_le_bytes(*launch.args()[offset..].first_chunk().expect("a parameter"))
}

#[test]
fn parameters_lie_where_the_struct_says() {
    let launches = linear().launches().expect("sizes fit");
    let [launch] = &launches[..] else { panic!("one launch: {launches:?}") };
    assert_eq!((launch.kernel(), launch.grid(), launch.block()), ("linear", [2, 2, 1], [128, 1, 1]));
    assert_eq!(launch.args().len(), 6 * 8 + 4 * 4);
    for param in Linear::params() {
        let offset = param.offset as usize;
        match param.name {
            "w" => assert_eq!(u64_at(launch, offset), 2 * A),
            "n" => assert_eq!(i32_at(launch, offset), 70),
            _ => {}
        }
    }
}

#[test]
fn every_kernel_has_distinct_ordered_parameters() {
    for (kernel, params) in all_params() {
        for pair in params.windows(2) {
            assert!(pair[0].offset + pair[0].kind.size() <= pair[1].offset, "{kernel}: {pair:?}");
        }
    }
}

#[test]
fn long_products_come_apart_by_tokens() {
    let whole =
        Linear { tokens: 4156, k: 3072, n: 16384, residual: A, epilogue: epilogue::RESIDUAL, ..linear() };
    let launches = whole.launches().expect("sizes fit");
    assert!(launches.len() > 1);
    let mut first = 0;
    for launch in &launches {
        let tokens = i32_at(launch, 48);
        assert_eq!(u64_at(launch, 0), whole.x + first as u64 * 3072 * 2);
        assert_eq!(u64_at(launch, 24), whole.residual + first as u64 * 16384 * 2);
        assert_eq!(u64_at(launch, 40), whole.out + first as u64 * 16384 * 2);
        assert!(i64::from(tokens) * 3072 * 16384 <= MAX_MATRIX_FMA);
        first += tokens;
    }
    assert_eq!(first, whole.tokens);
}

#[test]
fn attention_covers_every_query_once() {
    for length in [1, 63, 64, 65, 40_000] {
        let launches = Attention { length, ..attention() }.launches_bf16().expect("sizes fit");
        let mut next = 0;
        for launch in launches {
            assert_eq!((i32_at(&launch, 40), launch.kernel()), (next, "attention_128"));
            let count = i32_at(&launch, 44);
            assert_eq!(launch.grid(), [(count as u32).div_ceil(64), 4, 1]);
            next += count;
        }
        assert_eq!(next, length);
    }
    let wide = Attention { dim: 384, q_heads: 1, kv_heads: 1, v_stride: 384, v_step: 0, ..attention() };
    assert_eq!(wide.launches_f32().expect("sizes fit")[0].kernel(), "attention_f32");
}

#[test]
fn convolutions_come_apart_by_rows() {
    let whole = Conv2d { height: 1024, width: 1024, inputs: 192, outputs: 192, ..conv() };
    let launches = whole.launches().expect("sizes fit");
    let mut next = 0;
    for launch in &launches {
        assert_eq!(i32_at(launch, 76), next);
        next += i32_at(launch, 80);
    }
    assert_eq!(next, 1024);
    assert!(launches.len() > 10);
}

#[test]
fn group_norm_keeps_to_its_workspace() {
    let norm = GroupNorm {
        x: A,
        weight: A,
        bias: A,
        workspace: 8 * A,
        ab: A,
        pixels: 5000,
        channels: 48,
        groups: 3,
        eps: 1e-6,
    };
    let launches = norm.launches().expect("sizes fit");
    assert_eq!(launches[0].grid(), [2, 3, 1]);
    assert_eq!(u64_at(&launches[0], 8), 0);
    assert_eq!(u64_at(&launches[2], 8), 8 * A);
    let partial = u64_at(&launches[0], 16) - 8 * A;
    assert_eq!(GroupNorm::workspace(5000, 3), partial as usize + 2 * 3 * 4);
}

#[test]
fn sizes_that_a_kernel_cannot_do_are_named() {
    let text = |result: Result<Vec<Launch>, LaunchError>| result.expect_err("refused").to_string();
    assert_eq!(
        text(Linear { k: 24, ..linear() }.launches()),
        "linear: k is 24, the kernel needs a multiple of 16"
    );
    assert_eq!(
        text(Linear { x: 0, ..linear() }.launches()),
        "linear: x is at 0x0, the kernel needs an address that is a multiple of 16, not 0"
    );
    assert_eq!(
        text(Linear { bias: 8, ..linear() }.launches()),
        "linear: bias is at 0x8, the kernel needs an address that is a multiple of 16, not 0"
    );
    assert!(
        text(Linear { epilogue: epilogue::RESIDUAL, ..linear() }.launches()).contains("residual is at 0x0")
    );
    assert_eq!(
        text(Linear { epilogue: 4, ..linear() }.launches()),
        "linear: epilogue is 4, the kernel needs a code of hip/codes.h"
    );
    assert!(
        text(LinearGlu { x: A, w: A, out: A, tokens: 1, k: 16, f: 16, glu: -1, bias: 0 }.launches())
            .contains("glu is -1")
    );
    assert!(text(Attention { dim: 64, ..attention() }.launches_bf16()).contains("dim is 64"));
    assert!(text(Attention { kv_heads: 3, ..attention() }.launches_bf16()).contains("q_heads is 4"));
    assert!(text(Attention { v_stride: 200, ..attention() }.launches_bf16()).contains("v_stride is 200"));
    assert!(text(Attention { dim: 528, ..attention() }.launches_f32()).contains("dim is 528"));
    assert!(text(Conv2d { inputs: 8, ..conv() }.launches()).contains("inputs is 8"));
    assert!(text(Conv2d { side: 5, ..conv() }.launches()).contains("side is 5"));
    let tall = Norm { x: A, weight: A, out: A, tokens: 1, width: 24, ..Norm::default() };
    assert!(tall.launch().expect_err("refused").to_string().contains("width is 24"));
}
