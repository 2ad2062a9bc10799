package supervise

import "slices"

// phase says where a python kernel is in its life in this daemon; its row knows less (booting, running, ending, ended).
type phase string

// The phases.
const (
	waiting  phase = "waiting"  // for one of the MaxLive places
	booting  phase = "booting"  // its OS process does not listen yet
	detached phase = "detached" // it lives or may live, without a connection
	attached phase = "attached"
	ending   phase = "ending" // its OS processes are being ended, outcomes are being written
	over     phase = "over"   // nothing is left, the owner knows
)

// phases lists which phase may follow which; every change goes through (*kernel).enter.
var phases = map[phase][]phase{
	waiting:  {booting, ending},
	booting:  {detached, ending},
	detached: {attached, ending},
	attached: {detached, ending},
	ending:   {over},
	over:     {},
}

func (p phase) leadsTo(next phase) bool { return slices.Contains(phases[p], next) }
