// The OpenAI Agents SDK, with the whole history in each request, and with the previous response.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Agent, run, setDefaultOpenAIClient, setTracingDisabled, tool, user } from '@openai/agents';
import { z } from 'zod';
import { checkChain, client, types } from './client.mjs';

setDefaultOpenAIClient(client);
setTracingDisabled(true);

const weather = tool({
  name: 'weather', description: 'The weather in a city', parameters: z.object({ city: z.string() }), execute: ({ city }) => `rain in ${city}`,
});
// The engine reads its instructions from the output of a function, too: this one has it call the other function.
const locate = tool({ name: 'locate', description: 'Where the user is', parameters: z.object({}), execute: () => 'call weather {"city":"Bonn"}' });

const agent = new Agent({ name: 'assistant', instructions: 'Be brief.', model: 'strict', tools: [weather, locate] });
const booking = new Agent({ name: 'booking', instructions: 'Book flights.', model: 'strict', tools: [weather] });
const triage = new Agent({ name: 'triage', instructions: 'Hand over.', model: 'strict', handoffs: [booking] });

async function ask(agent, input, options) {
  return run(agent, input, options);
}

async function stream(agent, input, options) {
  const result = await run(agent, input, { stream: true, ...options });
  let text = '';
  for await (const event of result) {
    if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') text += event.data.delta;
  }
  await result.completed;
  assert.ok(text.endsWith(result.finalOutput), 'the deltas add up to the output');
  return result;
}

const idsOf = (result) => result.rawResponses.map(({ responseId }) => responseId);

for (const [name, send] of Object.entries({ run: ask, stream })) {
  // next returns the options of a run that continues another one, by its history or by its last response.
  for (const [mode, next] of Object.entries({
    'the whole history': (last, text) => [last ? [...last.history, user(text)] : text],
    'the previous response': (last, text) => [text, { previousResponseId: last?.lastResponseId }],
  })) {
    // converse sends the messages of a user one after the other.
    const converse = async (agent, texts) => {
      const results = [];
      for (const text of texts) results.push(await send(agent, ...next(results.at(-1), text)));
      return { results, outputs: results.map(({ finalOutput }) => finalOutput), ids: results.flatMap(idsOf) };
    };

    test(`${name}, ${mode}: several turns`, async () => {
      const { outputs, ids } = await converse(agent, ['one', 'two', 'three']);
      assert.deepEqual(outputs, [
        "You said 1 things, from 'one' to 'one', in 1 items.",
        "You said 2 things, from 'one' to 'two', in 3 items.",
        "You said 3 things, from 'one' to 'three', in 5 items.",
      ]);
      assert.deepEqual((await checkChain(ids)).map(types), [['message'], ['message'], ['message']]);
    });

    test(`${name}, ${mode}: several calls of tools`, async () => {
      const { outputs, ids } = await converse(agent, ['call locate', 'Thanks']);
      assert.deepEqual(outputs, ['The functions answered: rain in Bonn', "You said 2 things, from 'call locate' to 'Thanks', in 7 items."]);
      const added = await checkChain(ids);
      assert.deepEqual(added.map(types), [['message'], ['function_call_output'], ['function_call_output'], ['message']]);
    });

    test(`${name}, ${mode}: parallel calls of tools`, async () => {
      const { outputs, ids } = await converse(agent, ['call weather {"city":"Bonn"}\ncall weather {"city":"Ulm"}', 'Thanks']);
      assert.equal(outputs[0], 'The functions answered: rain in Bonn, rain in Ulm');
      await checkChain(ids);
    });

    test(`${name}, ${mode}: a handoff`, async () => {
      const { results, outputs, ids } = await converse(triage, ['call transfer_to_booking', 'call transfer_to_booking']);
      for (const [i, { lastAgent }] of results.entries()) {
        assert.equal(lastAgent.name, 'booking');
        assert.equal(outputs[i], 'The functions answered: {"assistant":"booking"}');
      }
      await checkChain(ids);
      const instructions = await Promise.all(ids.map(async (id) => (await client.responses.retrieve(id)).instructions));
      assert.deepEqual(instructions, ['Hand over.', 'Book flights.', 'Hand over.', 'Book flights.']);
    });

    test(`${name}, ${mode}: reasoning`, async () => {
      const { outputs, ids } = await converse(agent, ['reason', 'reason\ncall weather {"city":"Bonn"}', 'Thanks']);
      assert.equal(outputs[1], 'The functions answered: rain in Bonn');
      assert.equal(outputs[2], "You said 3 things, from 'reason' to 'Thanks', in 9 items.");
      await checkChain(ids);
    });

    test(`${name}, ${mode}: an engine that repeats its IDs`, async () => {
      const { outputs, ids } = await converse(agent.clone({ model: 'restarted' }), ['one', 'call locate', 'three']);
      assert.equal(outputs[2], "You said 3 things, from 'one' to 'three', in 9 items.");
      await checkChain(ids);
    });

    test(`${name}, ${mode}: a thin engine`, async () => {
      const { outputs, ids } = await converse(agent.clone({ model: 'thin' }), ['one', 'two']);
      assert.equal(outputs[1], "You said 2 things, from 'one' to 'two', in 3 items.");
      await checkChain(ids);
    });
  }
}
