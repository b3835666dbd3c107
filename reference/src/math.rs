//! Elementary functions as short polynomials of fused multiply-adds, the same on every backend.
