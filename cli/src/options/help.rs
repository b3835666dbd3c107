//! What the help says beside the options.

/// Version, with the commit where the program was built from its repository.
pub(crate) const VERSION: &str = env!("MOSS_VERSION");

/// The order of the help.
pub(super) const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How to begin.
pub(crate) const BEGIN: &str = "\
Begin with the small demo model that is inside this program:
  moss --prompt \"a red apple on a wooden table\" -o apple.png";

/// The two forms of a command line.
pub(super) const USAGE: &str = "moss --prompt TEXT -o FILE.png [OPTIONS]
       moss COMMAND --help";

/// Behind the options.
pub(super) const AFTER: &str = "\
Examples:
  moss -p \"a red apple\" -o apple.png                              the demo model
  moss -m DIR -p \"a red apple\" --size 1024x1024 -o apple.png      MOSS-Image from its folder
  moss -p \"a red apple\" --seed -1 -o pictures                     another one each time
  moss -p \"a red apple\" --seed -1 -o 'apple-{index}.png'          apple-0001.png, apple-0002.png, ...
  moss --from apple.png --steps 30 -o better.png                   a picture again, with other steps
  moss --list-devices                                              which GPUs can be used
  moss -p \"a red apple\" --dry-run                                 what would run, and its memory

Environment:
  MOSS_MODEL, MOSS_BACKEND, MOSS_THREADS, MOSS_DEVICE, MOSS_VRAM_BUDGET and MOSS_DEVICE_TIMEOUT give
  defaults of the options; the command line comes first, and an empty variable counts as none.
  HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES hide GPUs from the HIP runtime; LD_LIBRARY_PATH says
  where it may lie.

Exit status:
  0               done
  1               failed: a file, the model, the memory or the GPU; the last line says what
  2               an option is wrong, or asks for what this program cannot do
  129, 130, 143   ended by a hang-up, Ctrl-C or SIGTERM";
