"""Long-term memory, as one pipeline:

1. `ingestion` stores turns and finished tasks as cells; `explicit_statements` finds requests.
2. `extraction` and `extraction_worker` draw facts with a model; `admission` filters them.
3. `consolidation` is the one write path: add, support, merge, supersede or ignore. It compares with
   `fact_matching`; `promotion` and `candidate_review` raise facts to long-term memory.
4. `retriever` searches words, `embeddings` and associations, always within a reader's `access`.
5. `context_builder` puts what was found before a model; `decay` learns what it used.

Beside it: `consent`, with its rules in `consent_rules`, for what must not be kept; `decay` and
`maintenance`; `episodes`; `writer` and `service` for changes by people; `markdown_sync` for the
same as files; `conversation_archive` for whole conversations; `export_import` and `bulk_jsonl` for
files.
"""
