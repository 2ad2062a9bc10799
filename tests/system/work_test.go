//go:build crash

package system_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"soma/client"
	"soma/internal/agent/tool"
	"soma/message"
	"soma/wire"
)

// cells are what the scripted model runs, by name. Each leaves a line in a file of its name for each time that it runs, and
// the names go from cell to cell. Cell c says that it works and then waits until the file go is there.
var cells = map[string]string{
	"a": mark("a") + "total = 1\ntotal",
	"b": mark("b") + "total += 10\ntotal",
	"c": mark("c") + "import os, time\nwith open('c.pid', 'w') as f: f.write(str(os.getpid()))\nprint('working', flush=True)\n" +
		"while not os.path.exists('go'): time.sleep(0.005)\ntotal += 100\ntotal",
	"d": mark("d") + "total += 1000\nprint('total is', total)",
	"e": mark("e") + "print('total' in globals())",
}

func mark(name string) string {
	return "with open('" + name + ".txt', 'a') as f: f.write('" + name + " runs\\n')\n"
}

// script is what the model says: calls in three steps, two of them in one message, and answers of at least ten tokens. The
// last two steps are for the second input.
var script = []reply{
	{words: strings.SplitAfter("first I look at both of the things that there are here ", " "), cells: []string{cells["a"], cells["b"]}},
	{words: strings.SplitAfter("now comes the long one which may take a good while to end ", " "), cells: []string{cells["c"]}},
	{cells: []string{cells["d"]}},
	{words: strings.SplitAfter("the work is done and the total is one thousand one hundred eleven ", " ")},
	{cells: []string{cells["e"]}},
	{words: strings.SplitAfter("that was another process with a python kernel of its own ", " ")},
}

// inputs are the ids of the two inputs with the steps that each is good for. The second comes when the process of the first
// has ended: the session gives it a new one.
var inputs = []struct {
	id          string
	first, last int
}{{"task", 1, 4}, {"more", 5, 6}}

// work is one session with the scripted task, and what was seen of it.
type work struct {
	w      *world
	name   string
	dir    string   // its workspace
	input  string   // text of the first input
	pids   []uint64 // of the inputs that were answered
	shown  []wire.Event
	output func(*work, wire.OutputEvent) error
	event  func(context.Context, *work, wire.Event) error
}

// newWork prepares a work; with waits its cell c waits for open.
func (w *world) newWork(name string, waits bool) (*work, error) {
	k := &work{w: w, name: name, dir: filepath.Join(w.dir, "work-"+name), input: "do the work " + name}
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.works = append(w.works, k)
	w.mu.Unlock()
	if waits {
		return k, nil
	}
	return k, k.open()
}

// open lets cell c end.
func (k *work) open() error { return os.WriteFile(filepath.Join(k.dir, "go"), nil, 0o600) }

// run does the work through all deaths of the daemon, to the end of its last process.
func (k *work) run(ctx context.Context) error {
	err := k.w.keep(ctx, func() error {
		_, err := k.w.client.OpenSession(ctx, k.name, wire.OpenSession{Workspace: k.dir, Model: "played"})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot open the session: %w", err)
	}
	for _, in := range inputs {
		text := k.input
		if in.id != "task" {
			text = "now " + in.id
		}
		if err := k.admit(ctx, in.id, text); err != nil {
			return fmt.Errorf("cannot give input %s: %w", in.id, err)
		}
		pid := k.pids[len(k.pids)-1]
		if err := k.follow(ctx, func(e wire.Event) bool { return e.Kind == wire.ProcessExited && e.PID == pid }); err != nil {
			return err
		}
	}
	return nil
}

func (k *work) admit(ctx context.Context, id, text string) error {
	return k.w.keep(ctx, func() error {
		in, err := k.w.client.Admit(ctx, k.name, id, wire.Input{Text: text})
		if err == nil {
			k.w.mu.Lock()
			k.pids = append(k.pids, in.PID)
			k.w.mu.Unlock()
		}
		return err
	})
}

// follow collects what is shown, from the cursor after the last event that it has, until one is the last.
func (k *work) follow(ctx context.Context, last func(wire.Event) bool) error {
	err := k.w.keep(ctx, func() error {
		k.w.mu.Lock()
		from := wire.Cursor{}
		if n := len(k.shown); n > 0 {
			from.Seq = k.shown[n-1].Seq
		}
		k.w.mu.Unlock()
		_, err := k.w.client.Follow(ctx, k.name, from, func(f client.Frame) error {
			switch {
			case f.Reset != nil:
				return fmt.Errorf("the feed was reset at %v", f.Cursor)
			case f.Output != nil && k.output != nil:
				return k.output(k, *f.Output)
			case f.Event != nil:
				k.w.mu.Lock()
				k.shown = append(k.shown, *f.Event)
				k.w.mu.Unlock()
				if last(*f.Event) {
					return client.ErrEnough
				}
				if k.event != nil {
					return k.event(ctx, k, *f.Event)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot follow the work: %w; the last thing shown is %s", err, k.lastShown())
	}
	return nil
}

func (k *work) lastShown() string {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if len(k.shown) == 0 {
		return "nothing"
	}
	e := k.shown[len(k.shown)-1]
	return fmt.Sprintf("%d %s %s", e.Seq, e.Kind, e.Body)
}

// committed checks against the image of a crash that what was shown and what has run is in it.
func (k *work) committed(ctx context.Context, m *image) error {
	rows, err := m.events(ctx, k.name)
	if err != nil {
		return err
	}
	for _, e := range k.shown {
		if e.Seq > uint64(len(rows)) || !same(rows[e.Seq-1], e) {
			return fmt.Errorf("event %d (%s) was shown and is not committed", e.Seq, e.Kind)
		}
	}
	for name, code := range cells {
		runs, err := k.runs(name)
		if err != nil {
			return err
		}
		starts, err := m.starts(ctx, k.name, code)
		if err != nil {
			return err
		}
		if runs > starts {
			return fmt.Errorf("cell %s ran %d times and was started %d times", name, runs, starts)
		}
	}
	return nil
}

// stillThere checks at a new daemon that the inputs which were answered are known.
func (k *work) stillThere(ctx context.Context) error {
	for i := range k.pids {
		if _, err := k.w.client.Input(ctx, k.name, inputs[i].id); err != nil {
			return fmt.Errorf("input %s was answered and is lost: %w", inputs[i].id, err)
		}
	}
	return nil
}

// runs counts how often a cell ran.
func (k *work) runs(cell string) (int, error) {
	text, err := os.ReadFile(filepath.Join(k.dir, cell+".txt"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return strings.Count(string(text), "\n"), err
}

// transcript reads the branch's messages.
func (k *work) transcript(ctx context.Context) ([]message.Message, error) {
	var all []message.Message
	var after uint64
	for {
		page, err := k.w.client.Messages(ctx, k.pids[0], after, 3)
		if err != nil {
			return nil, err
		}
		for _, m := range page.Items {
			after = m.Seq
			all = append(all, m.Message)
		}
		if page.Next == "" {
			return all, nil
		}
	}
}

// entry is what the hash of a transcript is made of.
type entry struct {
	Role      message.Role    `json:"role"`
	Text      string          `json:"text"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
}

// normal leaves ids, times, durations, notes and the name of the work away.
func (k *work) normal(history []message.Message) ([]entry, error) {
	var all []entry
	for _, m := range history {
		if m.Role == message.Note {
			continue
		}
		e := entry{Role: m.Role, Text: strings.TrimSuffix(m.Text, k.name)}
		if len(m.Result) > 0 {
			var r tool.Result
			if err := json.Unmarshal(m.Result, &r); err != nil {
				return nil, err
			}
			if want := tool.Render(r); m.Text != want {
				return nil, fmt.Errorf("the text of a result is %q and not made from the result: %q", m.Text, want)
			}
			r.DurationMS, r.CellID = 0, ""
			b, err := json.Marshal(r)
			if err != nil {
				return nil, err
			}
			e.Result, e.Text = b, tool.Render(r)
		}
		all = append(all, e)
		for _, c := range m.Calls {
			all = append(all, entry{Role: m.Role, Tool: c.Tool, Arguments: c.Arguments})
		}
	}
	return all, nil
}

func hash(entries []entry) (string, error) {
	b, err := json.Marshal(entries)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// fromEveryCursor follows the feed from each cursor that there is and returns the first one's events; no one's may differ.
func (k *work) fromEveryCursor(ctx context.Context) ([]wire.Event, error) {
	var first []wire.Event
	read := func(from, last uint64) ([]wire.Event, error) {
		var got []wire.Event
		_, err := k.w.client.Follow(ctx, k.name, wire.Cursor{Seq: from}, func(f client.Frame) error {
			if f.Event == nil {
				return fmt.Errorf("not an event after cursor %d", from)
			}
			got = append(got, *f.Event)
			if f.Event.Seq >= last {
				return client.ErrEnough
			}
			return nil
		})
		return got, err
	}
	s, err := k.w.client.Session(ctx, k.name)
	if err != nil {
		return nil, err
	}
	for from := range s.LastEvent {
		got, err := read(from, s.LastEvent)
		if err != nil {
			return nil, err
		}
		if from == 0 {
			first = got
		}
		if !slices.EqualFunc(got, first[from:], same) {
			return nil, fmt.Errorf("the feed after cursor %d is not the rest of the feed from the start", from)
		}
	}
	return first, nil
}
