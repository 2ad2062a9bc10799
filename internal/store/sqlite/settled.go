package sqlite

import (
	"context"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
)

var _ neuron.Window = (*Store)(nil)

// selectWindow reads the segments of a neuron's ids and those of the turns after its checkpoint, which have none yet.
const selectWindow = `select ids from (
	select segment as at, ids from seen where neuron = ?1
	union all select seq, delivery_id from turn where neuron = ?1 and seq > (select in_seq from neuron where key = ?1)
) order by at`

// SettledIDs reads them in one statement.
func (s *Store) SettledIDs(ctx context.Context, key int64, each func(ident.ID)) error {
	err := s.queries.each(ctx, nil, selectWindow, []any{key}, func(scan func(...any) error) error {
		var ids []byte
		if err := scan(&ids); err != nil {
			return err
		}
		for ; len(ids) >= ident.Size; ids = ids[ident.Size:] {
			each(ident.ID(ids[:ident.Size]))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the settled deliveries of neuron %d: %w", key, err)
	}
	return nil
}
