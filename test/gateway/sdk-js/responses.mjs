// OpenAI's client for JavaScript, in front of an engine that rejects all state, and of one that leaves out most members.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { baseURL, client, eventually, inputItems, types, wantError } from './client.mjs';
import { check } from './schema.mjs';
import { Socket } from './socket.mjs';

const create = (input, { headers, ...options } = {}) => client.responses.create({ model: 'strict', input, ...options }, { headers });
const after = (previous) => ({ previous_response_id: previous.id });

// streamed returns the events of a stream.
async function streamed(input, options) {
  const events = [];
  for await (const event of await create(input, { stream: true, ...options })) events.push(event);
  return events;
}

// overWebSocket returns the events of a response in WebSocket mode.
async function overWebSocket(input, options) {
  const socket = await Socket.open(baseURL);
  const events = await socket.create(input, options);
  socket.close();
  return events;
}

const weather = {
  type: 'function', name: 'weather', description: null, strict: true,
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
};
const settings = {
  instructions: 'Be brief.', metadata: { project: 'catena' }, tools: [weather], tool_choice: 'auto', parallel_tool_calls: false,
  temperature: 0.5, top_p: 0.9, max_output_tokens: 100, truncation: 'auto', reasoning: { effort: 'low', summary: 'auto' },
  text: { format: { type: 'json_object' } },
};

for (const model of ['strict', 'thin']) {
  test(`${model}: a response has all members`, async () => {
    const first = await create('one', { model });
    const second = await create('two', { model, ...after(first), ...settings });
    for (const response of [first, second]) {
      check('Response', response, 'response');
      assert.deepEqual(await client.responses.retrieve(response.id), response);
    }
    assert.equal(first.previous_response_id, null);
    assert.equal(second.previous_response_id, first.id);
    for (const [name, value] of Object.entries(settings)) assert.deepEqual(second[name], value, name);
    const { description, parameters, strict, ...bare } = weather;
    check('Response', await create('three', { model, tools: [bare] }), 'response');
    assert.deepEqual([first.metadata, first.tools, first.instructions], [{}, [], null]);
  });

  for (const [input, want] of Object.entries({
    hello: 'response.completed',
    'reason\ncall weather {"city":"Bonn"}\ncall time': 'response.completed',
    'cut off': 'response.incomplete',
    fail: 'response.failed',
    'break off': 'response.failed',
    hosted: 'response.completed',
  })) {
    test(`${model}: the events of a stream have all members: ${input.split('\n')[0]}`, async () => {
      const events = await streamed(input, { model, ...settings });
      for (const [i, event] of events.entries()) {
        check('Event', event, event.type);
        assert.equal(event.sequence_number, i);
      }
      const end = events.at(-1);
      assert.equal(end.type, want);
      for (const { type, item, output_index } of events) {
        if (type === 'response.output_item.done') assert.deepEqual(end.response.output[output_index], item);
      }
      const { output_text, ...retrieved } = await client.responses.retrieve(end.response.id);
      const { output_text: streamedText, ...response } = end.response;
      assert.deepEqual(retrieved, response);
    });
  }

  test(`${model}: the items of OpenAI's tools have all members`, async () => {
    const first = await create('hosted', { model });
    check('Response', first, 'response');
    assert.deepEqual(types(first.output), [
      'web_search_call', 'file_search_call', 'code_interpreter_call', 'image_generation_call', 'mcp_list_tools', 'mcp_call', 'message', 'custom_tool_call',
    ]);
    const { call_id } = first.output.at(-1);
    const second = await create([{ type: 'custom_tool_call_output', call_id, output: 'b' }], { model, ...after(first) });
    assert.equal(second.output_text, 'The functions answered: b');
    const items = await inputItems(second.id);
    assert.equal(items.length, 10);
    for (const [i, item] of items.entries()) check('Item', item, `item ${i}`);
  });

  test(`${model}: the events of a repeated stream have all members`, async () => {
    const headers = { 'Idempotency-Key': crypto.randomUUID() };
    const [events, again] = [await streamed('reason', { model, headers }), await streamed('reason', { model, headers })];
    for (const event of again) check('Event', event, event.type);
    assert.deepEqual(again.at(-1).response, events.at(-1).response);
  });

  for (const store of [true, false]) {
    test(`${model}: the events of an item have its ID, store: ${store}`, async () => {
      const events = await streamed('reason', { model, store });
      const { output } = events.at(-1).response;
      for (const event of events) {
        const id = event.item_id ?? event.item?.id;
        if (id !== undefined) assert.equal(id, output[event.output_index].id, event.type);
      }
    });
  }

  for (const input of ['reason', 'reason\ncall weather {"city":"Bonn"}\ncall time', 'cut off']) {
    test(`${model}: a response that is not stored has all members: ${input.split('\n').at(-1)}`, async () => {
      const options = { model, store: false };
      check('Response', await create(input, options), 'response');
      for (const events of [await streamed(input, options), await overWebSocket(input, options)]) {
        for (const event of events) check('Event', event, event.type);
      }
    });
  }

  test(`${model}: the items of a response that is not stored, sent back by value`, async () => {
    const first = await create('reason', { model, store: false });
    const input = [{ role: 'user', content: 'reason' }, ...first.output, { role: 'user', content: 'two' }];
    for (const store of [true, false]) {
      assert.equal((await create(input, { model, store })).output_text, "You said 2 things, from 'reason' to 'two', in 4 items.");
    }
    await assert.rejects(create([{ type: 'item_reference', id: first.output[0].id }], { model }), { status: 404, message: /not persisted/ });
  });
}

test('IDs follow from the response and the position', async () => {
  const response = await create('reason');
  const hex = response.id.replace('resp_', '');
  const [thought, message] = response.output;
  assert.match(thought.id, new RegExp(`^rs_${hex}_\\d+$`));
  assert.match(message.id, new RegExp(`^msg_${hex}_\\d+$`));
  assert.match((await inputItems(response.id))[0].id, new RegExp(`_${hex}_\\d+$`));
});

const image = 'data:image/png;base64,iVBORw0KGgo=';
const input = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'one' },
  { role: 'user', content: [{ type: 'input_text', text: 'What is this?' }, { type: 'input_image', image_url: image }] },
  { role: 'assistant', content: 'A picture.' },
  { type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{}' },
  { type: 'function_call_output', call_id: 'call_1', output: 'reason' },
];

test('input items have all members', async () => {
  const first = await create(input);
  const second = await create('call weather', after(first));
  const [call] = second.output;
  const third = await create([{ type: 'function_call_output', call_id: call.call_id, output: [{ type: 'input_text', text: 'rain' }] }], after(second));
  const items = await inputItems(third.id);
  for (const [i, item] of items.entries()) check('Item', item, `item ${i}`);
  assert.deepEqual(types(items), [
    'message', 'message', 'message', 'message', 'function_call', 'function_call_output',
    'reasoning', 'message', 'message', 'function_call', 'function_call_output',
  ]);
  assert.deepEqual(items[1].content, [{ type: 'input_text', text: 'one' }]);
  assert.equal(items[2].content[1].image_url, image);
  assert.equal(items[3].content[0].text, 'A picture.');
});

test('input items keep their IDs', async () => {
  const first = await create(input);
  const second = await create('two', after(first));
  const all = await inputItems(second.id);
  assert.equal(new Set(all.map(({ id }) => id)).size, all.length);
  assert.deepEqual(all, [...(await inputItems(first.id)), ...first.output, all.at(-1)]);
  for (const limit of [1, 3, 100]) {
    assert.deepEqual(await inputItems(second.id, { limit }), all);
    assert.deepEqual(await inputItems(second.id, { limit, order: 'desc' }), all.toReversed());
  }
});

test('pages of input items', async () => {
  const first = await create('one');
  const second = await create('two', after(first));
  const all = await inputItems(second.id);
  const list = async (query) => {
    const raw = await client.get(`/responses/${second.id}/input_items`, { query: { order: 'asc', ...query } });
    check('ItemList', raw, 'list');
    return raw;
  };
  const page = await list({ limit: 2 });
  assert.deepEqual([page.first_id, page.last_id, page.has_more], [all[0].id, all[1].id, true]);
  const empty = await list({ after: all.at(-1).id });
  assert.deepEqual([empty.data, empty.has_more], [[], false]);
  assert.deepEqual((await list({ include: ['reasoning.encrypted_content', 'message.input_image.image_url'] })).data, all);
  assert.ok((await list({ before: all.at(-1).id })).data.length > 0);
});

test('a response that was cut off can be continued', async () => {
  const first = await create('cut off');
  assert.deepEqual([first.status, first.incomplete_details], ['incomplete', { reason: 'max_output_tokens' }]);
  const second = await create('continue', after(first));
  assert.equal(second.output_text, "You said 2 things, from 'cut off' to 'continue', in 3 items.");
});

test('a response that failed cannot be continued', async () => {
  const { response } = (await streamed('fail')).at(-1);
  assert.equal((await client.responses.retrieve(response.id)).status, 'failed');
  await wantError(400, 'session.chain.unavailable', () => create('continue', after(response)));
  await assert.rejects(create('fail'), { status: 500 });
});

test('a response whose client goes away is cancelled', async () => {
  let id;
  for await (const event of await create('stall', { stream: true })) {
    id ??= event.response.id;
    if (event.type === 'response.output_text.delta') break; // closes the connection
  }
  const response = await eventually(() => client.responses.retrieve(id));
  assert.equal(response.status, 'cancelled');
  check('Response', response, 'response');
});

test('a response that is not in the background cannot be cancelled', async () => {
  const response = await create('one');
  await assert.rejects(client.responses.cancel(response.id), { status: 400 });
  await assert.rejects(client.responses.cancel('resp_0'), { status: 404 });
});

test('parallel function calls', async () => {
  const asked = await create('call weather {"city":"Bonn"}\ncall time');
  assert.deepEqual(asked.output.map(({ name, arguments: args }) => [name, args]), [['weather', '{"city":"Bonn"}'], ['time', '{}']]);
  const outputs = ['rain', 'noon'].map((output, i) => ({ type: 'function_call_output', call_id: asked.output[i].call_id, output }));
  await assert.rejects(create(outputs.slice(1), after(asked)), { status: 400, message: /No tool output found for function call/ });
  await assert.rejects(create(outputs), { status: 400, message: /No tool call found for function call output/ });
  assert.equal((await create(outputs, after(asked))).output_text, 'The functions answered: rain, noon');
});

test('the items of a response sent back by value', async () => {
  const first = await create('reason');
  const second = await create([...(await inputItems(first.id)), ...first.output, { role: 'user', content: 'two' }]);
  assert.equal(second.output_text, "You said 2 things, from 'reason' to 'two', in 4 items.");
  assert.equal(second.previous_response_id, null);
});

test('references to items', async () => {
  const first = await create('reason');
  const references = [...(await inputItems(first.id)), ...first.output].map(({ id }) => ({ type: 'item_reference', id }));
  const second = await create([...references, { role: 'user', content: 'two' }]);
  assert.equal(second.output_text, "You said 2 things, from 'reason' to 'two', in 4 items.");
  const error = await create([{ type: 'item_reference', id: 'msg_0' }]).then(() => undefined, (error) => error);
  assert.equal(error?.status, 404);
  assert.match(error.message, /Item with id 'msg_0' not found\./);
});

for (const model of ['strict', 'thin']) {
  test(`${model}: the other endpoints with a conversation`, async () => {
    const first = await create('one', { model });
    const request = { model, input: [{ role: 'user', content: 'two' }], previous_response_id: first.id };
    const tokens = await client.responses.inputTokens.count(request);
    check('InputTokens', tokens, 'input tokens');
    assert.ok(tokens.input_tokens > (await client.responses.inputTokens.count({ ...request, previous_response_id: null })).input_tokens);
    const compacted = await client.responses.compact(request);
    check('CompactedResponse', compacted, 'compacted');
    assert.deepEqual(compacted.output.map(({ type, content }) => content?.[0].text ?? type), ['one', 'two', 'compaction']);
    const third = await create([...compacted.output, { role: 'user', content: 'three' }], { model });
    assert.equal(third.output_text, "You said 3 things, from 'one' to 'three', in 4 items.");
    assert.equal((await create('four', { model, ...after(third) })).output_text, "You said 4 things, from 'one' to 'four', in 6 items.");
    check('ModelList', await client.get('/models'), 'models');
  });
}
