package retention

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"soma/ident"
	"soma/internal/neuron"
)

// contentName stands before the id of a payload that is kept apart, in the JSON of a delivery.
var contentName = []byte(`"content":"`)

// payloadsOf returns the payloads that deliveries to a neuron have brought, where they came from outside or from its own kin and
// were handled: nobody else names those.
func (k *Keeper) payloadsOf(ctx context.Context, id neuron.ID, kin []neuron.ID) (ids []ident.ID, err error) {
	var named []ident.ID
	err = k.each(ctx, `select t.incoming from turn t join neuron n on n.key = t.neuron where n.id = ? and t.incoming is not null`, []any{id.String()},
		func(scan func(...any) error) error {
			var b []byte
			if err := scan(&b); err != nil || !bytes.Contains(b, contentName) {
				return err
			}
			var e neuron.Entry
			if err := json.Unmarshal(b, &e); err != nil {
				return fmt.Errorf("an entry of %s: %w", id, err)
			}
			if !e.Content.IsZero() && e.Settled == "" && (e.Caller == neuron.ID{} || slices.Contains(kin, e.Caller)) {
				named = append(named, e.Content)
			}
			return nil
		})
	for _, id := range named {
		n := int64(0)
		if err == nil {
			n, err = k.number(ctx, `select count(*) from content where id = ? and payload = 1`, id[:])
		}
		if n > 0 {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// payloads deletes what deliveries have brought, before the journals go that name it.
func (d *deleter) payloads(ctx context.Context) error {
	kin := d.k.neurons(d.t)
	for _, id := range kin {
		ids, err := d.k.payloadsOf(ctx, id, kin)
		for _, id := range ids {
			if err == nil {
				err = d.add(ctx, 1, do(dropPayload, id[:]))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
