use moss_kernels::args;
use moss_reference::backend::{Backend, DeltaHeads, HostData};
use moss_reference::oracle::OracleBackend;

use crate::gpu::{Rng, each, oracle};

#[test]
fn causal_conv_silu_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(10);
        for (segments, channels, width) in [(vec![1, 2, 9], 48, 4), (vec![40], 272, 4), (vec![5], 16, 3)] {
            let tokens: usize = segments.iter().sum();
            let (x, w) = (rng.bf16(tokens * channels, 20.0), rng.bf16(channels * width, 1.0));
            let out = gpu.room(tokens * channels * 2);
            let mut first = 0;
            for &length in &segments {
                let launch = args::CausalConvSilu {
                    x: gpu.put(&x),
                    w: gpu.put(&w),
                    out,
                    first,
                    length: length as i32,
                    channels: channels as i32,
                    width: width as i32,
                };
                gpu.run(launch.launch().map(Some));
                first += length as i32;
            }
            let (x, w) = (oracle(&x, &[tokens, channels]), oracle(&w, &[channels, 1, width]));
            let expected = OracleBackend.causal_conv_silu(&x, &w, &segments).expect("the oracle");
            gpu.check(&format!("{segments:?} x {channels}, {width} taps"), out, &expected);
        }
    });
}

#[test]
fn gated_delta_rule_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(11);
        // The last spread makes the decay saturate and q and k vanish beside the epsilon of their norm.
        for (segments, key_heads, value_heads, value_dim, spread, gates) in [
            (vec![1], 1, 1, 32, 1.0, 2.0),
            (vec![7, 8, 9], 2, 4, 64, 1.0, 2.0),
            (vec![21], 1, 2, 128, 1.0, 2.0),
            (vec![11], 1, 1, 32, 1e-20, 60.0),
        ] {
            let tokens: usize = segments.iter().sum();
            let heads = DeltaHeads { key_heads, value_heads, key_dim: 128, value_dim };
            let width = 2 * key_heads * 128 + value_heads * value_dim;
            let (qkv, ba) = (rng.bf16(tokens * width, spread), rng.bf16(tokens * 2 * value_heads, gates));
            let a_log = HostData::F32((0..value_heads).map(|i| i as f32 * 0.7 - 0.5).collect());
            let dt_bias = rng.f32(value_heads, 1.0);
            let out = gpu.room(tokens * value_heads * value_dim * 2);
            let mut first = 0;
            for &length in &segments {
                let launch = args::GatedDeltaRule {
                    qkv: gpu.put(&qkv),
                    ba: gpu.put(&ba),
                    a_log: gpu.put(&a_log),
                    dt_bias: gpu.put(&dt_bias),
                    out,
                    first,
                    length: length as i32,
                    key_heads: key_heads as i32,
                    value_heads: value_heads as i32,
                    key_dim: 128,
                    value_dim: value_dim as i32,
                    scale: (1.0 / 128f64.sqrt()) as f32,
                };
                gpu.run(launch.launch().map(Some));
                first += length as i32;
            }
            let (qkv, ba) = (oracle(&qkv, &[tokens, width]), oracle(&ba, &[tokens, 2 * value_heads]));
            let (a_log, dt_bias) = (oracle(&a_log, &[value_heads]), oracle(&dt_bias, &[value_heads]));
            let expected = OracleBackend.gated_delta_rule(&qkv, &ba, &a_log, &dt_bias, heads, &segments);
            gpu.check(&format!("{heads:?}, {segments:?}"), out, &expected.expect("the oracle"));
        }
    });
}
