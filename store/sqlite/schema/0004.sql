-- A turn at which another conversation ends is not deleted with its own conversation.
CREATE INDEX conversations_by_head ON conversations (namespace, head_response_id);
CREATE INDEX conversations_by_base ON conversations (namespace, base_response_id);
