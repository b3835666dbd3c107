//! What the benches measure against: fused multiply-adds that never leave the registers.

use crate::simd::{MAX_LANES, simd_kernel};

/// Chains of fmas that run side by side: enough to fill two units of latency 4.
const CHAINS: usize = 12;

/// Floating-point operations of one step on vectors of `lanes` numbers.
pub const fn flops_per_step(lanes: usize) -> usize {
    2 * CHAINS * lanes
}

simd_kernel! {
    /// Runs `steps` steps and returns a number that depends on all of them; `factors` are two numbers that the compiler
    /// must not know.
    pub fn run<S>(s: S, steps: usize, factors: [f32; 2]) -> f32 {
        let mut chains = [s.splat(0.0); CHAINS];
        for (i, chain) in chains.iter_mut().enumerate() {
            *chain = s.splat(i as f32 * factors[0]);
        }
        let [a, b] = factors.map(|factor| s.splat(factor));
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = s.fma(*chain, a, b);
            }
        }
        let mut sum = s.splat(0.0);
        for chain in chains {
            sum = s.add(sum, chain);
        }
        let mut lanes = [0.0; MAX_LANES];
        s.store(sum, &mut lanes);
        lanes.iter().sum()
    }
}
