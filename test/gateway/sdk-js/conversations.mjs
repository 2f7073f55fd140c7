// OpenAI's Conversations API, with its client for JavaScript and with the sessions of the Agents SDK.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Agent, OpenAIConversationsSession, run, setDefaultOpenAIClient, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';
import { client, eventually, types, wantError } from './client.mjs';
import { check } from './schema.mjs';

setDefaultOpenAIClient(client);
setTracingDisabled(true);

const user = (text) => ({ role: 'user', content: [{ type: 'input_text', text }] });
const create = (conversation, input, options) => client.responses.create({ model: 'strict', conversation, input, ...options });

// itemsOf returns the items of a conversation, a few per page.
async function itemsOf(id, query) {
  const items = [];
  for await (const item of client.conversations.items.list(id, { limit: 2, order: 'asc', ...query })) items.push(item);
  return items;
}

test('create, retrieve, update and delete', async () => {
  const created = await client.conversations.create({ metadata: { topic: 'demo' } });
  check('Conversation', created, 'conversation');
  assert.deepEqual(created.metadata, { topic: 'demo' });
  assert.deepEqual(await client.conversations.retrieve(created.id), created);
  const updated = await client.conversations.update(created.id, { metadata: { topic: 'other' } });
  assert.deepEqual(updated, { ...created, metadata: { topic: 'other' } });
  assert.deepEqual(await client.conversations.retrieve(created.id), updated);

  const response = await create(created.id, 'one');
  const deleted = await client.conversations.delete(created.id);
  check('ConversationDeleted', deleted, 'deleted');
  await wantError(404, null, () => client.conversations.retrieve(created.id));
  await wantError(404, null, () => create(created.id, 'two'));
  assert.deepEqual(await client.responses.retrieve(response.id), response);
});

test('responses', async () => {
  const { id } = await client.conversations.create();
  check('Conversation', await client.conversations.retrieve(id), 'conversation');
  const first = await create(id, 'one');
  const second = await create({ id }, 'two');
  for (const response of [first, second]) {
    check('Response', response, 'response');
    assert.deepEqual([response.conversation, response.previous_response_id], [{ id }, null]);
    assert.deepEqual(await client.responses.retrieve(response.id), response);
  }
  assert.equal(second.output_text, "You said 2 things, from 'one' to 'two', in 3 items.");

  const events = [];
  for await (const event of await create(id, 'three', { stream: true })) {
    check('Event', event, event.type);
    if (event.response) assert.deepEqual(event.response.conversation, { id });
    events.push(event);
  }
  const { response: third } = events.at(-1);
  const aside = await create(id, 'aside', { store: false });
  assert.equal(aside.output_text, "You said 4 things, from 'one' to 'aside', in 7 items.");
  const items = await itemsOf(id);
  assert.deepEqual(items.map(({ content }) => content[0].text), [
    'one', first.output_text, 'two', second.output_text, 'three', third.output[0].content[0].text,
  ]);
  for (const [i, item] of items.entries()) check('ConversationItem', item, `item ${i}`);
  assert.deepEqual([first, second, third].map(({ output }) => output[0].id), [1, 3, 5].map((i) => items[i].id));
});

test('errors', async () => {
  await wantError(404, null, () => create('conv_none', 'one'));
  const { id } = await client.conversations.create();
  const first = await create(id, 'one');
  await wantError(400, 'mutually_exclusive_parameters', () => create(id, 'two', { previous_response_id: first.id }));
  await wantError(404, null, () => client.conversations.items.retrieve('msg_none', { conversation_id: id }));
  await wantError(400, 'missing_required_parameter', () => client.conversations.update(id, {}));
  await assert.rejects(create(id, 'fail'), { status: 500 });
  assert.equal((await create(id, 'two')).output_text, "You said 2 things, from 'one' to 'two', in 3 items.");
});

test('a second response at a time', async () => {
  const { id } = await client.conversations.create();
  const stream = await create(id, 'stall', { stream: true });
  for await (const event of stream) {
    if (event.type !== 'response.output_text.delta') continue;
    await assert.rejects(create(id, 'two'), { status: 400, code: 'conversation_locked', param: 'conversation' });
    break; // closes the connection
  }
  // The first response is not part of the conversation, which can be continued once the gateway has noticed that the client has gone away.
  assert.equal((await eventually(() => create(id, 'two'))).output_text, "You said 1 things, from 'two' to 'two', in 1 items.");
});

test('items', async () => {
  const { id } = await client.conversations.create({ items: [user('one'), { role: 'user', content: 'two' }] });
  const list = await client.conversations.items.create(id, {
    items: [{ type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{}' }, { type: 'function_call_output', call_id: 'call_1', output: 'rain' }, user('three')],
  });
  check('ConversationItemList', list, 'list');
  const all = await itemsOf(id);
  assert.deepEqual(types(all), ['message', 'message', 'function_call', 'function_call_output', 'message']);
  assert.deepEqual(all.slice(2), list.data);
  for (const limit of [1, 3, 100]) assert.deepEqual(await itemsOf(id, { limit, order: 'desc' }), all.toReversed());
  for (const item of all) assert.deepEqual(await client.conversations.items.retrieve(item.id, { conversation_id: id }), item);

  const conversation = await client.conversations.items.delete(all[1].id, { conversation_id: id });
  check('Conversation', conversation, 'conversation');
  await wantError(404, null, () => client.conversations.items.retrieve(all[1].id, { conversation_id: id }));
  assert.deepEqual(await itemsOf(id), all.toSpliced(1, 1));
  assert.equal((await create(id, 'four')).output_text, "You said 3 things, from 'one' to 'four', in 5 items.");
});

test('too many items', async () => {
  const items = Array.from({ length: 21 }, () => user('one'));
  await wantError(400, 'array_above_max_length', () => client.conversations.create({ items }));
});

const weather = tool({
  name: 'weather', description: 'The weather in a city', parameters: z.object({ city: z.string() }), execute: ({ city }) => `rain in ${city}`,
});
const agent = new Agent({ name: 'assistant', instructions: 'Be brief.', model: 'strict', tools: [weather] });

test('the sessions of the Agents SDK', async () => {
  const session = new OpenAIConversationsSession();
  assert.equal((await run(agent, 'call weather {"city":"Bonn"}', { session })).finalOutput, 'The functions answered: rain in Bonn');
  assert.match((await run(agent, 'Thanks', { session })).finalOutput, /^You said 2 things, from 'call weather .*' to 'Thanks'/);
  const id = await session.getSessionId();
  assert.deepEqual(types(await itemsOf(id)), ['message', 'function_call', 'function_call_output', 'message', 'message', 'message']);
  const last = await session.popItem();
  assert.equal(last.role, 'assistant');
  assert.equal((await session.getItems()).length, 5);
  assert.equal((await session.getItems(1)).at(-1).role, 'user');
  await session.clearSession();
  await wantError(404, null, () => client.conversations.retrieve(id));
});

test('an agent that continues a conversation', async () => {
  const { id: conversationId } = await client.conversations.create();
  await run(agent, 'call weather {"city":"Bonn"}', { conversationId });
  assert.match((await run(agent, 'Thanks', { conversationId })).finalOutput, /^You said 2 things, from 'call weather .*' to 'Thanks', in 5 items\.$/);
  assert.deepEqual(types(await itemsOf(conversationId)), ['message', 'function_call', 'function_call_output', 'message', 'message', 'message']);
});
