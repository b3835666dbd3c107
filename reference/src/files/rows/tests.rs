//! Ranges of stacked tensors of every type, from files and from the program.

use std::fs;

use half::{bf16, f16};

use super::*;
use crate::files::checkpoint::tests::{file_of, specs};
use crate::files::{Checkpoint, ModelSource, Part, TensorSpec};

/// Element `i` of tensor `t`: some need all bits of their type, some lie half way between two bf16.
fn value(t: usize, i: usize) -> f32 {
    let steps = (t * 7919 + i * 2_654_435) % 4001;
    (steps as f32 - 2000.0) / 1024.0
}

fn bytes(dtype: &str, t: usize, count: usize) -> Vec<u8> {
    let values = (0..count).map(|i| value(t, i));
    match dtype {
        "BF16" => values.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
        "F16" => values.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// What a file of this type holds of [`value`].
fn stored(dtype: &str, t: usize, i: usize) -> f32 {
    match dtype {
        "BF16" => bf16::from_f32(value(t, i)).to_f32(),
        "F16" => f16::from_f32(value(t, i)).to_f32(),
        _ => value(t, i),
    }
}

const TENSORS: [(&str, &str, [usize; 2]); 4] =
    [("b", "BF16", [5, 48]), ("h", "F16", [3, 48]), ("f", "F32", [801, 48]), ("c", "BF16", [2, 48])];

fn file() -> Vec<u8> {
    let tensors: Vec<_> = TENSORS
        .iter()
        .enumerate()
        .map(|(t, (name, dtype, shape))| (*name, *dtype, &shape[..], bytes(dtype, t, shape[0] * shape[1])))
        .collect();
    file_of(&tensors)
}

fn parts() -> Vec<TensorSpec> {
    specs(&TENSORS.each_ref().map(|(name, _, shape)| (*name, &shape[..])))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("vae")).unwrap();
    fs::write(folder.path().join("vae/m.safetensors"), file()).unwrap();
    folder
}

#[test]
fn any_range_is_that_of_the_parts_end_to_end() {
    let expected: Vec<f32> = TENSORS
        .iter()
        .enumerate()
        .flat_map(|(t, (_, dtype, [n, k]))| (0..n * k).map(move |i| stored(dtype, t, i)))
        .collect();
    let rounded: Vec<bf16> = expected.iter().map(|&x| bf16::from_f32(x)).collect();
    assert!(expected.iter().zip(&rounded).any(|(x, r)| r.to_f32() != *x), "some are rounded");
    let folder = folder();
    let embedded: &'static [u8] = file().leak();
    let files: &'static [(&'static str, &'static [u8])] = vec![("vae/m.safetensors", embedded)].leak();
    for source in [ModelSource::Folder(folder.path().into()), ModelSource::Embedded(files)] {
        let checkpoint = Checkpoint::open(&source, Part::Vae, &parts()).unwrap();
        let rows = checkpoint.rows(&parts());
        assert_eq!(rows.shape(), [811, 48]);
        assert_eq!(rows.to_vec::<f32>().unwrap(), expected);
        assert_eq!(rows.to_vec::<bf16>().unwrap(), rounded);
        let pieces: Vec<bf16> = rows.to_bf16_parts().unwrap().iter().flat_map(|part| part.to_vec()).collect();
        assert_eq!(pieces, rounded);
        // Across every seam, across the buffer's end, nothing, one element.
        let n = rows.count();
        for range in [0..n, 239..241, 383..385, 384..n, 400..400 + 2 * BUFFER / 4 + 5, n - 97..n, 7..7, 0..1]
        {
            let mut found = vec![f32::NAN; range.len()];
            rows.read(range.clone(), &mut found).unwrap();
            assert_eq!(found, expected[range.clone()], "{range:?}");
            let mut found = vec![bf16::NAN; range.len()];
            rows.read(range.clone(), &mut found).unwrap();
            assert_eq!(found, rounded[range.clone()], "{range:?}");
        }
    }
}

#[test]
fn bf16_parts_stay_in_the_file() {
    let folder = folder();
    let checkpoint =
        Checkpoint::open(&ModelSource::Folder(folder.path().into()), Part::Vae, &parts()).unwrap();
    let parts = checkpoint.rows(&parts()).to_bf16_parts().unwrap();
    let mapped: Vec<bool> = parts.iter().map(|part| matches!(part, Bf16Rows::Mapped(_))).collect();
    assert_eq!(mapped, [true, false, false, true]);
    assert!(std::ptr::eq(parts[0].as_ptr().cast::<u8>(), checkpoint.get("b").bytes().as_ptr()));
}

#[test]
fn a_file_that_shrank_is_named_and_one_that_was_replaced_is_not_read() {
    let folder = folder();
    let source = ModelSource::Folder(folder.path().into());
    let checkpoint = Checkpoint::open(&source, Part::Vae, &parts()).unwrap();
    let rows = checkpoint.rows(&parts()[2..3]);
    let before = rows.to_vec::<f32>().unwrap();
    let path = folder.path().join("vae/m.safetensors");
    let other = folder.path().join("other");
    fs::write(&other, vec![0; file().len()]).unwrap();
    fs::rename(&path, folder.path().join("was")).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(rows.to_vec::<f32>().unwrap(), before, "the file that was checked");
    let was = fs::OpenOptions::new().write(true).open(folder.path().join("was")).unwrap();
    was.set_len(2000).unwrap();
    let error = rows.to_vec::<f32>().unwrap_err();
    assert!(error.path.ends_with("vae/m.safetensors"), "{error}");
}

#[test]
#[should_panic(expected = "rows: x [2, 4] under b [5, 48]")]
fn parts_of_different_rows_are_a_mistake() {
    let list: [(&str, &[usize]); 2] = [("b", &[5, 48]), ("x", &[2, 4])];
    let file = file_of(&[
        ("b", "BF16", &[5, 48], bytes("BF16", 0, 240)),
        ("x", "BF16", &[2, 4], bytes("BF16", 1, 8)),
    ]);
    let files: &'static [(&'static str, &'static [u8])] = vec![("vae/m.safetensors", &*file.leak())].leak();
    let checkpoint = Checkpoint::open(&ModelSource::Embedded(files), Part::Vae, &specs(&list)).unwrap();
    checkpoint.rows(&specs(&list));
}
