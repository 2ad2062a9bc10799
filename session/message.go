package session

import (
	"encoding/json"
	"fmt"
	"time"

	"soma/ident"
	"soma/message"
)

// Role says what a message is in its branch.
type Role string

// The roles.
const (
	System         Role = "system"
	Instruction    Role = "instruction"
	Assistant      Role = "assistant"
	ActionRequest  Role = "action_request"
	ActionResponse Role = "action_response"
)

// Message is one entry of a branch. It is a value: a branch keeps what it was given, so nobody may change what its pointers,
// slices and maps point to afterwards.
type Message struct {
	// ID names the message in its branch; a zero ID is replaced by a fresh one when the message is added.
	ID   ident.ID `json:"id"`
	Role Role     `json:"role"`
	// Sender and Recipient name a branch by its id, or anybody else by any text.
	Sender    string `json:"sender,omitempty"`
	Recipient string `json:"recipient,omitempty"`
	Text      string `json:"text,omitempty"`
	// Time is when the message was added first; a zero time is replaced then.
	Time time.Time `json:"time"`
	// Call is what an action request asks for; all other roles have none.
	Call *message.Call `json:"call,omitempty"`
	// Request, Status and Result belong to an action response: the id of the request in the same branch, how the call ended,
	// and what came of it as JSON. Text is the same for a model to read.
	Request ident.ID           `json:"request,omitzero"`
	Status  message.CallStatus `json:"status,omitempty"`
	Result  json.RawMessage    `json:"result,omitempty"`
	// Opaque are a provider's own blocks of an assistant message.
	Opaque []message.Opaque `json:"opaque,omitempty"`
	// Source is the message of another branch of which this one is a copy.
	Source   ident.ID       `json:"source,omitzero"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// check says what of m cannot be stored.
func (m Message) check() error {
	switch m.Role {
	case System, Instruction, Assistant, ActionResponse:
		if m.Call != nil {
			return fmt.Errorf("%w message: a call in the role %s", ErrInvalid, m.Role)
		}
	case ActionRequest:
		if m.Call == nil || m.Call.Tool == "" {
			return fmt.Errorf("%w message: an action request names no tool", ErrInvalid)
		}
	default:
		return fmt.Errorf("%w message: the role %q", ErrInvalid, m.Role)
	}
	if m.Role == ActionResponse && m.Request.IsZero() {
		return fmt.Errorf("%w message: an action response names no request", ErrInvalid)
	}
	return nil
}
