//! The HIP backend: AMD Radeon GPUs through the HIP runtime, opened at run time.
