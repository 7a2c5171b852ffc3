//! The predictors of a block: samples from residuals.
//!
//! A block has up to 16 passes. Each predicts a sample by one before it, by two before it, or by
//! one of the other channel, times a weight that follows the signs.

/// The samples of a block. A mono block has none of a second channel.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) first: Vec<i32>,
    pub(super) second: Vec<i32>,
}

/// A pass, with the samples before the block.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pass {
    /// The distance of the sample that predicts: 1 to 8. 17 and 18 take two samples, and numbers
    /// below 0 the other channel.
    pub(super) term: i8,
    pub(super) sides: [ChannelSide; 2],
}

/// The state of a pass for one channel.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ChannelSide {
    /// Times 1024.
    pub(super) weight: i32,
    /// The change of the weight after each sample, up or down.
    pub(super) delta: i32,
    /// The earlier samples, the first one of term 17 and 18 being the latest.
    pub(super) before: [i32; 8],
}

fn low(number: i64) -> i32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default().cast_signed()
}

impl ChannelSide {
    /// Returns the sample of a residual that `source` predicts.
    #[inline]
    fn predicted(&self, source: i32, residual: i32) -> i32 {
        let product = i64::from(self.weight) * i64::from(source);
        low((product + 512) >> 10).wrapping_add(residual)
    }

    #[inline]
    fn predict(&mut self, source: i32, residual: i32) -> i32 {
        let sample = self.predicted(source, residual);
        if source != 0 && residual != 0 {
            // The sign is random, so a branch would be slow.
            let sign = (source ^ residual) >> 31;
            self.weight = self.weight.wrapping_add((self.delta ^ sign) - sign);
        }
        sample
    }

    /// Like [`Self::predict`], with a weight of at most 1.
    #[inline]
    fn predict_clipped(&mut self, source: i32, residual: i32) -> i32 {
        let sample = self.predicted(source, residual);
        if source != 0 && residual != 0 {
            let sign = (source ^ residual) >> 31;
            let weight = (self.weight ^ sign).wrapping_sub(sign).wrapping_add(self.delta).min(1024);
            self.weight = (weight ^ sign).wrapping_sub(sign);
        }
        sample
    }

    /// Predicts each sample by the one `distance` before it.
    fn run_delayed(&mut self, distance: usize, samples: &mut [i32]) {
        let mut before = self.before;
        for row in samples.chunks_mut(distance) {
            for (sample, earlier) in row.iter_mut().zip(&mut before) {
                *earlier = self.predict(*earlier, *sample);
                *sample = *earlier;
            }
        }
    }

    /// Predicts each sample by a line through the two before it.
    fn run_linear(&mut self, line: fn(i32, i32) -> i32, samples: &mut [i32]) {
        let [mut last, mut second, ..] = self.before;
        for sample in samples {
            let source = line(last, second);
            second = last;
            last = self.predict(source, *sample);
            *sample = last;
        }
    }

    fn run(&mut self, term: i8, samples: &mut [i32]) {
        match term {
            17 => {
                self.run_linear(|last, second| last.wrapping_mul(2).wrapping_sub(second), samples);
            }
            18 => self.run_linear(
                |last, second| last.wrapping_add(last.wrapping_sub(second) >> 1),
                samples,
            ),
            _ => self.run_delayed(usize::try_from(term).unwrap_or(1).max(1), samples),
        }
    }
}

impl Pass {
    /// Replaces residuals by samples.
    pub(super) fn run(mut self, samples: &mut Samples) {
        let [first, second] = &mut self.sides;
        let Samples { first: firsts, second: seconds } = samples;
        if self.term > 0 {
            first.run(self.term, firsts);
            second.run(self.term, seconds);
            return;
        }
        let ([mut a, ..], [mut b, ..]) = (first.before, second.before);
        let pairs = firsts.iter_mut().zip(seconds);
        match self.term {
            -1 => pairs.for_each(|(left, right)| {
                *left = first.predict_clipped(a, *left);
                *right = second.predict_clipped(*left, *right);
                a = *right;
            }),
            -2 => pairs.for_each(|(left, right)| {
                *right = second.predict_clipped(b, *right);
                *left = first.predict_clipped(*right, *left);
                b = *left;
            }),
            _ => pairs.for_each(|(left, right)| {
                *left = first.predict_clipped(a, *left);
                *right = second.predict_clipped(b, *right);
                (a, b) = (*right, *left);
            }),
        }
    }
}
