// The types of OpenAI's client for JavaScript as checks at runtime. A check returns what is wrong with a value.
import assert from 'node:assert/strict';

const show = (value) => JSON.stringify(value) ?? 'missing';
const is = (name, test) => (value, path) => (test(value) ? [] : [`${path} is ${show(value)}, want ${name}`]);
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

const any = () => [];
const string = is('a string', (value) => typeof value === 'string');
const number = is('a number', (value) => typeof value === 'number');
const boolean = is('a boolean', (value) => typeof value === 'boolean');
const record = is('an object', isObject);
const oneOf = (...values) => is(`one of ${values}`, (value) => values.includes(value));
const nullable = (check) => (value, path) => (value === null ? [] : check(value, path));
const optional = (check) => (value, path) => (value === undefined ? [] : check(value, path));
const array = (check) => (value, path) =>
  Array.isArray(value) ? value.flatMap((element, i) => check(element, `${path}[${i}]`)) : [`${path} is ${show(value)}, want an array`];
const object = (members) => (value, path) =>
  isObject(value)
    ? Object.entries(members).flatMap(([name, check]) => check(value[name], `${path}.${name}`))
    : [`${path} is ${show(value)}, want an object`];
const stringOr = (check) => (value, path) => (typeof value === 'string' ? [] : check(value, path));
// byType checks an object whose member `type` names its check.
const byType = (checks) => (value, path) => (checks[value?.type] ?? is(`a ${Object.keys(checks).join(', ')}`, () => false))(value, path);

// check fails if a value differs from its type.
export const check = (type, value, name) => assert.deepEqual(type(value, name), []);

const itemStatus = oneOf('in_progress', 'completed', 'incomplete');
const details = (...names) => object(Object.fromEntries(names.map((name) => [name, number])));

const outputPart = byType({
  output_text: object({ type: string, text: string, annotations: array(record), logprobs: optional(array(record)) }),
  refusal: object({ type: string, refusal: string }),
});
const inputPart = byType({
  input_text: object({ type: string, text: string }),
  input_image: object({
    type: string, detail: oneOf('low', 'high', 'auto', 'original'), file_id: optional(nullable(string)), image_url: optional(nullable(string)),
  }),
  input_file: object({ type: string }),
});
const summaryPart = object({ type: oneOf('summary_text'), text: string });

const outputMessage = object({ type: string, id: string, content: array(outputPart), role: oneOf('assistant'), status: itemStatus });
const functionCall = object({ type: string, id: string, call_id: string, name: string, arguments: string, status: itemStatus });
const reasoning = object({
  type: string, id: string, summary: array(summaryPart), content: optional(array(record)), encrypted_content: optional(nullable(string)),
  status: optional(itemStatus),
});
const outputItem = byType({ message: outputMessage, function_call: functionCall, reasoning });

const inputMessage = object({
  type: string, id: string, content: array(inputPart), role: oneOf('user', 'system', 'developer'), status: optional(itemStatus),
});

// Item is a ResponseItem, as lists of input items have them.
export const Item = byType({
  message: (value, path) => (value.role === 'assistant' ? outputMessage : inputMessage)(value, path),
  function_call: functionCall,
  function_call_output: object({ type: string, id: string, call_id: string, output: stringOr(array(inputPart)), status: itemStatus }),
  reasoning,
});

const usage = object({
  input_tokens: number, input_tokens_details: details('cached_tokens', 'cache_write_tokens'),
  output_tokens: number, output_tokens_details: details('reasoning_tokens'),
  total_tokens: number,
});
const toolUsage = object({
  image_gen: object({ input_tokens: number, input_tokens_details: record, output_tokens: number, total_tokens: number }),
  web_search: details('num_requests'),
});

const tool = (value, path) =>
  (value?.type === 'function' ? object({ name: string, parameters: nullable(record), strict: nullable(boolean) }) : object({ type: string }))(value, path);

// responseMembers are the members of a Response. Those that OpenAI always sends are required here, although some are optional in
// the client's type.
export const responseMembers = {
  id: string,
  access_programs: nullable(object({ cyber: string })),
  background: nullable(boolean),
  completed_at: optional(nullable(number)),
  conversation: optional(nullable(object({ id: string }))),
  created_at: number,
  error: nullable(object({ code: string, message: string })),
  image: optional(record),
  incomplete_details: nullable(object({ reason: optional(oneOf('max_output_tokens', 'max_messages', 'content_filter', 'steered')) })),
  input_transformations: optional(array(record)),
  instructions: nullable(stringOr(array(record))),
  max_output_tokens: nullable(number),
  max_tool_calls: optional(nullable(number)),
  metadata: nullable(record),
  model: string,
  moderation: optional(nullable(record)),
  object: oneOf('response'),
  output: array(outputItem),
  parallel_tool_calls: boolean,
  previous_response_id: nullable(string),
  prompt: optional(nullable(record)),
  prompt_cache_diagnostics: optional(record),
  prompt_cache_key: optional(nullable(string)),
  prompt_cache_options: optional(object({ mode: string, ttl: string })),
  prompt_cache_retention: optional(nullable(oneOf('in_memory', '24h'))),
  reasoning: nullable(object({ effort: optional(nullable(string)), summary: optional(nullable(string)) })),
  safety_identifier: optional(nullable(string)),
  service_tier: optional(nullable(string)),
  status: oneOf('completed', 'failed', 'in_progress', 'cancelled', 'queued', 'incomplete'),
  temperature: nullable(number),
  text: object({ format: byType({ text: any, json_object: any, json_schema: object({ name: string, schema: record }) }) }),
  tool_choice: stringOr(object({ type: string })),
  tool_usage: optional(toolUsage),
  tools: array(tool),
  top_logprobs: optional(nullable(number)),
  top_p: nullable(number),
  truncation: nullable(oneOf('auto', 'disabled')),
  usage: optional(nullable(usage)), // null until the response has ended
  user: optional(nullable(string)),
};

export const Response = object(responseMembers);

export const ItemList = object({ object: oneOf('list'), data: array(Item), first_id: string, last_id: string, has_more: boolean });

export const conversationMembers = { id: string, created_at: number, metadata: record, object: oneOf('conversation') };

export const Conversation = object(conversationMembers);

export const ConversationDeleted = object({ id: string, deleted: boolean, object: oneOf('conversation.deleted') });

export const InputTokens = object({ object: oneOf('response.input_tokens'), input_tokens: number });

export const CompactedResponse = object({
  id: string, created_at: number, object: oneOf('response.compaction'), usage,
  output: array(byType({ message: inputMessage, compaction: object({ type: string, id: string, encrypted_content: string }) })),
});

export const ModelList = object({ object: oneOf('list'), data: array(object({ id: string, created: number, object: oneOf('model'), owned_by: string })) });

// SocketError is an error in WebSocket mode that is not part of a response.
export const SocketError = object({
  type: oneOf('error'), status: number, error: object({ type: string, code: nullable(string), message: string, param: nullable(string) }),
});

const event = (members) => object({ type: string, sequence_number: number, ...members });
const withResponse = event({ response: Response });
const inItem = (members) => event({ output_index: number, item_id: string, ...members });
const inContent = (members) => inItem({ content_index: number, ...members });
const inSummary = (members) => inItem({ summary_index: number, ...members });
const logprobs = array(record);

export const Event = byType({
  error: event({ code: nullable(string), message: string, param: nullable(string) }),
  'response.created': withResponse,
  'response.in_progress': withResponse,
  'response.completed': withResponse,
  'response.incomplete': withResponse,
  'response.failed': withResponse,
  'response.output_item.added': event({ output_index: number, item: outputItem }),
  'response.output_item.done': event({ output_index: number, item: outputItem }),
  'response.content_part.added': inContent({ part: outputPart }),
  'response.content_part.done': inContent({ part: outputPart }),
  'response.output_text.delta': inContent({ delta: string, logprobs }),
  'response.output_text.done': inContent({ text: string, logprobs }),
  'response.function_call_arguments.delta': inItem({ delta: string }),
  'response.function_call_arguments.done': inItem({ arguments: string }),
  'response.reasoning_summary_part.added': inSummary({ part: summaryPart }),
  'response.reasoning_summary_part.done': inSummary({ part: summaryPart }),
  'response.reasoning_summary_text.delta': inSummary({ delta: string }),
  'response.reasoning_summary_text.done': inSummary({ text: string }),
});
