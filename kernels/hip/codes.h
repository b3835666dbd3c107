// The codes that a launch passes to its kernel: the one list of them. build.rs turns it into the modules of moss_kernels::args,
// comments included: EPILOGUE_SILU of `enum epilogue` is `epilogue::SILU` there.
#pragma once

// What `linear` does with y. The order matters: those with a residual are the last.
enum epilogue {
    EPILOGUE_NONE,           // `y`.
    EPILOGUE_SILU,           // `bf16(silu(y))`.
    EPILOGUE_RESIDUAL,       // `bf16(residual + y)`.
    EPILOGUE_GATED_RESIDUAL, // `bf16(residual + bf16(y * gate))`.
};

// The gated unit of `linear_glu`, of up u and gate g.
enum glu {
    GLU_SILU, // `bf16(bf16(silu(g)) * u)`.
    GLU_SITU, // MOSS-Image's SiTU.
};

// The weighting of `norm` and `head_norm_rope`.
enum norm_kind {
    NORM_KIND_PLAIN,        // `bf16(bf16(x * r) * w)`.
    NORM_KIND_ZERO_CENTRED, // `bf16(x * r * (1 + w))`.
};

// What `group_norm_combine` makes of the slices' sums.
enum combine_stage {
    COMBINE_STAGE_MEAN,         // The mean.
    COMBINE_STAGE_COEFFICIENTS, // From the squares' sums: the variance, and `a` and `b` of `a x + b`.
};
