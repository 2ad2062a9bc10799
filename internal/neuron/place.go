package neuron

import (
	"hash/fnv"
	"iter"
	"math/bits"

	"soma/ident"
)

// Places is the number of places over which neurons are spread: the unit of ownership between daemons.
const Places = 256

// Place is one of the Places.
type Place uint8

// PlaceOf returns the place of a text by FNV-1a, the same in every build.
func PlaceOf(key string) Place {
	h := fnv.New32a()
	h.Write([]byte(key))
	sum := h.Sum32()
	return Place(sum ^ sum>>8 ^ sum>>16 ^ sum>>24)
}

// PlaceSet is a set of places: a value, comparable, empty when zero.
type PlaceSet [Places / 64]uint64

// PlacesOf returns the set of the given places.
func PlacesOf(places ...Place) PlaceSet {
	var s PlaceSet
	for _, p := range places {
		s.Add(p)
	}
	return s
}

// AllPlaces returns the set of all places.
func AllPlaces() PlaceSet {
	var s PlaceSet
	for i := range s {
		s[i] = ^uint64(0)
	}
	return s
}

// Add puts a place into the set.
func (s *PlaceSet) Add(p Place) { s[p/64] |= 1 << (p % 64) }

// Remove takes a place out of the set.
func (s *PlaceSet) Remove(p Place) { s[p/64] &^= 1 << (p % 64) }

// Has reports whether the set holds a place.
func (s PlaceSet) Has(p Place) bool { return s[p/64]&(1<<(p%64)) != 0 }

// And returns the places that are in both sets.
func (s PlaceSet) And(other PlaceSet) PlaceSet {
	for i := range s {
		s[i] &= other[i]
	}
	return s
}

// Or returns the places that are in either set.
func (s PlaceSet) Or(other PlaceSet) PlaceSet {
	for i := range s {
		s[i] |= other[i]
	}
	return s
}

// Without returns the places of the set that are not in the other one.
func (s PlaceSet) Without(other PlaceSet) PlaceSet {
	for i := range s {
		s[i] &^= other[i]
	}
	return s
}

// Len returns how many places the set holds.
func (s PlaceSet) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All yields the places of the set in ascending order.
func (s PlaceSet) All() iter.Seq[Place] {
	return func(yield func(Place) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(Place(i*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// Epochs are the epochs under which a node holds each place; 0 means that it does not. They are not changed once a Fence
// refers to them.
type Epochs [Places]uint64

// AllUnder returns the epochs of a node that holds every place under one epoch.
func AllUnder(epoch uint64) *Epochs {
	var e Epochs
	for i := range e {
		e[i] = epoch
	}
	return &e
}

// Held returns the places that are held. A nil Epochs holds none.
func (e *Epochs) Held() PlaceSet {
	var s PlaceSet
	if e == nil {
		return s
	}
	for i, epoch := range e {
		if epoch != 0 {
			s.Add(Place(i))
		}
	}
	return s
}

// Has reports whether the place is held. A nil Epochs holds none.
func (e *Epochs) Has(p Place) bool { return e != nil && e[p] != 0 }

// Hint tells the node that holds a place that something was committed there for it: an outbox row, or the end of what a
// request asked for.
type Hint struct {
	ID    ident.ID
	Place Place
}

// Taken is how a node came by a place.
type Taken struct {
	Epoch uint64
	// From is the node whose life ended while it held the place, which may be the node itself; empty when the place was free.
	From string
}

// Fence is the right to commit: the life of a node, and the epochs under which it holds its places.
type Fence struct {
	Node string
	// Epoch is that of the node's life: it grows at each Claim.
	Epoch  uint64
	Places *Epochs
}
