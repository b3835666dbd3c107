//! A run from texts to a picture, stage by stage in the order of the memory plan, and what is kept from one to the next.

use std::collections::VecDeque;
use std::sync::Arc;

use half::bf16;

use super::{Settings, Stages, decode, encode};
use crate::backend::{Backend, HostData, StageSpec, Tensor as _};
use crate::model::dit::{self, Dit};
use crate::model::observe::{Event, Observer, Part, RunError, announce};
use crate::model::vae::{self, Vae};
use crate::model::{Model, text_encoder};
use crate::sample::noise::randn;
use crate::sample::{self, Start};

/// Text states of one prompt on the host, `[L, hidden]` bf16.
#[derive(Clone, Debug, PartialEq)]
pub struct TextStates {
    /// The elements, row-major.
    pub data: Vec<bf16>,
    /// Tokens.
    pub length: usize,
}

/// What the rows of a run are conditioned on: cond, then uncond if there is one.
#[derive(Clone, Copy)]
pub enum Texts<'t> {
    /// Token ids, for the model's text encoder.
    Ids(&'t [Vec<u32>]),
    /// Text states that are there already.
    States(&'t [Arc<TextStates>]),
}

impl Texts<'_> {
    /// Tokens of each row.
    pub fn lengths(&self) -> Vec<usize> {
        match self {
            Texts::Ids(rows) => rows.iter().map(Vec::len).collect(),
            Texts::States(rows) => rows.iter().map(|states| states.length).collect(),
        }
    }
}

/// Text states of the prompts used last, by their token ids; of one text encoder.
#[derive(Default)]
struct PromptCache {
    /// The one used last at the end.
    known: VecDeque<(Vec<u32>, Arc<TextStates>)>,
}

impl PromptCache {
    /// Most bytes of states; the prompts of one run are kept whatever their size.
    const MOST: usize = 64 << 20;

    fn has(&self, ids: &[u32]) -> bool {
        self.known.iter().any(|(known, _)| known == ids)
    }

    /// The states of a prompt, which is then the one used last.
    fn get(&mut self, ids: &[u32]) -> Option<Arc<TextStates>> {
        let place = self.known.iter().position(|(known, _)| known == ids)?;
        let entry = self.known.remove(place)?;
        let states = entry.1.clone();
        self.known.push_back(entry);
        Some(states)
    }

    fn put(&mut self, ids: &[u32], states: Arc<TextStates>) {
        self.known.push_back((ids.to_vec(), states));
    }

    /// Forgets prompts, from the one not used for longest, until all but the last `keep` take no more than [`Self::MOST`].
    fn shrink(&mut self, keep: usize) {
        let bytes = |known: &VecDeque<(Vec<u32>, Arc<TextStates>)>| -> usize {
            known.iter().map(|(_, states)| size_of_val(&states.data[..])).sum()
        };
        while self.known.len() > keep && bytes(&self.known) > Self::MOST {
            self.known.pop_front();
        }
    }
}

/// A model on a backend, for one picture after another. What a picture leaves behind for the next: the VAE, the text states of
/// its prompts (of this model's text encoder, by token ids), and the DiT where the backend has room for it beside the rest.
pub struct Session<'m, B: Backend> {
    backend: &'m B,
    model: &'m Model,
    vae: Option<Vae<B>>,
    dit: Option<LoadedDit<B>>,
    prompts: PromptCache,
}

struct LoadedDit<B: Backend> {
    dit: Dit<B>,
    /// The activations that it was loaded for.
    activation_bytes: u64,
}

impl<'m, B: Backend> Session<'m, B> {
    /// A session that has loaded nothing.
    pub fn new(backend: &'m B, model: &'m Model) -> Self {
        Self { backend, model, vae: None, dit: None, prompts: PromptCache::default() }
    }

    /// Admits a whole run over `h * w` latents, so that it is refused before anything of it is loaded.
    ///
    /// # Errors
    /// The backend's refusal.
    pub fn admit<'s, 't>(
        &'s mut self,
        h: usize,
        w: usize,
        texts: Texts<'t>,
    ) -> Result<Run<'s, 'm, 't, B>, RunError> {
        let run = Run { session: self, h, w, texts, uploaded: None };
        run.stages().admit(run.session.backend)?;
        Ok(run)
    }
}

/// One admitted run of a session. Each step loads what it needs first and frees what the plan frees before it.
pub struct Run<'s, 'm, 't, B: Backend> {
    session: &'s mut Session<'m, B>,
    h: usize,
    w: usize,
    texts: Texts<'t>,
    /// The text states of [`Run::prepare`] on the backend.
    uploaded: Option<Vec<B::Tensor>>,
}

impl<B: Backend> Run<'_, '_, '_, B> {
    /// The stages that the run will go through; the text encoder is not among them when all text states are there.
    pub fn stages(&self) -> Stages {
        let mut stages = self.session.model.stages(self.h, self.w, &self.texts.lengths());
        if !self.needs_encoder() {
            drop(stages.take_text_encoder());
        }
        stages
    }

    fn needs_encoder(&self) -> bool {
        match self.texts {
            Texts::Ids(rows) => rows.iter().any(|ids| !self.session.prompts.has(ids)),
            Texts::States(_) => false,
        }
    }

    /// The text states of each row. The VAE is loaded before, the text encoder runs only for prompts that the session does not
    /// know, and its weights are gone when this returns.
    ///
    /// # Errors
    /// What the backend or [`TextEncoder::encode`](text_encoder::TextEncoder::encode) fails with.
    pub fn encode(&mut self, observer: &mut dyn Observer<B>) -> Result<Vec<Arc<TextStates>>, RunError> {
        self.load_vae(observer)?;
        let rows = match self.texts {
            Texts::States(states) => return Ok(states.to_vec()),
            Texts::Ids(rows) => rows,
        };
        let mut unknown: Vec<&[u32]> = Vec::new();
        for ids in rows {
            if !self.session.prompts.has(ids) && !unknown.contains(&&ids[..]) {
                unknown.push(ids);
            }
        }
        if !unknown.is_empty() {
            self.run_encoder(&unknown, observer)?;
        }
        let prompts = &mut self.session.prompts;
        let states = rows.iter().map(|ids| prompts.get(ids).expect("encoded or known")).collect();
        prompts.shrink(rows.len());
        Ok(states)
    }

    fn run_encoder(&mut self, prompts: &[&[u32]], observer: &mut dyn Observer<B>) -> Result<(), RunError> {
        let Session { backend, model, .. } = *self.session;
        // The two never share the device.
        self.session.dit = None;
        let tokens = prompts.iter().map(|ids| ids.len()).sum();
        let config = &model.config.text;
        let spec = text_encoder::stage_spec(config, model.text_encoder.clone(), tokens);
        announce(observer, Event::Begin(Part::Encode))?;
        let states = encode(backend, config, spec, prompts, observer)?;
        for (ids, states) in prompts.iter().zip(&states) {
            let length = states.shape()[0];
            let HostData::Bf16(data) = backend.download(states)? else { panic!("text states are bf16") };
            self.session.prompts.put(ids, Arc::new(TextStates { data, length }));
        }
        announce(observer, Event::End(Part::Encode))
    }

    fn load_vae(&mut self, observer: &mut dyn Observer<B>) -> Result<(), RunError> {
        if self.session.vae.is_some() {
            return Ok(());
        }
        let Session { backend, model, .. } = *self.session;
        announce(observer, Event::Begin(Part::LoadVae))?;
        let spec = vae::stage_spec(&model.config.vae, model.vae.clone(), self.h, self.w);
        self.session.vae = Some(Vae::load(backend, &model.config.vae, spec)?);
        announce(observer, Event::End(Part::LoadVae))
    }

    /// Brings the run to its first step: everything loaded, the texts encoded.
    ///
    /// # Errors
    /// What the backend or the text encoder fails with.
    pub fn prepare(&mut self, observer: &mut dyn Observer<B>) -> Result<(), RunError> {
        if self.uploaded.is_none() {
            let states = self.encode(observer)?;
            self.uploaded = Some(self.upload(&states)?);
        }
        self.load_dit(observer)
    }

    fn upload(&self, states: &[Arc<TextStates>]) -> Result<Vec<B::Tensor>, RunError> {
        let upload = |states: &Arc<TextStates>| {
            let width = states.data.len() / states.length;
            Ok(self.session.backend.upload(HostData::Bf16(states.data.clone()), &[states.length, width])?)
        };
        states.iter().map(upload).collect()
    }

    fn dit_spec(&self) -> StageSpec {
        let model = self.session.model;
        let lengths = self.texts.lengths();
        let tokens = lengths.iter().sum::<usize>() + lengths.len() * self.h * self.w;
        dit::stage_spec(&model.config.dit, model.transformer.clone(), tokens, usize::MAX)
    }

    fn load_dit(&mut self, observer: &mut dyn Observer<B>) -> Result<(), RunError> {
        self.load_vae(observer)?;
        let spec = self.dit_spec();
        let activation_bytes = spec.activation_bytes;
        match &self.session.dit {
            Some(loaded) if loaded.activation_bytes >= activation_bytes => return Ok(()),
            // A larger picture is another plan.
            _ => self.session.dit = None,
        }
        let Session { backend, model, .. } = *self.session;
        announce(observer, Event::Begin(Part::LoadDit))?;
        let dit = Dit::load(backend, &model.config.dit, spec)?;
        self.session.dit = Some(LoadedDit { dit, activation_bytes });
        announce(observer, Event::End(Part::LoadDit))
    }

    /// The weights of the DiT, while they are loaded.
    pub fn dit_stage(&self) -> Option<&B::Stage> {
        self.session.dit.as_ref().map(|loaded| loaded.dit.stage())
    }

    /// The final latents `[128, h, w]` of a request, from `noise` of that shape or from that of its seed.
    ///
    /// # Errors
    /// What [`Run::prepare`] and [`Run::denoise`] fail with, or settings without a schedule.
    pub fn latents(
        &mut self,
        settings: &Settings,
        noise: Option<&[f32]>,
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<f32>, RunError> {
        let sigmas = settings.sigmas()?;
        let count = self.session.model.config.dit.latent_channels * self.h * self.w;
        let seeded;
        let noise = match noise {
            Some(noise) => noise,
            None => {
                seeded = randn(settings.seed.expect("checked: a seed or noise"), count);
                &seeded
            }
        };
        let start = Start { noise, h: self.h, w: self.w, sigmas: &sigmas, guidance: &settings.guidance() };
        self.prepare(observer)?;
        let states = self.uploaded.take().expect("prepared");
        self.steps(&states, &start, observer)
    }

    /// The final latents `[128, h, w]` from text states of the rows and a start of this run's size.
    ///
    /// # Errors
    /// What the backend fails with; see [`sample::denoise`].
    pub fn denoise(
        &mut self,
        states: &[Arc<TextStates>],
        start: &Start<'_>,
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<f32>, RunError> {
        let states = self.upload(states)?;
        self.load_dit(observer)?;
        self.steps(&states, start, observer)
    }

    fn steps(
        &mut self,
        states: &[B::Tensor],
        start: &Start<'_>,
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<f32>, RunError> {
        let part = Part::Denoise { steps: start.sigmas.len() - 1 };
        let dit = &self.session.dit.as_ref().expect("loaded").dit;
        announce(observer, Event::Begin(part))?;
        let latents = sample::denoise(self.session.backend, dit, &states[0], states.get(1), start, observer)?;
        announce(observer, Event::End(part))?;
        Ok(latents)
    }

    /// The picture `[16h, 16w, 3]` of latents `[128, h, w]`, values about -1 to 1. The DiT is freed before, unless the backend
    /// has room for the decode beside it.
    ///
    /// # Errors
    /// See [`decode`].
    pub fn decode(&mut self, latents: &[f32], observer: &mut dyn Observer<B>) -> Result<Vec<f32>, RunError> {
        self.load_vae(observer)?;
        let Session { backend, model, .. } = *self.session;
        if !backend.has_room(vae::activation_bytes(&model.config.vae, self.h, self.w)) {
            self.session.dit = None;
        }
        let vae = self.session.vae.as_ref().expect("loaded");
        announce(observer, Event::Begin(Part::Decode))?;
        let picture = decode(backend, vae, latents, self.h, self.w, observer)?;
        announce(observer, Event::End(Part::Decode))?;
        Ok(picture)
    }
}
