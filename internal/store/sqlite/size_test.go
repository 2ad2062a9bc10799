package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
)

// S-62: the sizes are those of all tables, with the rows that there are; what was deleted is free and is used again, so that the
// file does not grow.
func TestSizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soma.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := s.w.exec(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	fill := func() {
		t.Helper()
		exec("begin")
		for i := range 3000 {
			body := fmt.Appendf(nil, "%0500d", i)
			exec("insert into event (session, seq, pid, kind, body, at) values ('s', ?, 0, 'k', ?, 0)", int64(i), body)
			exec("insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, 'c', '', 1, 0)", fmt.Appendf(nil, "%016d", i), body)
		}
		exec("commit")
	}
	fill()
	list, err := s.TableSizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, bytes := map[string]int64{}, int64(0)
	for _, size := range list {
		rows[size.Table] = size.Rows
		bytes += size.Bytes
	}
	for table, want := range map[string]int64{"event": 3000, "dead_letter": 3000, "ledger_sum": 0} {
		if got, ok := rows[table]; !ok || got != want {
			t.Errorf("%s has %d rows, want %d", table, got, want)
		}
	}
	pages, err := s.w.number(t.Context(), "select page_count * page_size from pragma_page_count, pragma_page_size")
	if err != nil || bytes > pages || bytes < pages*9/10 {
		t.Errorf("%d bytes in tables of %d, %v", bytes, pages, err)
	}
	exec("delete from event")
	exec("delete from dead_letter")
	if free, err := s.FreeBytes(t.Context()); err != nil || free < pages*8/10 {
		t.Errorf("%d bytes are free of %d, %v", free, pages, err)
	}
	fill()
	after, err := s.w.number(t.Context(), "select page_count * page_size from pragma_page_count, pragma_page_size")
	if err != nil || after > pages*21/20 {
		t.Errorf("the file grew from %d to %d bytes, %v", pages, after, err)
	}
}
