//! Sets of weights: what a model's tensors are called, how they are used and which shape they have, said once.

use crate::backend::WeightSpec;
use crate::files::TensorSpec;

/// Declares the weights of one unit: each field's [`Role`](crate::backend::Role) and its tensors, stacked in this order, with
/// their names under a prefix and their shapes. The unit's arguments are what the shapes follow from, its letters stand for
/// sizes in them:
///
/// ```ignore
/// weight_set! {
///     /// Two projections with one input.
///     Pair(c: &Config) [d = c.width] {
///         norm: Vector ["norm.weight" [d]],
///         ab: Matrix ["a.weight" [d, d], "b.weight" [2 * d, d]],
///     }
/// }
/// ```
///
/// Gives `Pair::specs(prefix, c)`, the [`WeightSpec`]s in field order, and `Pair::take(&mut weights)`, the unit from as many of
/// a backend's tensors in the same order.
macro_rules! weight_set {
    (
        $(#[$doc:meta])*
        $name:ident ($($arg:ident: $type:ty),*) $([$($letter:ident = $size:expr),+])? {
            $($(#[$field_doc:meta])* $field:ident: $role:ident [$($part:literal $shape:tt),+],)+
        }
    ) => {
        $(#[$doc])*
        struct $name<T> {
            $($(#[$field_doc])* $field: T,)+
        }

        impl $name<()> {
            fn specs(prefix: &str, $($arg: $type),*) -> Vec<$crate::backend::WeightSpec> {
                $($(let $letter = $size;)+)?
                vec![$($crate::backend::WeightSpec {
                    role: $crate::backend::Role::$role,
                    parts: vec![$($crate::files::TensorSpec {
                        name: format!("{prefix}{}", $part),
                        shape: vec!$shape,
                    }),+],
                },)+]
            }
        }

        impl<T> $name<T> {
            fn take(weights: &mut impl Iterator<Item = T>) -> Self {
                Self { $($field: weights.next().expect("one tensor for each spec"),)+ }
            }
        }
    };
}
pub(crate) use weight_set;

/// The tensors of some weights.
pub(crate) fn tensors(weights: impl IntoIterator<Item = WeightSpec>) -> impl Iterator<Item = TensorSpec> {
    weights.into_iter().flat_map(|weight| weight.parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Role;

    weight_set! {
        /// Two weights, one of two tensors.
        Pair(width: usize) [d = width, w = 2 * width] {
            norm: Vector ["norm" [d]],
            ab: Matrix ["a" [d, w], "b" [3, w]],
        }
    }

    #[test]
    fn a_declaration_gives_specs_tensors_and_fields_in_one_order() {
        let specs = Pair::specs("p.", 4);
        let spec = |name: &str, shape: &[usize]| TensorSpec { name: name.into(), shape: shape.into() };
        let expected = [spec("p.norm", &[4]), spec("p.a", &[4, 8]), spec("p.b", &[3, 8])];
        assert_eq!(specs.iter().map(|spec| spec.role).collect::<Vec<_>>(), [Role::Vector, Role::Matrix]);
        assert_eq!(tensors(specs).collect::<Vec<_>>(), expected);
        let mut given = 1..;
        let (first, second) = (Pair::take(&mut given), Pair::take(&mut given));
        assert_eq!((first.norm, first.ab, second.norm, second.ab), (1, 2, 3, 4));
    }
}
