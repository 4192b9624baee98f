// What the npm packages `openai` and `@ai-sdk/openai-compatible` do with a server, for
// scripts/test-openai-clients, which installs them and copies this file beside them.
// Arguments: the address of the server, a key, the name of its model. Prints a line of JSON for
// each check: {client, feature, result, detail}; result is "passed", "failed" or "not there".

import assert from "node:assert/strict";
import OpenAI, {toFile} from "openai";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {embed, generateText, jsonSchema, Output, streamText, tool} from "ai";

const [address, key, model] = process.argv.slice(2);
const openai = new OpenAI({baseURL: `${address}/v1`, apiKey: key, maxRetries: 0});
const provider = createOpenAICompatible({name: "sluice", baseURL: `${address}/v1`, apiKey: key,
                                         includeUsage: true, supportsStructuredOutputs: true});
const messages = [{role: "user", content: "Where is the kite?"}];
const settings = {model, messages, seed: 1, max_tokens: 40};
const weather = {type: "function", function: {
  name: "get_weather", description: "The weather of a town",
  parameters: {type: "object", properties: {town: {type: "string"}}, required: ["town"]}}};
const schema = {type: "object", properties: {found: {type: "boolean"}}, required: ["found"],
                additionalProperties: false};

let failures = 0;

async function check(client, feature, work) {
  let result = "passed", detail = "";
  try {
    detail = (await work()) ?? "";
  } catch (error) {
    const status = error.status ?? error.statusCode ?? error.lastError?.statusCode;
    result = status === 501 || /is not supported/.test(error.message) ? "not there" : "failed";
    detail = `${error.constructor.name}: ${error.message}`.slice(0, 200);
    if (result === "failed") ++failures;
  }
  console.log(JSON.stringify({client, feature, result, detail: String(detail)}));
}

async function expect_error(work, type, status) {
  try {
    await work();
  } catch (error) {
    assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
    assert.equal(error.status, status);
    assert.ok(error.requestID, "no request id");
    return `${error.constructor.name}, code ${error.code}`;
  }
  throw new Error("no error came");
}

// ---- openai

let text_of_chat = "";

await check("openai", "models", async () => {
  const list = await openai.models.list();
  assert.equal(list.data[0].id, model);
  assert.equal((await openai.models.retrieve(model)).id, model);
});
await check("openai", "completions", async () => {
  const answer = await openai.completions.create(
    {model, prompt: "One morning", seed: 1, max_tokens: 20, logprobs: 2});
  assert.ok(answer.choices[0].text.length > 0);
  assert.equal(answer.choices[0].logprobs.tokens.length, answer.usage.completion_tokens);
  return `${answer.usage.completion_tokens} tokens`;
});
await check("openai", "completions, streamed", async () => {
  const wanted = {model, prompt: "One morning", seed: 1, max_tokens: 20};
  let text = "";
  for await (const piece of await openai.completions.create({...wanted, stream: true})) {
    text += piece.choices[0]?.text ?? "";
  }
  assert.equal(text, (await openai.completions.create(wanted)).choices[0].text);
});
await check("openai", "chat", async () => {
  const answer = await openai.chat.completions.create(settings);
  text_of_chat = answer.choices[0].message.content;
  assert.ok(text_of_chat.length > 0);
  assert.equal(answer.usage.total_tokens,
               answer.usage.prompt_tokens + answer.usage.completion_tokens);
  return text_of_chat.slice(0, 40);
});
await check("openai", "chat, several choices with log probabilities", async () => {
  const answer = await openai.chat.completions.create(
    {...settings, n: 3, logprobs: true, top_logprobs: 2});
  assert.equal(answer.choices.length, 3);
  assert.equal(answer.choices[0].message.content, text_of_chat);
  assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
});
await check("openai", "chat, streamed", async () => {
  let text = "", usage = null;
  const stream = await openai.chat.completions.create(
    {...settings, stream: true, stream_options: {include_usage: true}});
  for await (const piece of stream) {
    text += piece.choices[0]?.delta.content ?? "";
    usage = piece.usage ?? usage;
  }
  assert.equal(text, text_of_chat);
  assert.ok(usage.completion_tokens > 0);
});
await check("openai", "chat, streamed with the helper", async () => {
  const runner = openai.chat.completions.stream(settings);
  assert.equal(await runner.finalContent(), text_of_chat);
});
await check("openai", "tools", async () => {
  const answer = await openai.chat.completions.create({...settings, tools: [weather]});
  assert.ok(["stop", "length", "tool_calls"].includes(answer.choices[0].finish_reason));
  return `ended with ${answer.choices[0].finish_reason}`;
});
await check("openai", "structured output", async () => {
  const answer = await openai.chat.completions.create({...settings, max_tokens: 60,
    response_format: {type: "json_schema", json_schema: {name: "answer", strict: true, schema}}});
  assert.equal(typeof JSON.parse(answer.choices[0].message.content).found, "boolean");
});
let text_of_response = "";
const response_settings = {model, input: messages, seed: 1, max_output_tokens: 40};

await check("openai", "responses", async () => {
  const answer = await openai.responses.create(response_settings);
  text_of_response = answer.output_text;
  assert.equal(text_of_response, text_of_chat);
  assert.ok(["completed", "incomplete"].includes(answer.status));
  assert.ok(answer.usage.output_tokens > 0);
});
await check("openai", "responses, streamed", async () => {
  let text = "", last = null;
  for await (const event of await openai.responses.create({...response_settings, stream: true})) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, text_of_response);
  assert.ok(["response.completed", "response.incomplete"].includes(last.type));
});
await check("openai", "responses, streamed with the helper", async () => {
  const answer = await openai.responses.stream(response_settings).finalResponse();
  assert.equal(answer.output_text, text_of_response);
});
await check("openai", "responses, structured output", async () => {
  const answer = await openai.responses.create({...response_settings, max_output_tokens: 60,
    text: {format: {type: "json_schema", name: "answer", strict: true, schema}}});
  assert.equal(typeof JSON.parse(answer.output_text).found, "boolean");
});
await check("openai", "responses, tools", async () => {
  const answer = await openai.responses.create(
    {...response_settings, tools: [{type: "function", ...weather.function, strict: false}]});
  return `ended with ${answer.output.at(-1).type}`;
});
await check("openai", "embeddings", async () => {
  const answer = await openai.embeddings.create({model, input: ["a kite", "a mill"]});
  assert.equal(answer.data.length, 2);
  return `${answer.data[0].embedding.length} numbers`;
});
await check("openai", "files", async () => {
  const file = await openai.files.create(
    {file: await toFile(Buffer.from('{"a":1}\n'), "a.jsonl"), purpose: "batch"});
  assert.equal((await openai.files.retrieve(file.id)).bytes, 8);
  assert.equal(await (await openai.files.content(file.id)).text(), '{"a":1}\n');
  assert.ok((await openai.files.list()).data.some((other) => other.id === file.id));
  assert.equal((await openai.files.delete(file.id)).deleted, true);
});
await check("openai", "batches", async () => {
  const rows = [1, 2, 3].map((i) => JSON.stringify({
    custom_id: `row-${i}`, method: "POST", url: "/v1/chat/completions",
    body: {...settings, seed: i}}));
  rows.push(JSON.stringify({custom_id: "bad", method: "POST", url: "/v1/chat/completions",
                            body: {model, messages: []}}));
  const file = await openai.files.create(
    {file: await toFile(Buffer.from(rows.join("\n") + "\n"), "in.jsonl"), purpose: "batch"});
  let batch = await openai.batches.create({input_file_id: file.id,
    endpoint: "/v1/chat/completions", completion_window: "24h", metadata: {who: "test"}});
  while (!["completed", "failed", "cancelled", "expired"].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    batch = await openai.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, "completed");
  assert.deepEqual(batch.request_counts, {total: 4, completed: 3, failed: 1});
  const text = await (await openai.files.content(batch.output_file_id)).text();
  const results = text.trim().split("\n").map((line) => JSON.parse(line));
  const first = results.find((result) => result.custom_id === "row-1");
  assert.equal(first.response.body.choices[0].message.content, text_of_chat);
  const errors = await (await openai.files.content(batch.error_file_id)).text();
  assert.equal(JSON.parse(errors).custom_id, "bad");
});
await check("openai", "cancellation of a stream", async () => {
  const stream = await openai.chat.completions.create(
    {...settings, max_tokens: 300, stream: true, ignore_eos: true});
  let pieces = 0;
  for await (const piece of stream) {
    if (++pieces === 3) stream.controller.abort();
  }
  assert.ok(pieces >= 3);
  for (let i = 0; i < 100; ++i) {
    const answer = await fetch(`${address}/slots`, {headers: {Authorization: `Bearer ${key}`}});
    if ((await answer.json()).length === 0) return `after ${pieces} pieces; its slot is free`;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("the server goes on");
});
await check("openai", "errors: wrong key", () => expect_error(
  () => new OpenAI({baseURL: `${address}/v1`, apiKey: "wrong", maxRetries: 0}).models.list(),
  OpenAI.AuthenticationError, 401));
await check("openai", "errors: bad request", () => expect_error(
  () => openai.chat.completions.create({...settings, temperature: -1}),
  OpenAI.BadRequestError, 400));
await check("openai", "errors: too long", () => expect_error(
  () => openai.chat.completions.create({...settings, max_tokens: 1000000}),
  OpenAI.BadRequestError, 400));
await check("openai", "errors: not found", () => expect_error(
  () => openai.models.retrieve("no-such-model"), OpenAI.NotFoundError, 404));

// ---- @ai-sdk/openai-compatible

const chat_model = provider.chatModel(model);
const wanted = {model: chat_model, prompt: "Where is the kite?", seed: 1, maxOutputTokens: 40,
                maxRetries: 0};

await check("ai-sdk", "completions", async () => {
  const answer = await generateText({model: provider.completionModel(model),
    prompt: "One morning", seed: 1, maxOutputTokens: 20, maxRetries: 0});
  assert.ok(answer.text.length > 0);
});
await check("ai-sdk", "chat", async () => {
  const answer = await generateText(wanted);
  assert.equal(answer.text, text_of_chat);
  assert.ok(answer.usage.outputTokens > 0);
});
await check("ai-sdk", "chat, streamed", async () => {
  const answer = streamText(wanted);
  let text = "";
  for await (const piece of answer.textStream) text += piece;
  assert.equal(text, text_of_chat);
  assert.ok((await answer.usage).outputTokens > 0);
});
await check("ai-sdk", "tools", async () => {
  const answer = await generateText({...wanted, tools: {get_weather: tool({
    description: "The weather of a town", inputSchema: jsonSchema(weather.function.parameters)})}});
  return `ended with ${answer.finishReason}`;
});
await check("ai-sdk", "structured output", async () => {
  const answer = await generateText({...wanted, maxOutputTokens: 60,
                                     output: Output.object({schema: jsonSchema(schema)})});
  assert.equal(typeof answer.output.found, "boolean");
});
await check("ai-sdk", "embeddings", async () => {
  const answer = await embed({model: provider.textEmbeddingModel(model), value: "a kite",
                              maxRetries: 0});
  return `${answer.embedding.length} numbers`;
});
await check("ai-sdk", "cancellation of a stream", async () => {
  const abort = new AbortController();
  const answer = streamText({...wanted, maxOutputTokens: 300, abortSignal: abort.signal,
                             onError: () => {}});
  let pieces = 0;
  for await (const piece of answer.textStream) {
    if (++pieces === 2) abort.abort();
  }
  return `after ${pieces} pieces`;
});
await check("ai-sdk", "errors: wrong key", async () => {
  const other = createOpenAICompatible(
    {name: "sluice", baseURL: `${address}/v1`, apiKey: "wrong"});
  try {
    await generateText({...wanted, model: other.chatModel(model)});
  } catch (error) {
    assert.equal(error.statusCode, 401);
    return error.constructor.name;
  }
  throw new Error("no error came");
});

process.exit(failures === 0 ? 0 : 1);
