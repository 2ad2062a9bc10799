package faults

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"
)

// Homes that cannot be used are told in one line with exit code 73, by the daemon and by the command that wanted one, and
// nothing in them is changed.
func TestUnusableHomes(t *testing.T) { // I-01, I-15
	for name, c := range map[string]struct {
		spoil func(t *testing.T, p *place)
		says  string
	}{
		"open to others": {func(t *testing.T, p *place) {
			p.makeHome()
			if err := os.Chmod(p.home.Dir(), 0o755); err != nil {
				t.Fatal(err)
			}
		}, `its mode is 0755, not 0700: if it is the right directory, run chmod 700 \S+`},
		"a file": {func(t *testing.T, p *place) {
			if err := os.WriteFile(p.home.Dir(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, `mkdir \S+: not a directory`},
		"something in the socket's place": {func(t *testing.T, p *place) {
			p.makeHome()
			if err := os.WriteFile(p.home.Socket(), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, `cannot listen on \S+: something that is no socket is in the way`},
		"newer schema": {func(t *testing.T, p *place) {
			p.query(`update meta set value = '999' where name = 'schema'`)
		}, `cannot open the store \S+: the home has schema 999, this build knows up to \d+: use the build that made it, or another home`},
		"another program's database": {func(t *testing.T, p *place) {
			p.query(`drop table meta`)
		}, `cannot open the store \S+: the home has schema of another program, .+`},
		"no database": {func(t *testing.T, p *place) {
			p.query(`vacuum`)
			if err := os.WriteFile(p.home.Database(), []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, `cannot open the store \S+: the home has schema of another program, .+`},
		"damaged database": {func(t *testing.T, p *place) {
			p.query(`vacuum`)
			f, err := os.OpenFile(p.home.Database(), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(make([]byte, info.Size()-100), 100); err != nil {
				t.Fatal(err)
			}
		}, `cannot open the store \S+: .*malformed.*: restore a backup with soma restore --replace, or use another home`},
		"cut database": {func(t *testing.T, p *place) {
			p.query(`vacuum`)
			if err := os.Truncate(p.home.Database(), 8192); err != nil {
				t.Fatal(err)
			}
		}, `cannot open the store \S+: .*malformed.*: restore a backup with soma restore --replace, or use another home`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			c.spoil(t, p)
			before, err := os.ReadFile(p.home.Database())
			p.run("serve").ends(73).says(`cannot use home \S+: ` + c.says)
			p.run("ps").ends(73).says(`cannot (start the daemon: cannot )?use home \S+: ` + c.says)
			if after, _ := os.ReadFile(p.home.Database()); err == nil && string(after) != string(before) {
				t.Error("the database was changed")
			}
		})
	}
}

// query makes a home with a database by a daemon that is stopped again, and changes it.
func (p *place) query(text string) {
	p.t.Helper()
	p.run("ps").ends(0)
	p.run("stop").ends(0)
	db, err := sql.Open("sqlite", p.home.Database())
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(p.t.Context(), text); err != nil {
		p.t.Fatal(err)
	}
}

// What a daemon that was killed left behind, or somebody wrote into its files, does not stand in the way of the next one.
func TestLeftovers(t *testing.T) { // I-01, I-02
	p := newPlace(t)
	p.run("py", "-c", "x = 41").ends(0)
	p.kill(syscall.SIGKILL)
	if _, err := os.Lstat(p.home.Socket()); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	p.run("py", "-c", "x + 1").ends(0).prints("42\n")
	p.kill(syscall.SIGKILL)
	lock := filepath.Join(p.home.Dir(), "soma.lock")
	if err := os.WriteFile(lock, []byte("{\"pid\": 1, \"so\xff\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("py", "-c", "x + 2").ends(0).prints("43\n")
	p.run("stop", "--kernels").ends(0)
}

// pid is the daemon's.
func (p *place) pid() int {
	p.t.Helper()
	s, err := p.client().Status(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return s.PID
}

// kill sends the daemon a signal and waits for its end.
func (p *place) kill(s syscall.Signal) {
	p.t.Helper()
	pid := p.pid()
	if err := syscall.Kill(pid, s); err != nil {
		p.t.Fatal(err)
	}
	p.until("the daemon's end", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(state, "Z")
	})
}

// A token file with something else in it lets nobody in; the next daemon writes a new one.
func TestGarbageToken(t *testing.T) { // I-50
	p := newPlace(t)
	p.run("ps").ends(0)
	pid := strconv.Itoa(p.pid())
	if err := os.WriteFile(p.home.TokenFile(), []byte("\x00garbage\xff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const why = `cannot read the token: \S+/token: it holds no token: the next start of the daemon writes a new one`
	p.run("ps").ends(77).says(why)
	p.run("stop").ends(77).says(`cannot ask the daemon to stop: ` + why + `; end it with kill ` + pid)
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.until("a daemon with a new token", func() bool { return p.run("ps").code == 0 })
	if err := os.Chmod(p.home.TokenFile(), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run("ps").ends(77).says(`cannot read the token: \S+/token is open to others \(mode 0644\): run chmod 600 \S+/token`)
	if err := os.Remove(p.home.TokenFile()); err != nil {
		t.Fatal(err)
	}
	p.run("stop").ends(77).says(`cannot ask the daemon to stop: cannot read the token: .*no such file.*; end it with kill \d+`)
}

// A damaged tree of the kernel's own Python sources is written anew by the next daemon.
func TestDamagedBundle(t *testing.T) { // P-119
	p := newPlace(t)
	p.run("py", "-c", "1").ends(0)
	p.run("stop", "--kernels").ends(0)
	files, err := filepath.Glob(filepath.Join(p.home.Bundles(), "*", "*.py"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	want := map[string]string{}
	for i, file := range files {
		want[file] = p.read(file)
		if i == 0 {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte("raise SystemExit(1)\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.run("py", "-c", "6 * 7").ends(0).prints("42\n")
	for file, text := range want {
		if p.read(file) != text {
			t.Errorf("%s was not written anew", file)
		}
	}
}

// A home path too long for a socket address works.
func TestLongHomePath(t *testing.T) { // I-01
	p := newPlace(t)
	p.at(filepath.Join(filepath.Dir(p.dir), strings.Repeat("long", 40), "home"))
	p.run("py", "-c", "6 * 7").ends(0).prints("42\n")
	p.run("stop", "--kernels").ends(0)
}
