package postgres

import (
	"testing"

	"soma/internal/store/postgres/postgrestest"
)

// S-62: the sizes are those of all tables.
func TestSizes(t *testing.T) {
	s, err := Open(t.Context(), postgrestest.Database(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.TableSizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bytes := map[string]int64{}
	for _, size := range list {
		bytes[size.Table] = size.Bytes
	}
	if len(bytes) < 20 || bytes["lease"] == 0 || bytes["event"] == 0 {
		t.Errorf("sizes %v", list)
	}
}
