// The types of OpenAI's client for JavaScript, which are generated from OpenAI's API document, as checks at runtime.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const path = fileURLToPath(new URL('types.ts', import.meta.url));
const root = 'Types';
const schema = createGenerator({ path, type: root, topRef: false, jsDoc: 'none', additionalProperties: true, skipTypeCheck: true }).createSchema(root);

// The client adds one member. OpenAI always sends some that are optional in the type, and sends null in some that are not nullable in it, as
// the examples of its API reference show.
const { properties, required } = schema.definitions.Response;
const alwaysSent = [
  'background', 'max_output_tokens', 'previous_response_id', 'reasoning', 'status', 'text', 'top_logprobs', 'truncation', 'usage', 'user',
];
for (const name of alwaysSent) assert.ok(name in properties, `a response has no ${name}`);
schema.definitions.Response.required = [...required.filter((name) => name !== 'output_text'), ...alwaysSent];
for (const name of ['usage', 'user']) properties[name] = { anyOf: [properties[name], { type: 'null' }] };
schema.definitions.Response.if = { properties: { status: { enum: ['completed', 'incomplete'] } } };
schema.definitions.Response.then = { properties: { usage: { type: 'object' } } };
schema.definitions.ResponseFunctionToolCall.required.push('id', 'status');
schema.definitions.ResponseInputMessageItem.required.push('status');

const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema(schema, root);
// A type that the generator does not find would accept everything.
for (const type of Object.keys(schema.properties)) assert.equal(ajv.getSchema(`${root}#/properties/${type}`)({}), false, type);

// check fails if a value is not of a type of types.ts.
export function check(type, value, name) {
  const validate = ajv.getSchema(`${root}#/properties/${type}`);
  assert.ok(validate, `types.ts has no ${type}`);
  if (validate(value)) return;
  // Every variant of a union that the value is not meant to be fails at its constants.
  const errors = validate.errors.filter(({ keyword }) => keyword !== 'const');
  assert.fail(`${name} is no ${type}: ${ajv.errorsText(errors, { dataVar: name })}\n${JSON.stringify(value)}`);
}
