-- Lists of conversations are sorted by when they were created, last changed, or got their last turn.
ALTER TABLE conversations ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN active_at INTEGER NOT NULL DEFAULT 0;
UPDATE conversations SET updated_at = created_at, active_at = created_at;

CREATE INDEX conversations_by_created_at ON conversations (namespace, state, created_at, conversation_id);
CREATE INDEX conversations_by_updated_at ON conversations (namespace, state, updated_at, conversation_id);
CREATE INDEX conversations_by_active_at ON conversations (namespace, state, active_at, conversation_id);

CREATE INDEX user_conversations_by_created_at ON conversations (namespace, user_id, state, created_at, conversation_id) WHERE user_id <> '';
CREATE INDEX user_conversations_by_updated_at ON conversations (namespace, user_id, state, updated_at, conversation_id) WHERE user_id <> '';
CREATE INDEX user_conversations_by_active_at ON conversations (namespace, user_id, state, active_at, conversation_id) WHERE user_id <> '';

CREATE INDEX child_conversations_by_created_at ON conversations (namespace, parent_conversation_id, state, created_at, conversation_id)
  WHERE parent_conversation_id <> '';
CREATE INDEX child_conversations_by_updated_at ON conversations (namespace, parent_conversation_id, state, updated_at, conversation_id)
  WHERE parent_conversation_id <> '';
CREATE INDEX child_conversations_by_active_at ON conversations (namespace, parent_conversation_id, state, active_at, conversation_id)
  WHERE parent_conversation_id <> '';
