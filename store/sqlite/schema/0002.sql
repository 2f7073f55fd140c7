-- Lists of conversations are sorted by the creation time and the response ID. A turn without a creation time has that of Go's zero time.
ALTER TABLE turns ADD COLUMN listed_at INTEGER NOT NULL GENERATED ALWAYS AS (coalesce(created_at, -62135596800)) VIRTUAL;

DROP INDEX turns_by_conversation;
CREATE INDEX turns_by_conversation ON turns (namespace, conversation_id, listed_at, response_id) WHERE conversation_id IS NOT NULL;
