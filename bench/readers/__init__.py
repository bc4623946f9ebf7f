"""Questions on tables and changes in replies, for a model that has read nothing but the conversation."""
