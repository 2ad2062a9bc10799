package engine

// queue is a first-in first-out list that gives its memory back when it runs empty. Its users bound it.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) peek() T { return q.items[q.head] }

func (q *queue[T]) last() T { return q.items[len(q.items)-1] }

func (q *queue[T]) pop() T {
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

// list holds the idle activations, linked through themselves.
type list struct {
	first, last *activation
	len         int
}

func (l *list) push(a *activation) {
	a.prev, a.next = l.last, nil
	if l.last != nil {
		l.last.next = a
	} else {
		l.first = a
	}
	l.last = a
	l.len++
}

// drop takes an activation out of the list if it is there.
func (l *list) drop(a *activation) {
	if a.prev == nil && a.next == nil && l.first != a {
		return
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		l.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		l.last = a.prev
	}
	a.prev, a.next = nil, nil
	l.len--
}
