//! The f32 operations of the VAE decoder.

use super::launch::{Check, Launch, LaunchError, ceil, params};
use super::{MAX_F32_FMA, combine_stage};

params! {
    /// `conv2d`: convolution of rows of the picture, with the norm before it, nearest-neighbour doubling and residual.
    Conv2d {
        /// `[height, width, inputs]` f32; half of each side with `upsample`.
        x: u64,
        /// `[2, inputs]` f32 coefficients of the group norm, or 0.
        norm: u64,
        /// `[outputs, inputs, side, side]` f32, packed by [`crate::pack::Conv`].
        w: u64,
        /// `[outputs]` f32.
        bias: u64,
        /// `[height, width, outputs]` f32, or 0; may be `out`.
        residual: u64,
        /// `[height, width, outputs]` f32.
        out: u64,
        /// Rows of the result.
        height: i32,
        /// Columns of the result.
        width: i32,
        /// Input channels, a multiple of 16.
        inputs: i32,
        /// Output channels, any number.
        outputs: i32,
        /// Side of the kernel: 1 or 3.
        side: i32,
        /// 1: `x` is doubled first.
        upsample: i32,
        /// 1: silu after the norm.
        silu: i32,
        /// First row of the result that is computed; [`Conv2d::launches`] sets it.
        row_first: i32,
        /// Rows that are computed; [`Conv2d::launches`] sets it.
        row_count: i32,
    }
}

impl Conv2d {
    /// The launches for the whole picture: bands of rows.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches(&self) -> Result<Vec<Launch>, LaunchError> {
        Check("conv2d").positive("height", self.height)?;
        let taps = i64::from(self.side) * i64::from(self.side);
        let row_fma = i64::from(self.width) * i64::from(self.inputs) * self.column_tiles() * 64 * taps;
        let step = (MAX_F32_FMA / row_fma.max(1)).clamp(1, i64::from(self.height)) as i32;
        (0..self.height)
            .step_by(step as usize)
            .map(|row_first| {
                let row_count = step.min(self.height - row_first);
                Self { row_first, row_count, ..*self }.band()
            })
            .collect()
    }

    /// The launch for the rows `row_first .. + row_count`.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn band(&self) -> Result<Launch, LaunchError> {
        let check = Check("conv2d");
        check.positive("height", self.height)?;
        check.positive("width", self.width)?;
        let pixels = i64::from(self.height) * i64::from(self.width);
        check.size(pixels <= 1 << 28, "height * width", pixels, "at most 2^28")?;
        check.multiple("inputs", self.inputs, 16, "a multiple of 16")?;
        check.positive("outputs", self.outputs)?;
        check.size(matches!(self.side, 1 | 3), "side", self.side, "1 or 3")?;
        check.switch("upsample", self.upsample)?;
        check.switch("silu", self.silu)?;
        let even = self.upsample == 0 || (self.height % 2 == 0 && self.width % 2 == 0);
        check.size(even, "height * width", pixels, "of even sides with upsample")?;
        check.positive("row_count", self.row_count)?;
        let rows = 0..=self.height - self.row_count;
        check.size(rows.contains(&self.row_first), "row_first", self.row_first, "rows of the picture")?;
        check.operands(&[("x", self.x), ("w", self.w), ("bias", self.bias), ("out", self.out)])?;
        check.optional(&[("norm", self.norm), ("residual", self.residual)])?;
        check.launch([ceil(self.row_count * self.width, 64), self.column_tiles(), 1], 128, self.bytes())
    }

    fn column_tiles(&self) -> i64 {
        ceil(self.outputs, 64)
    }
}

/// Pixels of a slice: `moss_reference::backend::GROUP_NORM_SLICE`.
pub(super) const SLICE: i32 = 4096;

params! {
    /// `group_norm_slices`: the sum over each slice of each group of `x`, or of its squared distance from the mean.
    GroupNormSlices {
        /// `[pixels, channels]` f32.
        x: u64,
        /// `[groups]` f32: the means, for the sum of squared distances; 0 for the plain sum.
        mean: u64,
        /// `[groups, slices]` f32.
        partial: u64,
        /// Pixels.
        pixels: i32,
        /// Channels.
        channels: i32,
        /// Groups; divides `channels`.
        groups: i32,
    }
}

params! {
    /// `group_norm_combine`: sums the slices of each group; the mean or the coefficients.
    GroupNormCombine {
        /// `[groups, slices]` f32.
        partial: u64,
        /// `[groups]` f32: written by the stage of the mean, read by the other.
        mean: u64,
        /// `[channels]` f32.
        weight: u64,
        /// `[channels]` f32.
        bias: u64,
        /// `[2, channels]` f32, written by the stage of the coefficients.
        ab: u64,
        /// Slices of a group.
        slices: i32,
        /// Channels.
        channels: i32,
        /// Groups.
        groups: i32,
        /// Elements of a group.
        elements: f32,
        /// Added to the variance.
        eps: f32,
        /// One of [`combine_stage`].
        stage: i32,
    }
}

/// A group norm's coefficients: four launches over one workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupNorm {
    /// `[pixels, channels]` f32.
    pub x: u64,
    /// `[channels]` f32.
    pub weight: u64,
    /// `[channels]` f32.
    pub bias: u64,
    /// Device memory of [`GroupNorm::workspace`] bytes.
    pub workspace: u64,
    /// `[2, channels]` f32: `a`, then `b`.
    pub ab: u64,
    /// Pixels.
    pub pixels: i32,
    /// Channels.
    pub channels: i32,
    /// Groups; divides `channels`.
    pub groups: i32,
    /// Added to the variance.
    pub eps: f32,
}

impl GroupNorm {
    /// Bytes of the workspace: a mean and the slices' sums for each group.
    pub fn workspace(pixels: usize, groups: usize) -> usize {
        groups.next_multiple_of(4) * 4 + groups * pixels.div_ceil(SLICE as usize) * 4
    }

    /// The launches, in order.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches(&self) -> Result<[Launch; 4], LaunchError> {
        let &Self { x, weight, bias, workspace: mean, ab, pixels, channels, groups, eps } = self;
        let check = Check("group_norm_slices");
        check.positive("pixels", pixels)?;
        check.positive("groups", groups)?;
        check.multiple("channels", channels, groups, "a multiple of groups")?;
        check.operands(&[("x", x), ("weight", weight), ("bias", bias), ("ab", ab), ("workspace", mean)])?;
        let partial = mean + (groups as u64).next_multiple_of(4) * 4;
        let slices = ceil(pixels, SLICE) as i32;
        let elements = (i64::from(pixels) * i64::from(channels / groups)) as f32;

        let sums = GroupNormSlices { x, mean: 0, partial, pixels, channels, groups };
        let squares = GroupNormSlices { mean, ..sums };
        let means = GroupNormCombine {
            partial,
            mean,
            weight,
            bias,
            ab,
            slices,
            channels,
            groups,
            elements,
            eps,
            stage: combine_stage::MEAN,
        };
        let coefficients = GroupNormCombine { stage: combine_stage::COEFFICIENTS, ..means };
        let slice_grid = [i64::from(slices), i64::from(groups), 1];
        let combine = Check("group_norm_combine");
        Ok([
            check.launch(slice_grid, 256, sums.bytes())?,
            combine.launch([i64::from(groups), 1, 1], 32, means.bytes())?,
            check.launch(slice_grid, 256, squares.bytes())?,
            combine.launch([i64::from(groups), 1, 1], 32, coefficients.bytes())?,
        ])
    }
}
