package window

import (
	"encoding/json"
	"time"

	"soma/internal/neuron"
)

// aliased is as much of an entry as a tally needs.
type aliased struct {
	Alias string `json:"alias"`
}

// Tally counts the entries of one turn, as its row holds them.
func Tally(c *neuron.Checkpoint, incoming, outgoing []byte) error {
	var in aliased
	if err := json.Unmarshal(incoming, &in); err != nil {
		return err
	}
	if c.Tallies.In == nil {
		c.Tallies.In = map[string]uint64{}
	}
	c.Tallies.In[in.Alias]++
	return TallyOut(c, outgoing)
}

// TallyOut counts what one row sent.
func TallyOut(c *neuron.Checkpoint, outgoing []byte) error {
	if outgoing == nil {
		return nil
	}
	var out []aliased
	if err := json.Unmarshal(outgoing, &out); err != nil {
		return err
	}
	if c.Tallies.Out == nil {
		c.Tallies.Out = map[string]uint64{}
	}
	for _, o := range out {
		c.Tallies.Out[o.Alias]++
	}
	c.OutSeq += uint64(len(out))
	return nil
}

// Micros is how times lie in rows; the zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros is the way back.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
