// What the tests share: OpenAI's client, which also checks what the other clients have stored.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { check } from './schema.mjs';

export const baseURL = `${process.env.GATEWAY_URL}/v1`;
export const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });

// eventually repeats a call until it succeeds: what was stored or deleted may be seen a moment later.
export async function eventually(call) {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (tries === 1000) throw error;
    }
  }
}

// wantError waits until a call fails as expected.
export const wantError = (status, code, call) =>
  eventually(async () => {
    const error = await call().then(() => undefined, (error) => error);
    assert.equal(error?.status, status, error?.message);
    assert.equal(error.code ?? null, code);
    check('Error', error.error, 'error');
  });

// inputItems lists the input items of a response, a few per page.
export async function inputItems(id, query = {}) {
  const items = [];
  for await (const item of client.responses.inputItems.list(id, { limit: 2, order: 'asc', ...query })) items.push(item);
  return items;
}

// checkChain checks that each response has been stored as the child of the one before, with only its new items: a copy of an
// item would have an ID that follows from the later response. It returns the items that were new in each turn.
export async function checkChain(ids) {
  let history = [];
  const added = [];
  for (const id of ids) {
    const items = await inputItems(id);
    assert.deepEqual(items.slice(0, history.length), history, `the input items of turn ${added.length} begin with the turns before`);
    added.push(items.slice(history.length));
    history = [...items, ...(await client.responses.retrieve(id)).output];
    const itemIDs = history.map((item) => item.id);
    assert.deepEqual(itemIDs, [...new Set(itemIDs)], 'no item occurs twice');
  }
  return added;
}

export const types = (items) => items.map(({ type }) => type);
