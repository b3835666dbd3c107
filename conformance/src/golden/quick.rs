//! The cases of a quick run.

use std::collections::BTreeSet;

use clap::ValueEnum;
use moss_golden::synth::Preset;

use super::Case;

/// Most bytes of weights that a quick run makes or reads for a case.
const QUICK_BYTES: u64 = 64 << 20;

/// Everything that cases can run.
const STAGES: [&str; 6] =
    ["delta-rule layers", "full-attention layers", "DiT", "guidance", "skipped blocks", "VAE"];

/// Of these what a case runs.
fn touches(case: &Case) -> BTreeSet<&'static str> {
    let layers = Preset::from_str(&case.checkpoint.config, true).ok().map(|preset| {
        let types = preset.sizes().text_encoder["text_config"]["layer_types"].take();
        types.as_array().cloned().unwrap_or_default()
    });
    let has = |kind: &str| layers.iter().flatten().any(|layer| layer == kind);
    let guided = case.request.cfg != 1.0;
    let skips = guided && !case.request.skip_layers.is_empty();
    let touched = [has("linear_attention"), has("full_attention"), true, guided, skips, true];
    STAGES.into_iter().zip(touched).filter_map(|(stage, touched)| touched.then_some(stage)).collect()
}

/// How long a case takes against others: its weights' bytes times the tokens that pass through them. `None` when its weights
/// are too many for a quick run, or the case does not say how many they are.
fn cost(case: &Case) -> Option<u64> {
    let bytes = case.checkpoint.bytes.filter(|&bytes| bytes <= QUICK_BYTES)?;
    let tokens = |name: &str| case.array(name).map_or(0, <[f64]>::len);
    let rows = if case.request.cfg == 1.0 {
        vec![tokens("ids")]
    } else {
        vec![tokens("ids"), tokens("ids_negative")]
    };
    let latents = case.request.h() * case.request.w();
    let text: usize = rows.iter().sum();
    let positions = text + case.request.steps * (text + rows.len() * latents);
    Some(bytes.saturating_mul(positions as u64))
}

/// The quickest of `cases` that together touch every stage that any quick one touches, quickest first.
pub fn quick(cases: Vec<Case>) -> Vec<Case> {
    let mut by_cost: Vec<(u64, Case)> =
        cases.into_iter().filter_map(|case| cost(&case).map(|cost| (cost, case))).collect();
    by_cost.sort_by_key(|(cost, _)| *cost);
    let mut seen = BTreeSet::new();
    by_cost.retain(|(_, case)| {
        let before = seen.len();
        seen.extend(touches(case));
        seen.len() > before
    });
    by_cost.into_iter().map(|(_, case)| case).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn committed() -> Vec<Case> {
        Case::open_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/cases")).unwrap()
    }

    #[test]
    fn a_quick_run_touches_every_stage_and_makes_no_large_checkpoint() {
        let chosen = quick(committed());
        let touched: BTreeSet<&str> = chosen.iter().flat_map(touches).collect();
        assert_eq!(touched, BTreeSet::from(STAGES));
        for (i, case) in chosen.iter().enumerate() {
            assert!(case.checkpoint.bytes.unwrap() < 16 << 20, "{}", case.name);
            // No quicker one does what is only done here.
            let others: BTreeSet<&str> = chosen[..i].iter().flat_map(touches).collect();
            let new = || touches(case).into_iter().filter(|stage| !others.contains(stage));
            assert!(new().count() > 0, "{}", case.name);
            let quicker =
                committed().into_iter().filter(|other| cost(other).is_some() && cost(other) < cost(case));
            for other in quicker {
                assert!(
                    new().all(|stage| !touches(&other).contains(stage)),
                    "{} before {}",
                    other.name,
                    case.name
                );
            }
        }
    }

    #[test]
    fn names_and_their_order_do_not_matter() {
        let seeds = |cases: Vec<Case>| cases.iter().map(|case| case.request.seed).collect::<Vec<_>>();
        let mut renamed = committed();
        renamed.reverse();
        let names = 0..renamed.len();
        names.zip(&mut renamed).for_each(|(i, case)| case.name = format!("case-{i}"));
        assert_eq!(seeds(quick(renamed)), seeds(quick(committed())));
    }

    #[test]
    fn weights_of_unknown_or_large_size_are_left_out() {
        for bytes in [None, Some(QUICK_BYTES + 1)] {
            let mut cases = committed();
            cases.iter_mut().for_each(|case| case.checkpoint.bytes = bytes);
            assert!(quick(cases).is_empty());
        }
    }
}
