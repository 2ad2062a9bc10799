package measure

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	for want, l := range map[string]Line{
		`{"name":"a","value":28555,"unit":"turns/s","ratio":0.9367,"bare":30485,"n":7,"fs":"ext4"}`: {Name: "a", Value: 28555.4, Unit: "turns/s", Bare: 30485, N: 7, FS: "ext4"},
		`{"name":"b","value":0.04321,"unit":"ms","ratio":null,"bare":null,"n":1,"fs":"xfs"}`:        {Name: "b", Value: 0.043211, Unit: "ms", N: 1, FS: "xfs"},
	} {
		var b bytes.Buffer
		if err := l.Print(&b); err != nil || b.String() != want+"\n" {
			t.Errorf("%s, %v, want %s", b.String(), err, want)
		}
	}
}

func TestDrive(t *testing.T) {
	var calls atomic.Int64
	r, err := Drive(20*time.Millisecond, 3, func(_, _ int) error { calls.Add(1); return nil })
	if err != nil || int64(r.N) != calls.Load() || r.P50 > r.P99 || r.PerSecond <= 0 {
		t.Errorf("%+v of %d calls, %v", r, calls.Load(), err)
	}
	stop := errors.New("stop")
	if _, err := Drive(time.Minute, 1, func(_, n int) error {
		if n == 3 {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) {
		t.Errorf("drive: %v", err)
	}
}

func TestDiskRefusesMemory(t *testing.T) {
	if _, err := Disk("/dev/shm"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("/dev/shm: %v", err)
	}
	if name, err := Disk("/proc"); err != nil || name == "" {
		t.Errorf("/proc: %q, %v", name, err)
	}
}
