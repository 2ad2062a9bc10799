package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/ident"
)

// Item is one thing remembered.
type Item struct {
	// ID names the item; Store makes one where it is zero.
	ID       ident.ID       `json:"id"`
	Text     string         `json:"text"`
	Tags     []string       `json:"tags,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Query says what to search for. All that is given must hold.
type Query struct {
	// Text must occur in the item's text, in whatever case; empty matches every item.
	Text string
	// Tags: the item has at least one of them.
	Tags []string
	// Metadata: the item has all of these keys with equal values (compared as [fmt.Sprint] writes them).
	Metadata map[string]any
	// Limit bounds the result after all else; nil means 20, 0 or less means no items.
	Limit *int
}

// DefaultLimit is the number of items that a search without a limit returns at most.
const DefaultLimit = 20

// Memory is a store of items. A session gives its own to each branch that has none; a branch keeps the first that it got.
// Implementations are safe for use by several goroutines.
type Memory interface {
	// Store keeps the item and returns its id; an item with a known id takes the place of the earlier one.
	Store(ctx context.Context, item Item) (ident.ID, error)
	// Retrieve returns an item; the error wraps ErrNotFound where there is none.
	Retrieve(ctx context.Context, id ident.ID) (Item, error)
	// Search returns the items that match, in the order in which they were stored first.
	Search(ctx context.Context, q Query) ([]Item, error)
}

// InMemory is a Memory that lives and ends with the program. It keeps all that is stored, without a bound. The zero value is empty.
type InMemory struct {
	mu    sync.RWMutex
	items []Item
	at    map[ident.ID]int
}

// Store never fails.
func (m *InMemory) Store(_ context.Context, item Item) (ident.ID, error) {
	if item.ID.IsZero() {
		item.ID = ident.New(time.Now())
	}
	item = item.copy()
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.at[item.ID]; ok {
		m.items[at] = item
		return item.ID, nil
	}
	if m.at == nil {
		m.at = map[ident.ID]int{}
	}
	m.at[item.ID] = len(m.items)
	m.items = append(m.items, item)
	return item.ID, nil
}

// Retrieve fails with ErrNotFound only.
func (m *InMemory) Retrieve(_ context.Context, id ident.ID) (Item, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at, ok := m.at[id]
	if !ok {
		return Item{}, fmt.Errorf("cannot retrieve item %s: %w", id, ErrNotFound)
	}
	return m.items[at].copy(), nil
}

// Search never fails. It looks at every item.
func (m *InMemory) Search(_ context.Context, q Query) ([]Item, error) {
	limit := DefaultLimit
	if q.Limit != nil {
		limit = *q.Limit
	}
	text := strings.ToLower(q.Text)
	m.mu.RLock()
	defer m.mu.RUnlock()
	var found []Item
	for _, item := range m.items {
		if len(found) >= limit {
			break
		}
		if item.matches(text, q) {
			found = append(found, item.copy())
		}
	}
	return found, nil
}

func (i Item) matches(text string, q Query) bool {
	if !strings.Contains(strings.ToLower(i.Text), text) {
		return false
	}
	if len(q.Tags) > 0 && !slices.ContainsFunc(q.Tags, func(tag string) bool { return slices.Contains(i.Tags, tag) }) {
		return false
	}
	for key, want := range q.Metadata {
		if got, ok := i.Metadata[key]; !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			return false
		}
	}
	return true
}

func (i Item) copy() Item {
	i.Tags, i.Metadata = slices.Clone(i.Tags), maps.Clone(i.Metadata)
	return i
}
