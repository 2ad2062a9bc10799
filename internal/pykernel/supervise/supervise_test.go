package supervise_test

import (
	"testing"

	"go.uber.org/goleak"

	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneCell(t *testing.T) {
	h := pykerneltest.New(t, nil)
	_, cell := h.Open("a", "1+1")
	m := h.Outcome(cell)
	if m.Status != pykernel.CellOK || m.Value == nil || *m.Value != "2" {
		t.Errorf("outcome %+v", m)
	}
}
