//! Sets of weights by name.

/// Declares the weights of one unit: each field's [`Role`](crate::backend::Role) and its tensors' names under a prefix.
///
/// Gives `specs(prefix)`, the [`WeightSpec`](crate::backend::WeightSpec)s in field order, and `take(weights)`,
/// the unit from a backend's tensors in the same order.
macro_rules! weight_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $role:ident [$($part:literal),+],)+ }) => {
        $(#[$doc])*
        struct $name<T> {
            $($(#[$field_doc])* $field: T,)+
        }

        impl<T> $name<T> {
            fn specs(prefix: &str) -> Vec<$crate::backend::WeightSpec> {
                vec![$($crate::backend::WeightSpec {
                    role: $crate::backend::Role::$role,
                    parts: vec![$(format!("{prefix}{}", $part)),+],
                },)+]
            }

            fn take(weights: Vec<T>) -> Self {
                let mut weights = weights.into_iter();
                Self { $($field: weights.next().expect("one tensor for each spec"),)+ }
            }
        }
    };
}
pub(crate) use weight_set;
