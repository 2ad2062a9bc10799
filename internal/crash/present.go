//go:build crash

package crash

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// plan is what the environment asks for.
type plan struct {
	kill   Name
	at     int
	hits   string
	faults []Fault
}

var (
	current = sync.OnceValue(func() plan {
		p, err := parse(os.Getenv("SOMA_CRASH"), os.Getenv("SOMA_CRASH_HITS"), os.Getenv("SOMA_FAULT"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return p
	})
	mu    sync.Mutex
	count = map[Name]int{}
)

// A wrong name must end the program even when it never comes by a point.
func init() { current() }

func parse(kill, hits, faults string) (plan, error) {
	p := plan{at: 1, hits: hits}
	if kill != "" {
		name, nth, counted := strings.Cut(kill, ":")
		if p.kill = Name(name); !slices.Contains(Names(), p.kill) {
			return plan{}, fmt.Errorf("cannot use SOMA_CRASH: no crash point %q", name)
		}
		if counted {
			n, err := strconv.Atoi(nth)
			if err != nil || n < 1 {
				return plan{}, fmt.Errorf("cannot use SOMA_CRASH: %q is no number of hits", nth)
			}
			p.at = n
		}
	}
	for f := range strings.SplitSeq(faults, ",") {
		if f = strings.TrimSpace(f); f == "" {
			continue
		}
		if !slices.Contains(Faults(), Fault(f)) {
			return plan{}, fmt.Errorf("cannot use SOMA_FAULT: no fault %q", f)
		}
		p.faults = append(p.faults, Fault(f))
	}
	return p, nil
}

// Point counts a hit of the named point, and does not return when it is the one that SOMA_CRASH chose. It is safe for use
// from many goroutines: the lock is held through the kill, so that no later hit is counted.
func Point(n Name) {
	p := current()
	mu.Lock()
	defer mu.Unlock()
	count[n]++
	if p.hits != "" {
		if err := appendLine(p.hits, string(n)); err != nil {
			fmt.Fprintf(os.Stderr, "cannot count a crash point: %v\n", err)
			os.Exit(2)
		}
	}
	if n != p.kill || count[n] != p.at {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Off reports whether SOMA_FAULT has switched the fault on.
func Off(f Fault) bool { return slices.Contains(current().faults, f) }

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
