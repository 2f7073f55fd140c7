// The Vercel AI SDK with its defaults: it sends the whole conversation each time, with references to the items that it has seen.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { baseURL, checkChain, client, inputItems, types } from './client.mjs';

const openai = createOpenAI({ baseURL, apiKey: 'none' });

async function generate(options) {
  return generateText({ model: openai('strict'), maxRetries: 0, ...options });
}

async function stream(options) {
  const result = streamText({ model: openai('strict'), maxRetries: 0, onError: () => {}, ...options });
  let text = '';
  for await (const part of result.stream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') text += part.text;
  }
  assert.equal(text.endsWith(await result.text), true, 'the deltas add up to the text');
  return { text: await result.text, steps: await result.steps, responseMessages: await result.responseMessages };
}

// converse sends the messages of a user one after the other. It returns the texts of the answers, and the IDs of the responses.
async function converse(ask, contents, options) {
  const messages = [], texts = [], ids = [];
  for (const content of contents) {
    messages.push({ role: 'user', content });
    const result = await ask({ messages, ...options });
    messages.push(...result.responseMessages);
    texts.push(result.text);
    ids.push(...result.steps.map(({ response }) => response.id));
  }
  return { messages, texts, ids };
}

const tools = {
  weather: tool({ inputSchema: z.object({ city: z.string() }), execute: ({ city }) => `rain in ${city}` }),
  // The engine reads its instructions from the output of a function, too: this one has it call the other function.
  locate: tool({ inputSchema: z.object({}), execute: () => 'call weather {"city": "Bonn"}' }),
};

for (const [name, ask] of Object.entries({ generateText: generate, streamText: stream })) {
  test(`${name}: several turns`, async () => {
    const { texts, ids } = await converse(ask, ['one', 'two', 'three']);
    assert.deepEqual(texts, [
      "You said 1 things, from 'one' to 'one', in 1 items.",
      "You said 2 things, from 'one' to 'two', in 3 items.",
      "You said 3 things, from 'one' to 'three', in 5 items.",
    ]);
    assert.deepEqual((await checkChain(ids)).map(types), [['message'], ['message'], ['message']]);
    for (const id of ids) assert.equal((await client.responses.retrieve(id)).previous_response_id, null);
  });

  test(`${name}: several steps with tools`, async () => {
    const { texts, ids } = await converse(ask, ['call locate', 'Thanks'], { tools, stopWhen: stepCountIs(5) });
    assert.deepEqual(texts, ['The functions answered: rain in Bonn', "You said 2 things, from 'call locate' to 'Thanks', in 7 items."]);
    const added = await checkChain(ids);
    assert.deepEqual(added.map(types), [['message'], ['function_call_output'], ['function_call_output'], ['message']]);
  });

  test(`${name}: parallel calls of tools`, async () => {
    const calls = 'call weather {"city": "Bonn"}\ncall weather {"city":"Ulm"}';
    const { texts, ids } = await converse(ask, [calls, 'Thanks'], { tools, stopWhen: stepCountIs(5) });
    assert.equal(texts[0], 'The functions answered: rain in Bonn, rain in Ulm');
    const added = await checkChain(ids);
    assert.deepEqual(added.map(types), [['message'], ['function_call_output', 'function_call_output'], ['message']]);
  });

  test(`${name}: an image`, async () => {
    const data = 'iVBORw0KGgo=';
    const question = [{ type: 'text', text: 'What is this?' }, { type: 'file', mediaType: 'image/png', data }];
    const { texts, ids } = await converse(ask, [question, 'Are you sure?']);
    assert.equal(texts[1], "You said 2 things, from 'What is this?' to 'Are you sure?', in 3 items.");
    const [[asked]] = await checkChain(ids);
    assert.equal(asked.content[1].image_url, `data:image/png;base64,${data}`);
  });

  // The SDK takes gpt-5 for a reasoning model: it then refers to a message only if a reasoning item precedes it.
  test(`${name}: reasoning`, async () => {
    const { texts, ids, messages } = await converse(ask, ['reason', 'two'], { model: openai('gpt-5') });
    assert.equal(messages[1].content[0].text, "The user said 'reason'.");
    assert.equal(texts[1], "You said 2 things, from 'reason' to 'two', in 4 items.");
    assert.deepEqual((await checkChain(ids)).map(types), [['message'], ['message']]);
  });

  test(`${name}: a reasoning model without reasoning`, async () => {
    const { texts } = await converse(ask, ['one', 'two'], { model: openai('gpt-5') });
    assert.equal(texts[1], "You said 2 things, from 'one' to 'two', in 3 items.");
  });

  test(`${name}: reasoning with a tool`, async () => {
    const options = { model: openai('gpt-5'), tools, stopWhen: stepCountIs(5) };
    const { texts, ids } = await converse(ask, ['reason\ncall weather {"city": "Bonn"}', 'Thanks'], options);
    assert.equal(texts[0], 'The functions answered: rain in Bonn');
    // The message that answers has neither a reasoning item before it nor, therefore, an ID, so that the last turn continues the one with the call.
    await checkChain(ids.slice(0, 2));
    await checkChain([ids[0], ids[2]]);
  });

  test(`${name}: without storage`, async () => {
    const providerOptions = { openai: { store: false } };
    const { texts, ids } = await converse(ask, ['reason', 'two'], { model: openai('gpt-5'), providerOptions });
    assert.equal(texts[1], "You said 2 things, from 'reason' to 'two', in 4 items.");
    for (const id of ids) await assert.rejects(client.responses.retrieve(id), { status: 404 });
  });

  test(`${name}: with the previous response`, async () => {
    const first = await ask({ prompt: 'one' });
    const previousResponseId = first.steps[0].response.id;
    const second = await ask({ prompt: 'two', providerOptions: { openai: { previousResponseId } } });
    assert.equal(second.text, "You said 2 things, from 'one' to 'two', in 3 items.");
    await checkChain([previousResponseId, second.steps[0].response.id]);
  });

  test(`${name}: a thin engine that repeats its IDs`, async () => {
    for (const model of ['thin', 'restarted']) {
      const { texts, ids } = await converse(ask, ['one', 'two', 'three'], { model: openai(model) });
      assert.equal(texts[2], "You said 3 things, from 'one' to 'three', in 5 items.");
      await checkChain(ids);
    }
  });

  test(`${name}: unknown items`, async () => {
    const { messages } = await converse(ask, ['one']);
    messages.at(-1).content[0].providerOptions.openai.itemId = 'msg_0';
    messages.push({ role: 'user', content: 'two' });
    await assert.rejects(ask({ messages }), { statusCode: 404, message: /Item with id 'msg_0' not found\./ });
  });
}

test('a fork of a conversation', async () => {
  const { messages, ids } = await converse(generate, ['one', 'two']);
  for (const content of ['left', 'right']) {
    const forked = await generate({ messages: [...messages.slice(0, 2), { role: 'user', content }] });
    assert.equal(forked.text, `You said 2 things, from 'one' to '${content}', in 3 items.`);
    await checkChain([ids[0], forked.response.id]);
  }
});

test('a system message', async () => {
  const first = await generate({ system: 'Be brief.', prompt: 'one' });
  const [system] = await inputItems(first.response.id);
  assert.deepEqual([system.role, system.content], ['system', [{ type: 'input_text', text: 'Be brief.' }]]);
});
