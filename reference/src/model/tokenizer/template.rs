//! The chat template: the text of one user message as the model was trained to see it.

use minijinja::{Environment, ErrorKind, State, Value, context};

use super::Error;

/// The tokenizer's chat template, compiled; or the official result, for a folder without one.
pub(super) struct ChatTemplate {
    /// The file that the template is from, for messages, and the environment that holds it.
    template: Option<(String, Environment<'static>)>,
    /// `bos_token`, `eos_token` and so on: name and text.
    special_tokens: Vec<(String, String)>,
}

/// The template's name within its environment; without an extension nothing is escaped.
const NAME: &str = "chat_template";

impl ChatTemplate {
    /// `template` is the file's name and the source.
    pub(super) fn new(
        template: Option<(String, String)>,
        special_tokens: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let template = match template {
            Some((file, source)) => {
                let environment = compile(source).map_err(|error| failure(&file, &error))?;
                Some((file, environment))
            }
            None => None,
        };
        Ok(Self { template, special_tokens })
    }

    /// The text of one user message `prompt`, ready for the answer (with thinking enabled).
    pub(super) fn render(&self, prompt: &str) -> Result<String, Error> {
        let Some((file, environment)) = &self.template else {
            let prompt = prompt.trim_matches(is_python_space);
            return Ok(format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n"));
        };
        let special_tokens = self.special_tokens.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let context = context! {
            messages => [context! { role => "user", content => prompt }],
            tools => (),
            documents => (),
            add_generation_prompt => true,
            enable_thinking => true,
            ..special_tokens.collect::<Value>()
        };
        environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| failure(file, &error))
    }
}

fn failure(file: &str, error: &minijinja::Error) -> Error {
    Error::Template { file: file.to_owned(), reason: error.to_string() }
}

/// An environment with what Hugging Face gives to chat templates, where it differs from minijinja's own.
fn compile(source: String) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(method);
    environment.add_filter("trim", |text: &str, characters: Option<&str>| {
        strip(text, characters, true, true).to_owned()
    });
    environment.add_function("raise_exception", |message: String| {
        Err::<Value, _>(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    // Jinja reads every line end of a template as a newline.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

/// What Python's `str.strip` removes: white space of Unicode, and the four separators U+001C to U+001F.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Python's `strip`, `lstrip` (`start`) and `rstrip` (`end`) of white space or of `characters`.
fn strip<'a>(text: &'a str, characters: Option<&str>, start: bool, end: bool) -> &'a str {
    let stripped = |c: char| characters.map_or_else(|| is_python_space(c), |set| set.contains(c));
    let text = if start { text.trim_start_matches(stripped) } else { text };
    if end { text.trim_end_matches(stripped) } else { text }
}

/// Python's methods on strings and mappings.
fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, minijinja::Error> {
    if let (Some(text), "strip" | "lstrip" | "rstrip") = (value.as_str(), name) {
        let (characters,) = minijinja::value::from_args::<(Option<&str>,)>(args)?;
        return Ok(strip(text, characters, name != "rstrip", name != "lstrip").into());
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}
