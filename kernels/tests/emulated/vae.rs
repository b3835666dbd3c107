use moss_kernels::args;
use moss_kernels::pack::Conv;
use moss_reference::backend::{Backend, Conv2d, GroupNorm};
use moss_reference::oracle::OracleBackend;

use crate::gpu::{Rng, each, f32s, oracle};

#[test]
fn conv2d_equals_the_oracle() {
    // Height and width of the result, inputs, outputs, side, upsample, norm (with silu), residual.
    let cases = [
        (1, 1, 16, 1, 1, false, None, false),
        (5, 7, 16, 3, 3, false, Some(true), false),
        (6, 14, 32, 70, 3, true, None, false),
        (3, 43, 48, 16, 1, false, Some(false), true),
        (9, 8, 16, 64, 3, false, Some(true), true),
    ];
    each(|gpu| {
        let mut rng = Rng::new(12);
        for (height, width, inputs, outputs, side, upsample, norm, with_residual) in cases {
            let shrink = if upsample { 2 } else { 1 };
            let source = [height / shrink, width / shrink, inputs];
            let x = rng.f32(source.iter().product(), 1.0);
            let ab = rng.f32(2 * inputs, 1.0);
            let w = rng.f32(outputs * inputs * side * side, 0.2);
            let bias = rng.f32(outputs, 1.0);
            let residual = rng.f32(height * width * outputs, 1.0);
            let conv = Conv::new(outputs, inputs, side).expect("sizes fit");
            let mut packed = vec![0; conv.bytes()];
            conv.pack(f32s(&w), &mut packed);
            let out = gpu.room(height * width * outputs * 4);
            let launch = args::Conv2d {
                x: gpu.put(&x),
                norm: if norm.is_some() { gpu.put(&ab) } else { 0 },
                w: gpu.bytes(&packed),
                bias: gpu.put(&bias),
                residual: if with_residual { gpu.put(&residual) } else { 0 },
                out,
                height: height as i32,
                width: width as i32,
                inputs: inputs as i32,
                outputs: outputs as i32,
                side: side as i32,
                upsample: i32::from(upsample),
                silu: i32::from(norm == Some(true)),
                row_first: 0,
                row_count: 0,
            };
            gpu.run(launch.launches());
            let ab = oracle(&ab, &[2, inputs]);
            let residual = oracle(&residual, &[height, width, outputs]);
            let (weight, bias) = (oracle(&w, &[outputs, inputs, side, side]), oracle(&bias, &[outputs]));
            let norm = norm.map(|silu| (&ab, silu));
            let residual = with_residual.then_some(&residual);
            let conv = Conv2d { weight: &weight, bias: &bias, norm, upsample, residual };
            let expected = OracleBackend.conv2d(&oracle(&x, &source), conv);
            let case = format!("{height}x{width}, {inputs} to {outputs}, side {side}, upsample {upsample}");
            gpu.check(&case, out, &expected.expect("the oracle"));
        }
    });
}

#[test]
fn bands_of_rows_equal_the_whole() {
    each(|gpu| {
        let mut rng = Rng::new(13);
        let (height, width, inputs, outputs) = (5, 9, 16, 8);
        let (x, w, bias) = (
            rng.f32(height * width * inputs, 1.0),
            rng.f32(outputs * inputs * 9, 0.2),
            rng.f32(outputs, 1.0),
        );
        let conv = Conv::new(outputs, inputs, 3).expect("sizes fit");
        let mut packed = vec![0; conv.bytes()];
        conv.pack(f32s(&w), &mut packed);
        let out = gpu.room(height * width * outputs * 4);
        let launch = args::Conv2d {
            x: gpu.put(&x),
            w: gpu.bytes(&packed),
            bias: gpu.put(&bias),
            out,
            height: height as i32,
            width: width as i32,
            inputs: inputs as i32,
            outputs: outputs as i32,
            side: 3,
            ..args::Conv2d::default()
        };
        for (row_first, row_count) in [(3, 2), (0, 3)] {
            gpu.run(args::Conv2d { row_first, row_count, ..launch }.band().map(Some));
        }
        let (weight, bias) = (oracle(&w, &[outputs, inputs, 3, 3]), oracle(&bias, &[outputs]));
        let x = oracle(&x, &[height, width, inputs]);
        let expected = OracleBackend.conv2d(&x, Conv2d::new(&weight, &bias));
        gpu.check("two bands", out, &expected.expect("the oracle"));
    });
}

#[test]
fn group_norm_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(14);
        // Pixels on both sides of a slice; groups of 1, 3 and 20 channels.
        for (height, width, channels, groups) in [(3, 5, 12, 4), (1, 4099, 16, 16), (90, 91, 40, 2)] {
            let pixels = height * width;
            let (x, weight, bias) =
                (rng.f32(pixels * channels, 2.0), rng.f32(channels, 1.0), rng.f32(channels, 1.0));
            let ab = gpu.room(2 * channels * 4);
            let norm = args::GroupNorm {
                x: gpu.put(&x),
                weight: gpu.put(&weight),
                bias: gpu.put(&bias),
                workspace: gpu.room(args::GroupNorm::workspace(pixels, groups)),
                ab,
                pixels: pixels as i32,
                channels: channels as i32,
                groups: groups as i32,
                eps: 1e-6,
            };
            gpu.run(norm.launches());
            let x = oracle(&x, &[height, width, channels]);
            let (weight, bias) = (oracle(&weight, &[channels]), oracle(&bias, &[channels]));
            let expected =
                OracleBackend.group_norm(&x, GroupNorm { groups, weight: &weight, bias: &bias, eps: 1e-6 });
            gpu.check(
                &format!("{height}x{width}x{channels}, {groups} groups"),
                ab,
                &expected.expect("the oracle"),
            );
        }
    });
}
