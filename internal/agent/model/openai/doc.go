// Package openai speaks the streaming chat completions of OpenAI and of the many servers that are compatible with it in
// their own ways (K-35), over net/http.
//
// It must not know turns, stores or retries: it makes one attempt and classes its errors. It imports agent/model,
// agent/tool and message.
package openai
