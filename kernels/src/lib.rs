//! HIP kernels, one operation a file, compiled ahead of time for every supported architecture.
