package cli

import (
	"fmt"
	"sync"
	"time"

	"soma/client"
)

const (
	pulseEvery = time.Second
	pulseAfter = 3 * time.Second // of silence
)

// pulse shows on a terminal, in one line that the next news replaces, that something still runs while nothing comes of it.
// Its methods may be called from several goroutines.
type pulse struct {
	mu    sync.Mutex
	t     *transcript
	last  time.Time // of news
	shown bool      // the line stands there
	quiet bool      // something was said beside the transcript: nothing is known until the next news
	stop  chan struct{}
	ended sync.WaitGroup
}

// newPulse watches over a transcript until finish.
func newPulse(t *transcript) *pulse {
	p := &pulse{t: t, last: time.Now(), stop: make(chan struct{})}
	p.ended.Go(func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.beat(time.Now())
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// beat writes the line. An error of writing is left to the next news.
func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	silence := now.Sub(p.last)
	what := p.t.busy()
	if p.quiet || silence < pulseAfter || what == "" || p.t.s.inLine {
		return
	}
	p.t.s.transient(fmt.Sprintf("  … %s; no news for %d s", what, int(silence.Seconds())))
	p.shown = true
	_ = p.t.s.flush()
}

// clear takes the line away.
func (p *pulse) clear() {
	if p.shown {
		p.t.s.transient("")
		p.shown = false
	}
}

func (p *pulse) frame(f client.Frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.last, p.quiet = time.Now(), false
	return p.t.frame(f)
}

// endLine makes room for what is said beside the transcript.
func (p *pulse) endLine() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.quiet = true
	p.t.s.endLine()
	return p.t.s.flush()
}

// finish ends the watch and the transcript.
func (p *pulse) finish() error {
	close(p.stop)
	p.ended.Wait()
	p.clear()
	return p.t.finish()
}
