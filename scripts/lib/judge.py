"""llama.cpp as the judge of probabilities, and the distances between distributions."""

import array
import json
import math
import pathlib
import subprocess
import tempfile

import engines

# Does each job of a list: writes the probabilities of all tokens after each token, as float32
# [tokens][vocabulary]. Says "done N" or "failed N REASON" on a line of its own.
RUNNER = """\
import {getLlama} from "node-llama-cpp";
import fs from "fs";

const jobs = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", progressLogs: false});
const all = {generateNext: {probabilities: true,
  options: {temperature: 1, topK: 0, topP: 1, minP: 0, repeatPenalty: false}}};
for (const [i, job] of jobs.entries()) {
  try {
    const model = await llama.loadModel({modelPath: job.model, gpuLayers: 0});
    const cache = job.kind ? {flashAttention: true, experimentalKvCacheKeyType: job.kind,
                              experimentalKvCacheValueType: job.kind} : {};
    const context = await model.createContext(
      {contextSize: job.tokens.length + 16, threads: 2, ...cache});
    const vocabulary = [...model.iterateAllTokens()].length;
    const results = await context.getSequence().controlledEvaluate(
      job.tokens.map(token => [token, all]));
    const rows = new Float32Array(results.length * vocabulary);
    results.forEach((result, row) => {
      for (const [token, p] of result.next.probabilities) rows[row * vocabulary + token] = p;
    });
    fs.writeFileSync(job.out, Buffer.from(rows.buffer));
    await context.dispose();
    await model.dispose();
    console.log(`done ${i}`);
  } catch (error) {
    console.log(`failed ${i} ${error.message}`);
  }
}
await llama.dispose();
process.exit(0);
"""


# What llama.cpp 0.7.0 reads of the published models of an architecture alone, whatever a file says.
READ_OF_REAL_MODELS = {
    "exaone4": "windows are for models of 64 layers",
    "gemma3n": "its first ten layers are sparse, and those from the 21st on share keys",
}


def job(model, tokens, out, kind=None):
    """What `probabilities` is to do; `kind`: the type of keys and values, with flash attention."""
    return {"model": str(pathlib.Path(model).resolve()), "tokens": [int(t) for t in tokens],
            "out": str(out), "kind": kind}


def first_alike(facts, tokens):
    """The first of so many positions where both engines rotate alike, of a file that `sluice
    inspect --json` describes: llama.cpp chooses between two sets of factors by the context, sluice
    by the text so far."""
    original = [value for key, value in facts["metadata"].items()
                if key.endswith(".rope.scaling.original_context_length")]
    has_two = any(t["name"] == "rope_factors_long.weight" for t in facts["tensors"])
    return original[0] if has_two and original[0] < tokens else 0


def add_options(parser):
    """Which llama.cpp judges."""
    parser.add_argument("--peers-dir", default="~/.cache/sluice-peers",
                        help="where the npm package lies or is installed to")
    parser.add_argument("--judge", metavar="PROGRAM",
                        help="another llama.cpp than that package: run as `PROGRAM MODEL OUT "
                             "TOKEN...`, it writes what scripts/lib/llama_judge.c says")


def run_judge(program, one):
    """The reason why the program could not do the job, or None."""
    try:
        done = subprocess.run([program, one["model"], one["out"], *map(str, one["tokens"])],
                              check=False, text=True, capture_output=True)
    except OSError as error:
        raise engines.BenchError(f"--judge: {error}") from error
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]


def probabilities(peers_dir, jobs, program=None):
    """Has llama.cpp do the jobs, or the program of --judge. Gives a reason for each that failed, by
    its model."""
    if program:
        reasons = {one["model"]: run_judge(program, one) for one in jobs}
        return {model: reason for model, reason in reasons.items() if reason}
    folder = engines.install_llama_cpp(pathlib.Path(peers_dir).expanduser().resolve())
    runner = folder / "sluice_judge.mjs"
    runner.write_text(RUNNER)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as listed:
        json.dump(jobs, listed)
        listed.flush()
        done = subprocess.run(["node", str(runner), listed.name], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = [line.split(" ", 2) for line in done.stdout.splitlines()]
    finished = {int(line[1]) for line in said if line[0] == "done"}
    reasons = {int(line[1]): line[2] for line in said if line[0] == "failed"}
    return {jobs[i]["model"]: reasons.get(i, "llama.cpp ended early")
            for i in range(len(jobs)) if i not in finished}


def rows(path, width):
    """The rows of a file of float32 [rows][width]."""
    with open(path, "rb") as file:
        while data := file.read(4 * width):
            row = array.array("f")
            row.frombytes(data)
            yield row


def log_softmax(row):
    top = max(row)
    total = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - total for x in row]


def log_normalised(row):
    """Logarithms of probabilities that are rounded to floats."""
    total = math.fsum(row)
    return [math.log(p / total) if p > 0 else -math.inf for p in row]


def divergence(p, q):
    """KL(p || q) of two distributions as logarithms, without what one of them calls impossible."""
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q) if min(a, b) > -math.inf)


def entropy(p):
    return -math.fsum(math.exp(a) * a for a in p if a > -math.inf)


def distances(reference, other, width, other_is_logits):
    """KL(reference || other) at each position of two files of rows: probabilities of llama.cpp, and
    either those too or logits of sluice."""
    logarithms = log_softmax if other_is_logits else log_normalised
    return [divergence(log_normalised(p), logarithms(q))
            for p, q in zip(rows(reference, width), rows(other, width))]


def largest(values):
    """The largest of some numbers; NaN where one is NaN, which max() passes over."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)
