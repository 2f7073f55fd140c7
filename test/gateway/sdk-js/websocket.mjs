// OpenAI's WebSocket mode on both replicas, in front of an engine that rejects all state.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { client, eventually, wantError } from './client.mjs';
import { check } from './schema.mjs';
import { Socket } from './socket.mjs';

const replicas = process.env.REPLICA_URLS.split(',').map((url) => `${url}/v1`);
const said = ({ response }) => response.output.at(-1).content[0].text;
const after = (id, options) => ({ previous_response_id: id, ...options });
const unstored = { store: false };

// open connects to gateways until the end of a test.
const open = (t, ...urls) =>
  Promise.all(urls.map(async (url) => {
    const socket = await Socket.open(url);
    t.after(() => socket.close());
    return socket;
  }));

function wantSocketError(event, status, code) {
  check('SocketError', event, 'error');
  assert.deepEqual([event.status, event.error.code], [status, code], event.error.message);
}

test('stored responses are continued on every replica, and over HTTP', async (t) => {
  const [socket, other] = await open(t, ...replicas);
  const first = await socket.end('one');
  const second = await socket.end('two', after(first.response.id));
  const events = await other.create('three', after(second.response.id));
  for (const event of events) check('SocketEvent', event, event.type);
  const third = events.at(-1);
  assert.equal(said(third), "You said 3 things, from 'one' to 'three', in 5 items.");
  assert.equal(third.response.previous_response_id, second.response.id);
  const { output_text } = await client.responses.create({ model: 'strict', input: 'four', previous_response_id: third.response.id });
  assert.equal(output_text, "You said 4 things, from 'one' to 'four', in 7 items.");
});

test('a response that is not stored is continued on its connection only', async (t) => {
  const [socket, same, other] = await open(t, replicas[0], ...replicas);
  const { response } = await socket.end('one', unstored);
  const next = await socket.end('reason', after(response.id, unstored));
  const last = await socket.end('three', after(next.response.id, unstored));
  assert.equal(said(last), "You said 3 things, from 'one' to 'three', in 6 items.");
  for (const elsewhere of [same, other]) {
    wantSocketError(await elsewhere.end('two', after(response.id)), 400, 'previous_response_not_found');
  }
  await wantError(400, 'previous_response_not_found', () => client.responses.create({ model: 'strict', input: 'two', ...after(response.id) }));
});

test('a response that is not stored is forgotten when it cannot be continued', async (t) => {
  const [socket] = await open(t, replicas[0]);
  const { response } = await socket.end('one', unstored);
  assert.equal((await socket.end('fail', after(response.id, unstored))).type, 'response.failed');
  wantSocketError(await socket.end('two', after(response.id, unstored)), 400, 'previous_response_not_found');
  assert.equal((await socket.end('three')).type, 'response.completed');
});

test('conversations', async (t) => {
  const [socket, other] = await open(t, ...replicas);
  const { id } = await client.conversations.create();
  const conversation = { conversation: id };
  const [first, second] = [await socket.end('one', conversation), await other.end('two', { conversation: { id } })];
  for (const event of [first, second]) {
    check('SocketEvent', event, event.type);
    assert.deepEqual([event.response.conversation, event.response.previous_response_id], [{ id }, null]);
  }
  assert.equal(said(second), "You said 2 things, from 'one' to 'two', in 3 items.");
  assert.equal((await client.responses.create({ model: 'strict', input: 'three', ...conversation })).output_text, "You said 3 things, from 'one' to 'three', in 5 items.");
  wantSocketError(await socket.end('four', { conversation: 'conv_none' }), 404, null);
  wantSocketError(await socket.end('four', after(first.response.id, conversation)), 400, 'mutually_exclusive_parameters');

  socket.send({ type: 'response.create', model: 'strict', input: 'stall', ...conversation });
  while ((await socket.next()).type !== 'response.output_text.delta');
  wantSocketError(await other.end('four', conversation), 400, 'conversation_locked');
  socket.close();
  const last = await eventually(async () => {
    const event = await other.end('four', conversation);
    assert.equal(event.type, 'response.completed');
    return event;
  });
  assert.equal(said(last), "You said 4 things, from 'one' to 'four', in 7 items.");
});

test("the engine's errors", async (t) => {
  const [socket] = await open(t, replicas[1]);
  wantSocketError(await socket.end('one', { model: 'unknown' }), 400, 'model_not_found');
  const failed = await socket.create('fail');
  for (const event of failed) check('SocketEvent', event, event.type);
  assert.equal(failed.at(-1).response.error.code, 'server_error');
  const cut = await socket.end('cut off');
  assert.deepEqual([cut.type, cut.response.incomplete_details], ['response.incomplete', { reason: 'max_output_tokens' }]);
  assert.equal(said(await socket.end('on', after(cut.response.id))), "You said 2 things, from 'cut off' to 'on', in 3 items.");
});

test('a response cannot be steered', async (t) => {
  const [socket] = await open(t, replicas[0]);
  const { response } = await socket.end('one');
  const input = [{ type: 'message', role: 'user', content: 'two' }];
  socket.send({ type: 'response.steer', previous_response_id: response.id, input });
  const event = await socket.next();
  check('SocketEvent', event, event.type);
  assert.deepEqual([event.error.code, event.steer], ['steering_not_supported', { previous_response_id: response.id, input }]);
});

test('the end of the life of a connection', async (t) => {
  const [socket] = await open(t, `${process.env.SHORT_LIVED_URL}/v1`);
  wantSocketError(await socket.next(), 400, 'websocket_connection_limit_reached');
  assert.equal((await socket.next()).type, 'closed');
  assert.equal(socket.closed, 1000);
});
