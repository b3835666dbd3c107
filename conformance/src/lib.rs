//! What proves that backends agree with the reference and with the official pipeline.

pub mod battery;
pub mod bits;
pub mod bounded;
pub mod compare;
pub mod distance;
pub mod golden;
pub mod report;
pub mod row;
