"""Running sluice and other engines on one model file, for the benchmarks: commands and results."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import orderly

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLUICE = str(ROOT / "build/release/core/sluice")
NPM_PACKAGE = "node-llama-cpp@3.22.1"

SYNTHETIC = "random weights"  # the name that `sluice synth` gives its models
# The models whose shapes `sluice synth` has.
REAL_NAMES = {"yi-9b": "Yi-1.5-9B"}

# Prefill: one evaluation of N tokens. Decode: N tokens one after another, sampled greedily, timed
# to the last. One unmeasured turn comes first. Two lines: the release, and the two speeds.
LLAMA_CPP_RUNNER = """\
import {getLlama} from "node-llama-cpp";

const [model_path, ...counts] = process.argv.slice(2);
const [n_prompt, n_generate, threads, warm_prompt, warm_generate] = counts.map(Number);
const llama = await getLlama(
  {gpu: false, build: "never", maxThreads: 0, logLevel: "error", progressLogs: false});
const model = await llama.loadModel({modelPath: model_path, gpuLayers: 0, useMmap: true});
const context = await model.createContext({
  contextSize: n_prompt + n_generate + 16, batchSize: Math.min(n_prompt, 512), threads});
const sequence = context.getSequence();
const vocabulary = [...model.iterateAllTokens()].length;

async function tokens_per_second(count, work) {
  const start = performance.now();
  await work();
  return count * 1000 / (performance.now() - start);
}

async function generate(count) {
  let left = count;
  // Without yieldEogToken a token that ends the text would end the measurement early.
  const tokens = sequence.evaluate([500 % vocabulary], {temperature: 0, yieldEogToken: true});
  for await (const token of tokens) {
    if (--left <= 0) return;
  }
  throw new Error(`llama.cpp stopped ${left} tokens early`);
}

async function turn(prompt_tokens, generate_tokens) {
  const prompt = Array.from({length: prompt_tokens}, (_, i) => (300 + i * 7919) % vocabulary);
  await sequence.clearHistory();
  const prefill = await tokens_per_second(
    prompt_tokens, () => sequence.evaluateWithoutGeneratingNewTokens(prompt));
  return [prefill, await tokens_per_second(generate_tokens, () => generate(generate_tokens))];
}

await turn(warm_prompt, warm_generate);
const [prefill, decode] = await turn(n_prompt, n_generate);
console.log(`llama.cpp ${llama.llamaCppRelease.release}`);
console.log(`${prefill} ${decode}`);
await llama.dispose();
process.exit(0);
"""


class BenchError(Exception):
    """One line for the user: what failed, and the remedy."""


def failure(name, exit_status, errors, output):
    """One line about a command that failed, from what it printed."""
    said = (errors.strip() or output.strip() or "nothing printed").splitlines()
    lines = [line for line in said if "error" in line.lower()] or said[-1:]
    return f"{name}: exit status {exit_status}: {lines[0]}"


def run(command, **options):
    """The standard output of a command, or BenchError with what it said went wrong."""
    try:
        done = orderly.run(command, stderr=subprocess.PIPE, **options)
    except OSError as error:
        raise BenchError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BenchError(failure(command[0], done.returncode, done.stderr, done.stdout))
    return done.stdout


def last_two_numbers(name, text):
    """Prefill and decode speed from the last line that an engine printed."""
    lines = text.strip().splitlines()
    try:
        prefill, decode = (float(word) for word in lines[-1].split())
    except (IndexError, ValueError):
        raise BenchError(f"{name}: the last line it prints must be two numbers, prefill and "
                         f"decode in tokens/s; found '{lines[-1] if lines else ''}'") from None
    return prefill, decode


def sluice_command(args, repeat):
    return [args.sluice, "bench", args.model, "-p", str(args.prompt), "-n", str(args.generate),
            "--threads", str(args.threads), "--repeat", str(repeat), "--json"]


def llama_cpp_command(args, warm_prompt, warm_generate):
    """Installs llama.cpp where it is not, and says how to run it; the unmeasured turn before the
    measured one takes `warm_prompt` and `warm_generate` tokens."""
    folder = install_llama_cpp(pathlib.Path(args.peers_dir).expanduser().resolve())
    runner = folder / "bench_llama_cpp.mjs"
    runner.write_text(LLAMA_CPP_RUNNER)
    counts = (args.prompt, args.generate, args.threads, warm_prompt, warm_generate)
    return ["node", str(runner), str(pathlib.Path(args.model).resolve()), *map(str, counts)]


def llama_cpp_release(text):
    """What the runner printed about its release, or just the name."""
    lines = [line for line in text.splitlines() if line.startswith("llama.cpp ")]
    return lines[0] if lines else "llama.cpp"


def other_command(option, args):
    """The name and the command of --engine NAME=COMMAND."""
    name, separator, template = option.partition("=")
    if not separator or not name or not template:
        raise BenchError(f"--engine {option}: expected NAME=COMMAND")
    values = {"model": args.model, "prompt": args.prompt, "generate": args.generate,
              "threads": args.threads}
    return name, [re.sub(r"\{(model|prompt|generate|threads)\}",
                         lambda match: str(values[match.group(1)]), word)
                  for word in shlex.split(template)]


def install_llama_cpp(folder):
    """The folder with the npm package in it; installs it there when it is not."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise BenchError(f"no {tool}; scripts/setup --with-peers installs it")
    folder.mkdir(parents=True, exist_ok=True)
    package, version = NPM_PACKAGE.rsplit("@", 1)
    manifest = folder / "node_modules" / package / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != version:
        print(f"installing {NPM_PACKAGE} into {folder}", file=sys.stderr)
        run(["npm", "install", NPM_PACKAGE, "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder)
    return folder


def inspect(sluice, model, *options):
    """What `sluice inspect --json` says of a model."""
    return json.loads(run([sluice, "inspect", model, *options, "--json"]))


def is_encoder(facts):
    """Whether a file makes vectors and no texts, by what inspect() says of it."""
    return facts["metadata"].get(f"{facts['architecture']}.attention.causal") is False


def markdown_table(cells):
    """Rows of texts, the first of them the head, with aligned columns that read well in a terminal
    too."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [cells[0], ["-" * width for width in widths]] + cells[1:]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) +
                     " |" for line in lines)


def command_for_readers(script):
    """The command line, with paths outside of the project cut down to their last part."""
    words = [f"scripts/{script}"] + sys.argv[1:]
    return shlex.join(re.sub(r"~?(/[^\s/=:]+)+/(?=[^\s/])", "", word) for word in words)


def commit():
    try:
        return run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT).strip()
    except BenchError:
        return "unknown"


def origin_of(sluice, model):
    """What readers of figures have to know of the model's weights, as a paragraph; or nothing."""
    facts = inspect(sluice, model)
    if facts["name"] != SYNTHETIC:
        return ""
    shape = pathlib.Path(model).stem
    made_by = f"`sluice synth {shape} {shape}.gguf`"
    return f"""
Its weights are random, in the shapes of {REAL_NAMES.get(shape, shape)}; {made_by} makes the same
file. The speed of a dense model does not depend on the values of its weights: each token reads the
same bytes and takes the same arithmetic, whatever they are.
"""
