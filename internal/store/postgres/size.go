package postgres

import (
	"context"
	"fmt"

	"soma/internal/neuron"
)

const selectSizes = `select c.relname::text, pg_total_relation_size(c.oid), greatest(coalesce(s.n_live_tup, 0), 0)
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace`

// TableSizes returns how much each table holds, its indexes included; rows are those that the server believes in.
func (s *Store) TableSizes(ctx context.Context) ([]neuron.TableSize, error) {
	var list []neuron.TableSize
	err := s.Query(ctx, selectSizes, nil, func(scan func(...any) error) error {
		var t neuron.TableSize
		err := scan(&t.Table, &t.Bytes, &t.Rows)
		list = append(list, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the sizes of the tables: %w", err)
	}
	return list, nil
}
