package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"soma/internal/agent/model"
)

// refusal reads what an endpoint said with a bad status, in whatever form it says it.
func (c *Client) refusal(status int, body []byte) *model.Error {
	var b struct {
		Error   json.RawMessage `json:"error"`
		Message text            `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	// What is no JSON is quoted as it is.
	_ = json.Unmarshal(body, &b)
	e := c.inner(b.Error, status)
	switch {
	case e.Words != "":
	case b.Message != "":
		e.Words = c.clean(string(b.Message))
	case len(b.Detail) > 0:
		e.Words = c.clean(string(b.Detail))
	default:
		e.Words = c.clean(string(body))
	}
	if e.Words == "" {
		e.Words = strings.ToLower(http.StatusText(status))
	}
	if status >= 300 && status < 400 {
		e.Words = "the endpoint points to another address; redirects are not followed"
	}
	if e.Class == model.BadRequest && tooLong(e.Words) {
		e.Class = model.TooLong
	}
	return e
}

// inner reads an error object {message, type, code} or a bare text. Inside a stream the status is 0, and the code or type
// decides the class.
func (c *Client) inner(raw json.RawMessage, status int) *model.Error {
	var o struct {
		Message text `json:"message"`
		Type    text `json:"type"`
		Code    text `json:"code"`
	}
	if json.Unmarshal(raw, &o) != nil {
		var s text
		_ = json.Unmarshal(raw, &s)
		o.Message = s
	}
	e := &model.Error{Status: status, Words: c.clean(string(o.Message))}
	if status == 0 {
		if n, err := strconv.Atoi(string(o.Code)); err == nil && n >= 400 && n < 600 {
			e.Status = n
		}
	}
	if e.Words == "" {
		e.Words = c.clean(strings.TrimSpace(string(o.Type) + " " + string(o.Code)))
	}
	e.Class = model.ClassOf(e.Status, string(o.Code))
	if e.Class == model.Retryable && o.Type == "insufficient_quota" {
		e.Class = model.Fatal
	}
	kind := string(o.Type + " " + o.Code)
	if e.Status == 0 && e.Class == model.BadRequest && (strings.Contains(kind, "server_error") || strings.Contains(kind, "overloaded") ||
		strings.Contains(kind, "rate_limit") || strings.Contains(kind, "timeout") || strings.Contains(kind, "internal")) {
		e.Class = model.Retryable
	}
	if e.Class == model.BadRequest && tooLong(e.Words) {
		e.Class = model.TooLong
	}
	return e
}

// tooLong knows the ways in which compatible servers say that the context does not fit.
func tooLong(words string) bool {
	words = strings.ToLower(words)
	for _, s := range []string{"context length", "context_length", "context size", "context window", "prompt is too long"} {
		if strings.Contains(words, s) {
			return true
		}
	}
	return false
}
