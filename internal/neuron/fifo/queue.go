package fifo

import "slices"

// Queue is a first-in first-out list that gives its memory back when it runs empty. Its users bound it.
type Queue[T any] struct {
	items []T
	head  int
}

// Len is how many wait.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push adds one at the end.
func (q *Queue[T]) Push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// Peek returns the oldest one of a queue that has any.
func (q *Queue[T]) Peek() T { return q.items[q.head] }

// Insert adds one before the newest ones that come after it, but never before the oldest so many.
func (q *Queue[T]) Insert(v T, oldest int, after func(T) bool) {
	q.Push(v)
	at := len(q.items) - 1
	for least := q.head + oldest; at > least && after(q.items[at-1]); at-- {
		q.items[at] = q.items[at-1]
	}
	q.items[at] = v
}

// Remove takes out the oldest one that matches and returns its place, 0 for the oldest of all, -1 for none.
func (q *Queue[T]) Remove(matches func(T) bool) int {
	at := slices.IndexFunc(q.items[q.head:], matches)
	switch {
	case at == 0:
		q.Pop()
	case at > 0:
		q.items = slices.Delete(q.items, q.head+at, q.head+at+1)
	}
	return at
}

// Pop takes the oldest one of a queue that has any.
func (q *Queue[T]) Pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	if q.head++; q.head == len(q.items) {
		q.head = 0
		if q.items = q.items[:0]; cap(q.items) > 64 {
			q.items = nil
		}
	}
	return v
}
