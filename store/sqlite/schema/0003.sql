-- A text that a conversation does not have is empty, and a number that it does not have is 0.
CREATE TABLE conversations (
  namespace                   TEXT NOT NULL,
  conversation_id             TEXT NOT NULL,
  user_id                     TEXT NOT NULL,
  title                       TEXT NOT NULL,
  system_prompt               TEXT NOT NULL,
  metadata                    TEXT,             -- JSON, byte for byte as it was received
  state                       TEXT NOT NULL,
  head_response_id            TEXT NOT NULL,
  base_response_id            TEXT NOT NULL,
  reservation_seconds         INTEGER NOT NULL,
  reservation_renewals        INTEGER NOT NULL,
  forked_from_conversation_id TEXT NOT NULL,
  forked_from_response_id     TEXT NOT NULL,
  parent_conversation_id      TEXT NOT NULL,
  hidden_items                TEXT,             -- JSON, a list of {responseID, number}
  created_at                  INTEGER NOT NULL, -- seconds since 1970
  PRIMARY KEY (namespace, conversation_id)
) STRICT;

CREATE TABLE conversation_summaries (
  namespace       TEXT NOT NULL,
  conversation_id TEXT NOT NULL,
  start_turn      INTEGER NOT NULL,
  end_turn        INTEGER NOT NULL, -- the one after the last
  content         TEXT NOT NULL,
  token_count     INTEGER NOT NULL,
  created_at      INTEGER,
  PRIMARY KEY (namespace, conversation_id, start_turn, end_turn)
) STRICT;
