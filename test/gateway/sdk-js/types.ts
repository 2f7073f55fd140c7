// The types of OpenAI's client that the tests check at runtime: see schema.mjs.
import type OpenAI from 'openai';
import type { ConversationItemList } from 'openai/resources/conversations/items';
import type { ResponseItemList } from 'openai/resources/responses/input-items';

export interface Types {
  // The client's type has no user messages in the output, which its documentation has.
  CompactedResponse: Omit<OpenAI.Responses.CompactedResponse, 'output'> & { output: Array<OpenAI.Responses.ResponseItem> };
  Conversation: OpenAI.Conversations.Conversation;
  ConversationDeleted: OpenAI.Conversations.ConversationDeletedResource;
  ConversationItem: OpenAI.Conversations.ConversationItem;
  ConversationItemList: ConversationItemList;
  Error: OpenAI.ErrorObject;
  Event: OpenAI.Responses.ResponseStreamEvent;
  InputTokens: OpenAI.Responses.InputTokenCountResponse;
  Item: OpenAI.Responses.ResponseItem;
  ItemList: ResponseItemList;
  ModelList: { object: 'list'; data: Array<OpenAI.Models.Model> };
  Response: OpenAI.Responses.Response;
  SocketError: OpenAI.Responses.ResponsesServerEvent.ResponseWsError;
  SocketEvent: OpenAI.Responses.ResponsesServerEvent;
}
