"""`/api/v1`: one module a noun, each with typed routes, from which the OpenAPI document is made."""
