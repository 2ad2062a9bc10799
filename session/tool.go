package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tool is a function that a model can call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments; nil means an object of whatever form.
	Schema json.RawMessage
	// Run does the work. It is called from any goroutine, at once for several calls; its result must have a JSON form.
	Run func(ctx context.Context, arguments json.RawMessage) (any, error)
}

func (t Tool) check() error {
	if t.Name == "" || t.Run == nil {
		return fmt.Errorf("%w tool %q: it needs a name and a function", ErrInvalid, t.Name)
	}
	return nil
}

// SetTool gives the branch a tool, in the place of one of the same name. The error wraps ErrInvalid.
func (b *Branch) SetTool(t Tool) error {
	if err := t.check(); err != nil {
		return fmt.Errorf("cannot set a tool: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	tools := maps.Clone(b.tools) // clones of the branch share the old map
	if tools == nil {
		tools = map[string]Tool{}
	}
	tools[t.Name] = t
	b.tools = tools
	return nil
}

// DropTool takes a tool away, and says whether there was one.
func (b *Branch) DropTool(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.tools[name]; !ok {
		return false
	}
	b.tools = maps.Clone(b.tools)
	delete(b.tools, name)
	return true
}

// Tools returns the branch's tools, sorted by name.
func (b *Branch) Tools() []Tool {
	b.mu.RLock()
	tools := b.tools
	b.mu.RUnlock()
	return slices.SortedFunc(maps.Values(tools), func(x, y Tool) int { return strings.Compare(x.Name, y.Name) })
}

func (b *Branch) tool(name string) (Tool, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	t, ok := b.tools[name]
	return t, ok
}
