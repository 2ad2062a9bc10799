package faults

import (
	"fmt"
	"strings"
	"testing"

	"soma/wire"
)

// Bytes that are no text become one replacement character each, from Python and from below it; a half surrogate is written
// as its escape.
func TestBytesInOutput(t *testing.T) { // P-055, P-056
	y := newPlace(t).python()
	y.prints(`import sys; n = sys.stdout.buffer.write(b"\xff\xfe\x00ab\x80\n")`, "\ufffd\ufffd\x00ab\ufffd\n")
	y.prints(`import os; n = os.write(1, b"\xff\x80native\xe2\x82\n")`, "\ufffd\ufffdnative\ufffd\n")
	y.prints(`print("a\udc80b")`, "a\\udc80b\n")
	y.prints(`j = run(["printf", "\\377\\200ab"]); await j; print(j.read())`, "\ufffd\ufffdab\n")
	y.lives()
}

// Pages are cut on characters, whatever their size, and together they are the output; an offset within a character is moved to
// one, and a half one at the end of what is there waits for its rest.
func TestHalfCharacters(t *testing.T) { // P-050
	y := newPlace(t).python()
	text := strings.Repeat("aé€😀", 5000) + "\n"
	cell := y.prints(`print("aé€😀" * 5000)`, text)
	for _, limit := range []int64{1, 4096, 65535} {
		if limit == 1 { // small pages of the end
			for at := int64(len(text) - 11); at < int64(len(text)); {
				page, err := y.c.Output(t.Context(), cell, at, limit)
				if err != nil || page.Text == "" || text[at:page.Next] != page.Text {
					t.Fatalf("at %d: %+v (%v)", at, page, err)
				}
				at = page.Next
			}
		} else if got := y.output(cell, limit); got != text {
			t.Errorf("in pages of %d: %d bytes", limit, len(got))
		}
	}
	// a is at 0, é at 1, € at 3, 😀 at 6
	for at, want := range []string{"aé€😀", "é€😀a", "€😀aé", "€😀aé", "😀aé€", "😀aé€", "😀aé€", "aé€😀", "aé€😀", "aé€😀", "aé€😀"} {
		page, err := y.c.Output(t.Context(), cell, int64(at), 10)
		if err != nil || page.Text != want || text[page.Next-int64(len(want)):page.Next] != want {
			t.Errorf("at %d: %+v, want %q (%v)", at, page, want, err)
		}
	}
	// While it runs: the first half of the character is no page yet.
	id := y.begin("import os, asyncio; go = asyncio.Event(); n = os.write(1, b'x\\xe2\\x82'); await go.wait(); n = os.write(1, b'\\xacy')")
	var page wire.OutputPage
	y.until("the first half", func() (yes bool) {
		var err error
		if page, err = y.c.Output(t.Context(), id, 0, 100); err != nil {
			t.Fatal(err)
		}
		return page.Text != ""
	})
	if page.Text != "x" || page.Next != 1 {
		t.Errorf("while half a character is there: %+v", page)
	}
	y.ok("go.set()")
	y.end(id)
	if got := y.output(id, 100); got != "x€y" {
		t.Errorf("at the end: %q", got)
	}
}

// A line of 5 MB is kept whole; a model sees its ends.
func TestLongLine(t *testing.T) { // P-062
	p := newPlace(t)
	y := p.python()
	y.prints("print('x' * 5_000_000)", strings.Repeat("x", 5_000_000)+"\n")
	p.write("s.yaml", "steps:\n  - calls:\n      - python: print('x' * 5_000_000)\n  - say: Done.\n")
	p.run("run", "--model", "script:s.yaml", "x").ends(0)
	messages, err := y.c.Messages(t.Context(), 1, 0, 10)
	if err != nil || len(messages.Items) != 4 {
		t.Fatalf("%d messages (%v)", len(messages.Items), err)
	}
	if seen := messages.Items[2].Message.Text; len(seen) > 32<<10 || len(seen) < 16<<10 || !strings.Contains(seen, "5000001") {
		t.Errorf("the model sees %d bytes: %.200q", len(seen), seen)
	}
	y.lives()
}

// 100,000 prints take less than a second, none is lost, and each stands in its place.
func TestManyPrints(t *testing.T) { // P-212
	y := newPlace(t).python()
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&text, i)
	}
	cell := y.prints("import time\nbegan = time.monotonic()\nfor i in range(100_000): print(i)\ntook = time.monotonic() - began", text.String())
	if v := y.ok("took < 1"); v != "True" {
		t.Errorf("it took %s s", y.ok("took"))
	}
	if got := y.output(cell, 1000); got != text.String() {
		t.Errorf("in small pages: %d bytes", len(got))
	}
}

// Native code that writes megabytes while it holds Python's lock is not waited for by anybody.
func TestNativeWritesWithTheLock(t *testing.T) { // P-204
	y := newPlace(t).python()
	const block = "0123456789abcdef"
	y.prints(`import ctypes; b = b"0123456789abcdef" * (4 << 16); n = ctypes.PyDLL(None).write(1, b, len(b))`, strings.Repeat(block, 4<<16))
	if v := y.ok("n"); v != "4194304" {
		t.Errorf("%s bytes were written", v)
	}
	y.lives()
}

// Where the disk of outputs is full the cell and the job go on: what is kept without it can be read, and what was not is told.
func TestFullDiskWhileSpilling(t *testing.T) { // P-063
	p := newPlace(t)
	p.makeHome()
	do := p.elsewhere(fmt.Sprintf("mkdir -p -m 700 %[1]s\nmount -t tmpfs -o size=256k,mode=0700 none %[1]s", p.home.Output()))
	y := p.python()
	const head, tail = 1 << 20, 64 << 10
	cell := y.cell("print('y' * 5_000_000)")
	if cell.Status != "ok" || cell.OutputSize != 5_000_001 {
		t.Errorf("the cell is %+v", cell)
	}
	if page, err := y.c.Output(t.Context(), cell.ID, head-5, 10); err != nil || page.Text != "yyyyy" || page.Size != 5_000_001 {
		t.Errorf("the last kept of the beginning: %+v (%v)", page, err)
	}
	if page, err := y.c.Output(t.Context(), cell.ID, head, 10); err != nil || page.Kept || page.Next != 5_000_001-tail {
		t.Errorf("what was not kept: %+v (%v)", page, err)
	}
	if v := y.ok("j = run('yes | head -c 5000000'); await j; (j.exit_code, j.tail(4))"); v != `(0, 'y\ny\n')` {
		t.Errorf("the job is %s", v)
	}
	y.raises("j.read(offset=2_000_000, limit=10)", "soma_capture.OutputLost: bytes 2000000 to 2000010 of j1 are not kept; "+
		"the first 1048579 bytes are: output.read('j1', offset=0, limit=65536)")
	p.write("s.yaml", "steps:\n  - calls:\n      - python: print('y' * 5_000_000)\n  - say: Done.\n")
	p.run("run", "--model", "script:s.yaml", "x").ends(0)
	messages, err := y.c.Messages(t.Context(), 1, 0, 10)
	if err != nil || len(messages.Items) != 4 {
		t.Fatalf("%d messages (%v)", len(messages.Items), err)
	}
	line, _, _ := strings.Cut(messages.Items[2].Message.Text, "\n")
	if !strings.HasPrefix(line, `{"status":"ok",`) || !strings.HasSuffix(line, `,"truncated":"the output has 5000001 bytes"}`) {
		t.Errorf("the model reads %s", line)
	}
	do("mount -o remount,size=64m " + p.home.Output())
	y.prints("print('z' * 5_000_000)", strings.Repeat("z", 5_000_000)+"\n")
	y.lives()
	p.run("stop", "--kernels").ends(0)
}
