package sqlite

import (
	"context"
	"fmt"

	"soma/internal/neuron"
)

// selectSizes walks through the file. A table's own tree counts its rows: in the leaves, and where it has no rowid in the
// inner pages too.
const selectSizes = `select t.name, sum(s.pgsize), sum(case when s.name = t.name and (s.pagetype = 'leaf' or s.pagetype = 'internal' and t.wr = 1) then s.ncell else 0 end)
from pragma_table_list t
join (select name, name as tree from sqlite_schema where type = 'table' union all select tbl_name, name from sqlite_schema where type = 'index') n on n.name = t.name
join dbstat s on s.name = n.tree
where t.schema = 'main' and t.type = 'table' and t.name not like 'sqlite_%' group by t.name`

// TableSizes returns how much each table holds, its indexes included. It reads the whole file: not for who waits.
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

// FreeBytes returns how much of the file later rows will use before it grows.
func (s *Store) FreeBytes(ctx context.Context) (n int64, err error) {
	err = s.Query(ctx, `select f.freelist_count * p.page_size from pragma_freelist_count f, pragma_page_size p`, nil,
		func(scan func(...any) error) error { return scan(&n) })
	return n, err
}
