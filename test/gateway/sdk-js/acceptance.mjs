// The Go tests of the parent folder with OpenAI's client for JavaScript.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { client, inputItems, wantError } from './client.mjs';

const create = (input, previous) =>
  client.responses.create({ model: 'scripted', input, previous_response_id: previous });

const texts = (items) => items.map(({ content }) => (typeof content === 'string' ? content : content[0].text));

test('conversation', async () => {
  const first = await create('one');
  const second = await create('two', first.id);
  const third = await create('three', second.id);
  const fork = await create('fork', first.id);
  assert.equal(first.output_text, "You said 1 things, from 'one' to 'one'.");
  assert.equal(third.output_text, "You said 3 things, from 'one' to 'three'.");
  assert.equal(fork.output_text, "You said 2 things, from 'one' to 'fork'.");
  assert.equal(third.previous_response_id, second.id);
  for (let replica = 0; replica < 2; replica++) {
    assert.deepEqual(await client.responses.retrieve(second.id), second);
  }

  await client.responses.delete(second.id);
  await wantError(404, null, () => client.responses.retrieve(second.id));
  await wantError(400, 'previous_response_not_found', () => create('four', second.id));
  await wantError(400, 'session.chain.not_found', () => create('four', third.id));
  assert.equal((await create('on', fork.id)).output_text, "You said 3 things, from 'one' to 'on'.");
});

test('stream', async () => {
  let previous;
  for (const [i, input] of ['one', 'two', 'three'].entries()) {
    const stream = client.responses.stream({ model: 'scripted', input, previous_response_id: previous });
    let text = '';
    stream.on('response.output_text.delta', ({ delta }) => (text += delta));
    const response = await stream.finalResponse();
    assert.equal(text, `You said ${i + 1} things, from 'one' to '${input}'.`);
    assert.equal(response.output_text, text);
    previous = response.id;
  }
});

test('input items over several pages', async () => {
  const first = await create('one');
  const second = await create('two', first.id);
  const third = await create('three', second.id);
  const want = ['one', first.output_text, 'two', second.output_text, 'three'];
  assert.deepEqual(texts(await inputItems(third.id)), want);
  assert.deepEqual(texts(await inputItems(third.id, { order: 'desc' })), want.toReversed());
});

test('tool call and its output over three turns', async () => {
  const asked = await create('call weather {"city":"Bonn"}');
  const [{ name, arguments: args, call_id }] = asked.output;
  assert.deepEqual([name, args], ['weather', '{"city":"Bonn"}']);
  const answered = await create([{ type: 'function_call_output', call_id, output: 'rain' }], asked.id);
  assert.equal(answered.output_text, 'The function answered: rain');
  const thanked = await create('Thanks', answered.id);
  assert.equal(thanked.output_text, `You said 2 things, from 'call weather {"city":"Bonn"}' to 'Thanks'.`);
  const types = (await inputItems(thanked.id)).map(({ type }) => type);
  assert.deepEqual(types, ['message', 'function_call', 'function_call_output', 'message', 'message']);
});

test('image of 3 MiB', async () => {
  const image_url = `data:image/png;base64,${randomBytes(3 << 20).toString('base64')}`;
  const content = [{ type: 'input_text', text: 'What is this?' }, { type: 'input_image', image_url, detail: 'auto' }];
  const created = await create([{ role: 'user', content }]);
  const next = await create('Are you sure?', created.id);
  assert.equal(next.output_text, "You said 2 things, from 'What is this?' to 'Are you sure?'.");
  const items = await inputItems(next.id);
  assert.equal(items.length, 3);
  assert.ok(items[0].content[1].image_url === image_url, 'the image differs from the one that was sent');
});
