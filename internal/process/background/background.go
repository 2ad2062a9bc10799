package background

import (
	"fmt"
	"strings"

	"soma/internal/process/cells"
	"soma/internal/process/wake"
)

// MaxCells is how many cells may run in one python kernel at once (P-038).
const MaxCells = 16

// maxListed bounds how many jobs and how many cells are named one by one.
const maxListed = 8

// Cells counts the cells of a python kernel that have not ended.
func Cells(q cells.Querier, kernel string) (n int, err error) {
	err = q.Query(`select count(*) from cell where kernel = ? and state = 'started'`, []any{kernel}, func(scan func(...any) error) error { return scan(&n) })
	return n, err
}

// Awaited counts the cells and the jobs of a python kernel whose end somebody waits for: all that run but services, and but the
// one cell or job that ends just now.
func Awaited(q cells.Querier, kernel, ending string) (n int, err error) {
	err = q.Query(`select (select count(*) from cell where kernel = ? and state = 'started' and id <> ?) +
(select count(*) from job where kernel = ? and state = 'running' and service = 0 and id <> ?)`, []any{kernel, ending, kernel, ending},
		func(scan func(...any) error) error { return scan(&n) })
	return n, err
}

// Stopped says which jobs and cells ended with a python kernel (P-089), "" where there were none. woken says that its owner is an
// agent, which has heard of the others already: of jobs by its wake, of cells by their results.
func Stopped(q cells.Querier, kernel string, woken bool) (string, error) {
	least := int64(0)
	if woken {
		least = 1 // services wake nobody
	}
	said, err := listed(q, "Jobs stopped", `select id, command from job where kernel = ? and state = 'lost' and service >= ? order by started_at, id limit ?`,
		kernel, least)
	if err != nil || woken {
		return said, err
	}
	ended, err := listed(q, "Cells ended", `select id, code from cell where kernel = ? and state = 'ended' and status = 'unknown' order by started_at, id limit ?`,
		kernel)
	return strings.TrimSpace(said + " " + ended), err
}

// listed names what a query finds, an id and a text each, "" for nothing.
func listed(q cells.Querier, what, sql string, args ...any) (string, error) {
	var list []string
	err := q.Query(sql, append(args, int64(maxListed+1)), func(scan func(...any) error) error {
		var id, text string
		err := scan(&id, &text)
		list = append(list, fmt.Sprintf("%s (%s)", id, wake.FirstLine(text)))
		return err
	})
	if err != nil || len(list) == 0 {
		return "", err
	}
	if len(list) > maxListed {
		list[maxListed] = "and more"
	}
	return fmt.Sprintf("%s by the restart: %s.", what, strings.Join(list, ", ")), nil
}
