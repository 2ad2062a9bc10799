package call

import (
	"encoding/json"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// lost returns the delivery that makes the caller of a row end it (Conclude), under the same id as long as nobody asks again.
func (r *Row) lost(now time.Time) neuron.Delivery {
	payload, _ := json.Marshal(losing{r.ID, r.Ask}) // ids are never refused
	return neuron.Delivery{
		ID: ident.Derive(r.Ask, "lost"), Alias: LostAlias, Payload: payload, Caller: r.Caller, Target: r.Caller,
		Correlation: r.Correlation, Causation: r.Cause, At: now,
	}
}

type losing struct {
	Request ident.ID `json:"request"`
	Ask     ident.ID `json:"ask"`
}

// Conclude is the handler of LostAlias, the same for every kind: it records that the request failed and that nobody knows how far
// it came, unless it was ended or asked again meanwhile.
func Conclude(t *neuron.Turn) error {
	var msg losing
	if err := json.Unmarshal(t.Delivery().Payload, &msg); err != nil {
		return neuron.SettleAs(neuron.Undecodable, err)
	}
	r, found, err := read(t.Query, msg.Request)
	switch {
	case err != nil:
		return err
	case !found, r.Caller != t.Self(), r.State == Left, r.Ask != msg.Ask:
		return nil
	}
	t.Anyway(ended(t, &r, FailedAlias, Unknown))
	return nil
}
