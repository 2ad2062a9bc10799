package message

import "encoding/json"

// Role says who speaks in a message.
type Role string

// The roles. A Note is for the person only: it is stored and shown, and never sent to a provider.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
	Note      Role = "note"
)

// Message is one entry of a branch, in provider-neutral form. It is a value: once stored it never changes.
type Message struct {
	Role Role `json:"role"`
	// Text is what was said, or for a tool message what the model reads as the call's result. It is valid UTF-8.
	Text string `json:"text,omitempty"`
	// Calls are the tool calls of an assistant message, in the order the model made them.
	Calls []Call `json:"calls,omitempty"`
	// CallID and Status belong to a tool message: the call that it answers, and how the call ended.
	CallID string     `json:"call_id,omitempty"`
	Status CallStatus `json:"status,omitempty"`
	// Result is the tool's whole structured result, for clients; Text is made from it.
	Result json.RawMessage `json:"result,omitempty"`
	// Images are what the call of a tool message has shown, beside Text.
	Images []Image `json:"images,omitempty"`
	// Opaque blocks are kept byte for byte and go back to the same provider family only (K-29).
	Opaque []Opaque `json:"opaque,omitempty"`
}

// Image names an image whose bytes are kept elsewhere.
type Image struct {
	// Media is its type, such as image/png.
	Media string `json:"media"`
	// Content is the text form of the id under which its bytes are kept.
	Content string `json:"content"`
	Size    int64  `json:"size"`           // bytes
	Name    string `json:"name,omitempty"` // of the file that it came from
}

// Call is one tool call of an assistant message.
type Call struct {
	// ID is the provider's own id of the call, or one made at the provider edge; unique within its message.
	ID   string `json:"id"`
	Tool string `json:"tool"`
	// Arguments is always valid JSON: what the model wrote if that was valid, else "{}" with Malformed set.
	Arguments json.RawMessage `json:"arguments"`
	// Malformed says where parsing the model's own text failed; empty for a good call (K-11).
	Malformed string `json:"malformed,omitempty"`
}

// CallStatus says how a tool call ended.
type CallStatus string

// The ends of a tool call. Unknown means: it may have happened, a crash hid the outcome, and it was not repeated.
const (
	OK        CallStatus = "ok"
	Error     CallStatus = "error"
	Denied    CallStatus = "denied"
	TimedOut  CallStatus = "timed_out"
	Cancelled CallStatus = "cancelled"
	Unknown   CallStatus = "unknown"
)

// Opaque is a provider's own block (reasoning, a signature) that must go back unchanged.
type Opaque struct {
	// Family names the provider family that made the block, such as "openai".
	Family string `json:"family"`
	Kind   string `json:"kind"`
	// Data are the provider's own bytes; in JSON they are base64, so that no encoder on the way touches them.
	Data []byte `json:"data"`
}

// Usage counts the tokens of one provider attempt, normalised at the provider edge (K-24): the classes do not overlap,
// but Reasoning is a part of Output.
type Usage struct {
	Input      int64 `json:"input"` // uncached input
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	// Estimated marks counts that the provider did not report.
	Estimated bool `json:"estimated,omitempty"`
}

// Total is the sum of all classes.
func (u Usage) Total() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// Add returns the sum of two usages; it is estimated if one of them is.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Output: u.Output + v.Output, Reasoning: u.Reasoning + v.Reasoning, Estimated: u.Estimated || v.Estimated,
	}
}
