//! Fused multiply-add over arrays, with the CPU's instruction where it has one.

/// `d[i] = fma(a[i], b[i], c[i])`.
#[inline]
pub(crate) fn fma32(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the features were just detected.
        return unsafe { fma32_native(a, b, c) };
    }
    fma32_any(a, b, c)
}

#[inline(always)]
fn fma32_any(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma32_native(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    fma32_any(a, b, c)
}

/// `acc[m][n] = fma(a[m][k], b[k][n], acc[m][n])` for k ascending.
pub(crate) fn matrix(a: &[[f32; 16]; 16], b: &[[f32; 16]; 16], acc: &mut [[f32; 16]; 16]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the features were just detected.
        return unsafe { matrix_native(a, b, acc) };
    }
    matrix_any(a, b, acc);
}

#[inline(always)]
fn matrix_any(a: &[[f32; 16]; 16], b: &[[f32; 16]; 16], acc: &mut [[f32; 16]; 16]) {
    for m in 0..16 {
        let mut row = acc[m];
        for k in 0..16 {
            for n in 0..16 {
                row[n] = a[m][k].mul_add(b[k][n], row[n]);
            }
        }
        acc[m] = row;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn matrix_native(a: &[[f32; 16]; 16], b: &[[f32; 16]; 16], acc: &mut [[f32; 16]; 16]) {
    matrix_any(a, b, acc);
}
