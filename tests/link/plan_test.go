package link

import "sync"

// way is a direction of the line.
type way int

const (
	toKernel way = iota
	fromKernel
	ways
)

// units is how many units of a way are cut: attach or hello, and those after it.
const units = 10

// cut is where a connection ends: in the unit with number unit of its way, after so many bytes of it, its length included.
type cut struct {
	way  way
	unit int
	byte int
}

// plan gives out the places of cuts: the units of both ways in turn, and of each unit one byte more each time, until all its
// bytes were had and it begins anew. Every second time a unit is preferred that was not had whole: not each time, for a kernel
// that is never reached is given up. It is safe for concurrent use.
type plan struct {
	mu    sync.Mutex
	turn  int
	given int
	next  [ways][units]int
	full  [ways][units]bool // all bytes of a unit were had
	made  int
	had   map[cut]bool
	want  int
	ready chan struct{} // closed when as many were made as are wanted
}

func newPlan(want int) *plan {
	return &plan{want: want, had: map[cut]bool{}, ready: make(chan struct{})}
}

// take returns the next place.
func (p *plan) take() cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, u := p.place()
	for range int(ways) * units {
		if p.given%2 == 0 || !p.full[w][u] {
			break
		}
		w, u = p.place()
	}
	p.given++
	c := cut{w, u, p.next[w][u]}
	p.next[w][u]++
	return c
}

// place is the next unit in turn.
func (p *plan) place() (w way, unit int) {
	w, unit = way(p.turn%int(ways)), p.turn/int(ways)%units
	p.turn++
	return w, unit
}

// hit notes a cut that was made, in a unit of that size.
func (p *plan) hit(c cut, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	p.had[c] = true
	if c.byte >= size {
		p.next[c.way][c.unit] = 0
		p.full[c.way][c.unit] = true
	}
	if p.made == p.want {
		close(p.ready)
	}
}

// count says how many cuts were made, at how many different places, and of how many of the 2 × units units at every byte.
func (p *plan) count() (made, places, whole int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.full {
		for _, full := range w {
			if full {
				whole++
			}
		}
	}
	return p.made, len(p.had), whole
}
