CREATE TABLE turns (
  namespace            TEXT NOT NULL,
  response_id          TEXT NOT NULL,
  previous_response_id TEXT,
  conversation_id      TEXT,
  uid                  TEXT NOT NULL,    -- new for every turn, kept by an overwrite
  version              TEXT NOT NULL,    -- new for every write
  status               TEXT NOT NULL,
  created_at           INTEGER,          -- seconds since 1970
  completed_at         INTEGER,
  immutable            INTEGER NOT NULL,
  request              TEXT,             -- JSON, byte for byte as it was received
  response             TEXT,
  metadata             TEXT,
  PRIMARY KEY (namespace, response_id)
) STRICT;

CREATE INDEX turns_by_parent ON turns (namespace, previous_response_id) WHERE previous_response_id IS NOT NULL;
CREATE INDEX turns_by_conversation ON turns (namespace, conversation_id) WHERE conversation_id IS NOT NULL;
