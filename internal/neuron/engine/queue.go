package engine

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
