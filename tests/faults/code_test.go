package faults

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"soma/ident"
	"soma/wire"
)

// sys.exit and endless recursion are exceptions like others: the kernel goes on.
func TestExceptions(t *testing.T) {
	y := newPlace(t).python()
	y.raises("import sys; sys.exit(5)", "SystemExit: 5")
	y.raises("def f(n): return f(n + 1)\nf(0)", "RecursionError: maximum recursion depth exceeded")
	y.lives()
}

// Code that breaks its interpreter ends the kernel: the result is unknown, and the next cell says that the names are gone.
func TestBrokenInterpreter(t *testing.T) { // P-021
	y := newPlace(t).python()
	cell := y.cell("import ctypes; ctypes.string_at(0)")
	if want := "result unknown: the python kernel ended (it was ended by SIGSEGV)"; cell.Status != "unknown" || cell.Note != want {
		t.Errorf("the cell is %+v", cell)
	}
	y.lost()
}

// One swallowed interrupt does not save a cell; one that swallows all loses its kernel after 10 s, and holds up nobody longer.
func TestSwallowedInterrupts(t *testing.T) { // P-202
	y := newPlace(t).python()
	id := y.begin("import time\nopen('began', 'w').close()\nend = time.time() + 60\ntry:\n    while time.time() < end: pass\n" +
		"except KeyboardInterrupt: open('swallowed', 'w').close()\nwhile time.time() < end: pass")
	y.until("the cell", func() bool { return y.exists("began") })
	y.interrupt(id)
	if cell := y.end(id); cell.Status != "interrupted" || !y.exists("swallowed") {
		t.Errorf("the first cell is %+v", cell)
	}
	y.lives()
	id = y.begin("open('began2', 'w').close()\nend = time.time() + 60\nwhile time.time() < end:\n    try:\n" +
		"        while time.time() < end: pass\n    except BaseException: pass")
	next := y.begin("'x' in dir()")
	y.until("the cell", func() bool { return y.exists("began2") })
	y.interrupt(id)
	want := "the cell did not stop when it was interrupted, so its python kernel was ended: cell " + id + " did not stop within 10s of its interrupt"
	if cell := y.end(id); cell.Status != "interrupted" || cell.Note != want {
		t.Errorf("the second cell is %+v, want %q", cell, want)
	}
	want = "result unknown: the python kernel ended (cell " + id + " did not stop within 10s of its interrupt)"
	if cell := y.end(next); cell.Status != "unknown" || cell.Note != want {
		t.Errorf("the cell that waited is %+v, want %q", cell, want)
	}
	y.lost()
}

func (y *python) interrupt(id string) {
	y.t.Helper()
	if _, err := y.c.InterruptCell(y.t.Context(), id); err != nil {
		y.t.Fatal(err)
	}
}

// A fork that runs on speaks to nobody in the kernel's name, and ends with the kernel. A pool of processes works.
func TestForkInACell(t *testing.T) {
	y := newPlace(t).python()
	y.ok("import os, time\npid = os.fork()\nif pid == 0:\n    print('child')\n    open('child', 'w').write(str(os.getpid()))\n    time.sleep(600)")
	y.until("the child", func() bool { return y.exists("child") && y.read(filepath.Join(y.dir, "child")) != "" })
	y.lives()
	// A child that leaves the code as the cell does ends there.
	if v := y.ok("a = os.fork()\nif a: os.waitpid(a, 0)\na > 0"); v != "True" {
		t.Errorf("the kernel's side of a fork is %s", v)
	}
	if v := y.ok("import multiprocessing as m\ndef f(x): return x * x\nwith m.get_context('fork').Pool(2) as pool: r = pool.map(f, range(5))\nr"); v != "[0, 1, 4, 9, 16]" {
		t.Errorf("the pool gave %s", v)
	}
	y.lives()
	var pid int
	if _, err := fmt.Sscan(y.read(filepath.Join(y.dir, "child")), &pid); err != nil {
		t.Fatal(err)
	}
	y.run("stop", "--kernels").ends(0)
	y.until("the end of the child", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// A cell that closes its output loses it for itself alone.
func TestClosedOutput(t *testing.T) { // P-204
	y := newPlace(t).python()
	y.raises("import os; os.close(1); print('kept'); os.write(1, b'raw')", "OSError: [Errno 9] Bad file descriptor")
	y.prints("print('again'); n = os.write(1, b'raw\\n')", "again\nraw\n")
	y.ok("os.close(1); os.close(2)")
	y.prints("n = os.write(2, b'errors\\n'); n = os.write(1, b'raw\\n')", "errors\nraw\n")
	y.lives()
}

// A cell may go elsewhere: later ones, and jobs, are there too.
func TestAnotherFolder(t *testing.T) {
	y := newPlace(t).python()
	if v := y.ok("import os; os.chdir('/'); os.getcwd()"); v != "'/'" {
		t.Errorf("it is in %s", v)
	}
	if v := y.ok("j = run('pwd'); await j; (os.getcwd(), j.read())"); v != `('/', '/\n')` {
		t.Errorf("the next one is in %s", v)
	}
}

// A kernel whose folder is gone ends within a second; the work goes on in another.
func TestRunDirectoryIsDeleted(t *testing.T) { // P-108
	y := newPlace(t).python()
	cell := y.cell("import os, shutil, time; shutil.rmtree(os.path.join(" + fmt.Sprintf("%q", y.home.Run()) + ", os.listdir(" + fmt.Sprintf("%q", y.home.Run()) + ")[0]))\nwhile True: pass")
	if want := "result unknown: the python kernel ended (it exited with status 0)"; cell.Status != "unknown" || cell.Note != want {
		t.Errorf("the cell is %+v", cell)
	}
	y.lost()
}

const tooMany = "not started: 16 cells run already, and no more may at once: wait until one has ended"

// Sixteen cells run at once; the seventeenth is refused, and none of the others is the worse for it.
func TestSeventeenCells(t *testing.T) { // P-023, P-042
	y := newPlace(t).python()
	y.ok("import asyncio; go = asyncio.Event()")
	var cells []string
	for range 16 {
		cells = append(cells, y.begin("await go.wait(); x"))
	}
	_, err := y.c.RunCell(t.Context(), y.session.ID, ident.New(time.Now()).String(), wire.RunCell{Code: "go.set()"})
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.Busy || err.Error() != tooMany {
		t.Errorf("the next one: %v", err)
	}
	y.run("py", "-c", "go.set()").ends(75).says("cannot do that: " + tooMany + "; try again later")
	y.interrupt(cells[15])
	if cell := y.end(cells[15]); cell.Status != "interrupted" {
		t.Errorf("%+v", cell)
	}
	y.ok("go.set()")
	for _, id := range cells[:15] {
		if cell := y.end(id); cell.Status != "ok" || *cell.Value != "41" {
			t.Errorf("%+v", cell)
		}
	}
}

// A cell whose id is used twice runs once; with other code it is refused.
func TestAnIdTwice(t *testing.T) { // P-023
	y := newPlace(t).python()
	id := ident.New(time.Now()).String()
	var cells []string
	for range 3 {
		cell, err := y.c.RunCell(t.Context(), y.session.ID, id, wire.RunCell{Code: "open('ran', 'a').write('once ')"})
		if err != nil {
			t.Fatal(err)
		}
		cells = append(cells, y.end(cell.ID).ID)
	}
	if cells[0] != cells[1] || cells[0] != cells[2] {
		t.Errorf("the cells are %s", cells)
	}
	_, err := y.c.RunCell(t.Context(), y.session.ID, id, wire.RunCell{Code: "1"})
	if err == nil || err.Error() != "this cell was already sent with other code" {
		t.Errorf("with other code: %v", err)
	}
	if ran := y.read(filepath.Join(y.dir, "ran")); ran != "once " {
		t.Errorf("it ran %q", ran)
	}
}
