package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"soma/internal/config"
)

// Code that ends its interpreter: the result is unknown and not repeated, and the next one says that the names are gone.
func TestExitInACell(t *testing.T) { // P-021
	p := newPlace(t)
	p.run("py", "-c", "x = 41").ends(0)
	r := p.run("py", "-c", "open('ran', 'a').write('once '); import os; os._exit(3)").ends(1).prints("")
	if want := "soma: result unknown: the python kernel ended (it exited with status 3)\n"; !strings.HasPrefix(r.err, want) {
		t.Errorf("it said %q", r.err)
	}
	r = p.run("py", "-c", "'x' in dir()").ends(0).prints("False\n")
	if !strings.HasPrefix(r.err, "soma: names of the earlier kernel are gone") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("the next one said %q", r.err)
	}
	if r = p.run("py", "-c", "1").ends(0); r.err != "" {
		t.Errorf("the one after it said %q", r.err)
	}
	if ran := p.read(filepath.Join(p.dir, "ran")); ran != "once " {
		t.Errorf("it ran %q", ran)
	}
	p.until("the end of the earlier kernel", func() bool {
		s, err := p.client().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Kernels) == 1 && s.Kernels[0].State == "attached"
	})
}

// 5 MB of output: all of it is kept, in the store or in a file, and paged byte by byte; the model sees at most 32 KiB. Without the
// file the first MiB and the last 64 KiB are left, with the true size.
func TestLargeOutput(t *testing.T) { // K-15, P-036
	p := newPlace(t)
	p.write("s.yaml", "steps:\n  - calls:\n      - python: \"for i in range(500_000): print(f'{i:09d}')\"\n  - say: Done.\n")
	shown := p.run("run", "--model", "script:s.yaml", "x").ends(0).out
	found := regexp.MustCompile(`soma logs --cell (\w+)`).FindStringSubmatch(shown)
	if found == nil || len(shown) > 8<<10 {
		t.Fatalf("run showed %d bytes: %.2000q", len(shown), shown)
	}
	id := found[1]
	var whole bytes.Buffer
	for i := range 500_000 {
		fmt.Fprintf(&whole, "%09d\n", i)
	}
	c := p.client()
	messages, err := c.Messages(t.Context(), 1, 0, 10)
	if err != nil || len(messages.Items) != 4 {
		t.Fatalf("%d messages (%v)", len(messages.Items), err)
	}
	if seen := messages.Items[2].Message.Text; len(seen) > 32<<10 || len(seen) < 16<<10 || !strings.Contains(seen, "5000000") {
		t.Errorf("the model sees %d bytes: %.200q", len(seen), seen)
	}
	cell, err := c.Cell(t.Context(), id)
	if err != nil || cell.OutputSize != 5_000_000 {
		t.Fatalf("%+v (%v)", cell, err)
	}
	const head, tail = 1 << 20, 64 << 10
	if r := p.run("logs", "--cell", id).ends(0); r.out != whole.String() || r.err != "" {
		t.Errorf("logs --cell printed %d bytes, and said %q", len(r.out), r.err)
	}
	if page, err := c.Output(t.Context(), id, head+3, 7); err != nil || !page.Kept || page.Text != whole.String()[head+3:head+10] {
		t.Errorf("in the file: %+v (%v)", page, err)
	}
	if err := os.RemoveAll(p.home.Output()); err != nil {
		t.Fatal(err)
	}
	kept := whole.String()[:head] + whole.String()[5_000_000-tail:]
	r := p.run("logs", "--cell", id).ends(0)
	if r.out != kept {
		t.Errorf("logs --cell printed %d bytes, want %d", len(r.out), len(kept))
	}
	if !strings.HasSuffix(r.err, "of output were not kept\n") {
		t.Errorf("logs --cell said %q", r.err)
	}
	for _, at := range []int64{0, 1, head - 10, head - 1, 5_000_000 - tail, 5_000_000 - 1} {
		page, err := c.Output(t.Context(), id, at, 7)
		want := whole.String()[at:min(at+7, 5_000_000)]
		if at < head {
			want = whole.String()[at:min(at+7, head)]
		}
		if err != nil || page.Text != want || page.Next != at+int64(len(want)) || page.Size != 5_000_000 || !page.Kept {
			t.Errorf("at %d: %+v, want %q (%v)", at, page, want, err)
		}
	}
	if page, err := c.Output(t.Context(), id, head, 7); err != nil || page.Kept || page.Text != "" || page.Next != 5_000_000-tail {
		t.Errorf("in the part that was not kept: %+v (%v)", page, err)
	}
}

// Whatever a stranger sends to a kernel's socket is refused or cut off; the kernel goes on serving its owner, with its names.
func TestGarbageOnAKernelsSocket(t *testing.T) { // P-013, P-118
	p := newPlace(t)
	p.run("py", "-c", "x = 41").ends(0)
	sockets, err := filepath.Glob(filepath.Join(p.home.Run(), "*", "kernel.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v (%v)", sockets, err)
	}
	unit := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	kernel := filepath.Base(filepath.Dir(sockets[0]))
	for name, c := range map[string]struct {
		sent     []byte
		answered string
	}{
		"oversize":          {[]byte{0xff, 0xff, 0xff, 0xff, 'x'}, `"malformed"`},
		"64 MiB + 1":        {[]byte{4, 0, 0, 1}, `"malformed"`},
		"over an attach":    {append([]byte{0, 1, 0, 1}, make([]byte, 64<<10)...), `"malformed"`},
		"empty":             {[]byte{0, 0, 0, 0}, `"malformed"`},
		"HTTP":              {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), `"malformed"`},
		"no UTF-8":          {unit("\xff\xfe{}"), `"malformed"`},
		"no JSON":           {unit("{"), `"malformed"`},
		"no attach":         {unit(`{"seq":1,"ack":0,"frame":{"type":"shutdown"}}`), `"malformed"`},
		"a foreign token":   {unit(`{"attach":{"kernel":"` + kernel + `","token":"` + strings.Repeat("ab", 32) + `","ack":0,"grace":60,"lease":99,"protocol":1}}`), `"token"`},
		"cut in the header": {[]byte{0, 0}, ""},
		"cut in the body":   {[]byte{0, 0, 0, 9, '{'}, ""},
	} {
		conn, err := config.DialSocket(t.Context(), sockets[0])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(c.sent) // it may be cut off before it has all
		_ = conn.(*net.UnixConn).CloseWrite()
		answer, err := io.ReadAll(conn)
		// What was sent and not read makes the end of the connection a reset, before or after the answer.
		text := strings.ReplaceAll(string(answer[min(4, len(answer)):]), " ", "")
		if want := `{"refused":` + c.answered + `}`; err == nil && c.answered != "" && text != want || c.answered == "" && text != "" {
			t.Errorf("%s: answered %q, want %s", name, text, want)
		}
		_ = conn.Close()
	}
	var silent []net.Conn
	for range 8 { // as many as may wait; who says nothing does not keep the owner out
		conn, err := config.DialSocket(t.Context(), sockets[0])
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	p.run("py", "-c", "x + 1").ends(0).prints("42\n")
	p.run("stop").ends(0) // the next daemon attaches anew, past the silent ones
	p.run("py", "-c", "x + 2").ends(0).prints("43\n")
	for _, conn := range silent {
		_ = conn.Close()
	}
	p.run("stop", "--kernels").ends(0)
}

// status names a kernel's interpreter and folder.
func TestStatusNamesTheKernel(t *testing.T) { // I-12
	p := newPlace(t)
	p.run("py", "-c", "1").ends(0)
	s, err := p.client().Status(t.Context())
	if err != nil || len(s.Kernels) != 1 {
		t.Fatalf("%+v (%v)", s, err)
	}
	if k := s.Kernels[0]; k.Workspace != p.dir || !filepath.IsAbs(k.Python) || k.PID == 0 {
		t.Errorf("the kernel is %+v", k)
	}
	p.run("stop", "--kernels").ends(0)
}
