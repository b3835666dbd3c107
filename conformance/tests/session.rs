//! A session's runs: the order of their parts, what one leaves for the next, and that no bit depends on it.

use std::ops::ControlFlow;

use moss_golden::synth::{self, Preset};
use moss_reference::backend::Backend;
use moss_reference::cpu::CpuBackend;
use moss_reference::files::ModelSource;
use moss_reference::model::Model;
use moss_reference::model::observe::{Event, Observer, Part, RunError};
use moss_reference::run::{Session, Settings, Texts};

/// Notes the parts that begin and the text layers that run; may ask to stop at a part.
#[derive(Default)]
struct Notes {
    parts: Vec<Part>,
    layers: usize,
    stop_at: Option<Part>,
}

impl<B: Backend> Observer<B> for Notes {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Begin(part) => {
                self.parts.push(part);
                if self.stop_at == Some(part) {
                    return ControlFlow::Break(());
                }
            }
            Event::TextLayer { .. } => self.layers += 1,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

const DENOISE: Part = Part::Denoise { steps: 2 };

fn settings(width: u32, seed: u64) -> Settings {
    Settings { width, height: 32, steps: 2, seed: Some(seed), skip_layers: vec![1], ..Settings::default() }
}

/// The bits of a picture, and what was noted on the way.
fn picture(
    session: &mut Session<'_, CpuBackend>,
    settings: &Settings,
    rows: &[Vec<u32>],
) -> (Vec<u32>, Notes) {
    let mut notes = Notes::default();
    let mut run = session.admit(settings.h(), settings.w(), Texts::Ids(rows)).unwrap();
    let latents = run.latents(settings, None, &mut notes).unwrap();
    let pixels = run.decode(&latents, &mut notes).unwrap();
    (pixels.iter().map(|x| x.to_bits()).collect(), notes)
}

#[test]
fn a_session_keeps_what_the_next_picture_needs_and_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    synth::write(&Preset::Tiny.sizes(), 1, &folder.path().join("tiny")).unwrap();
    let model = Model::open(&ModelSource::Folder(folder.path().join("tiny"))).unwrap();
    let backend = CpuBackend::new().unwrap();
    let fresh = |settings: &Settings, rows: &[Vec<u32>]| {
        picture(&mut Session::new(&backend, &model), settings, rows).0
    };
    let layers = model.config.text.num_hidden_layers;
    let (apple, nothing, pear) = (vec![5, 90, 17, 200], vec![8, 9], vec![5, 90, 18]);
    let rows = [apple.clone(), nothing.clone()];

    let mut session = Session::new(&backend, &model);
    let (first, notes) = picture(&mut session, &settings(32, 1), &rows);
    // The plan's order: the VAE first, the text encoder alone with it, then the DiT.
    assert_eq!(notes.parts, [Part::LoadVae, Part::Encode, Part::LoadDit, DENOISE, Part::Decode]);
    assert_eq!(notes.layers, layers, "both rows run through a layer together");
    assert!(first == fresh(&settings(32, 1), &rows));

    let (again, notes) = picture(&mut session, &settings(32, 1), &rows);
    assert!(again == first);
    assert_eq!(notes.parts, [DENOISE, Part::Decode], "nothing is loaded or encoded again");
    let (other, _) = picture(&mut session, &settings(32, 2), &rows);
    assert!(other != first && other == fresh(&settings(32, 2), &rows));

    // A row that is new runs alone; the one that is known does not depend on who it was with.
    let rows = [pear, nothing];
    let (found, notes) = picture(&mut session, &settings(32, 1), &rows);
    assert_eq!(notes.parts[0], Part::Encode);
    assert!(found == fresh(&settings(32, 1), &rows));

    // A larger picture is another plan for the DiT; a smaller one is not.
    for (width, parts) in [(64, 3), (32, 2)] {
        let (found, notes) = picture(&mut session, &settings(width, 1), &rows);
        assert_eq!(notes.parts.len(), parts, "{:?}", notes.parts);
        assert!(found == fresh(&settings(width, 1), &rows), "{width}");
    }

    // The same text in both rows is encoded once and counts twice.
    let same = [apple.clone(), apple];
    let (found, notes) = picture(&mut Session::new(&backend, &model), &settings(32, 1), &same);
    assert_eq!(notes.layers, layers);
    assert!(found == picture(&mut session, &settings(32, 1), &same).0);
}

#[test]
fn each_step_stands_alone_and_a_run_can_be_stopped_before_any() {
    let folder = tempfile::tempdir().unwrap();
    synth::write(&Preset::Tiny.sizes(), 1, &folder.path().join("tiny")).unwrap();
    let model = Model::open(&ModelSource::Folder(folder.path().join("tiny"))).unwrap();
    let backend = CpuBackend::new().unwrap();
    let rows = [vec![5, 90, 17], vec![8]];
    let settings = settings(32, 1);
    let (whole, _) = picture(&mut Session::new(&backend, &model), &settings, &rows);
    let mut session = Session::new(&backend, &model);
    let (h, w) = (settings.h(), settings.w());

    for part in [Part::LoadVae, Part::Encode, Part::LoadDit, DENOISE] {
        let mut notes = Notes { stop_at: Some(part), ..Notes::default() };
        let mut run = session.admit(h, w, Texts::Ids(&rows)).unwrap();
        let stopped = run.latents(&settings, None, &mut notes);
        assert!(matches!(stopped, Err(RunError::Cancelled)), "{part:?}");
    }
    let states = session.admit(h, w, Texts::Ids(&rows)).unwrap().encode(&mut Notes::default()).unwrap();
    assert_eq!(states.iter().map(|states| states.length).collect::<Vec<_>>(), [3, 1]);

    // From the states, in a session that knows no prompt.
    let mut session = Session::new(&backend, &model);
    let mut notes = Notes::default();
    let mut run = session.admit(h, w, Texts::States(&states)).unwrap();
    assert_eq!(run.stages().specs().map(|spec| spec.name).collect::<Vec<_>>(), ["vae", "dit"]);
    let latents = run.latents(&settings, None, &mut notes).unwrap();
    assert_eq!(notes.parts, [Part::LoadVae, Part::LoadDit, DENOISE]);
    let mut session = Session::new(&backend, &model);
    let pixels =
        session.admit(h, w, Texts::States(&states)).unwrap().decode(&latents, &mut Notes::default()).unwrap();
    assert!(pixels.iter().map(|x| x.to_bits()).collect::<Vec<_>>() == whole);
}
