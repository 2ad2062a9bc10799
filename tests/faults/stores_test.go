package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A backup to a full disk is no backup: one line that says what to do, nothing is left on the disk, and the store is as it
// was; with room the same command works.
func TestBackupToAFullDisk(t *testing.T) { // I-15
	p := newPlace(t)
	disk := filepath.Join(filepath.Dir(p.home.Dir()), "backups")
	do := p.elsewhere(fmt.Sprintf("mkdir -m 700 %[1]s\nmount -t tmpfs -o size=512k,mode=0700 none %[1]s", disk))
	p.run("py", "-c", "x = 41").ends(0)
	file := filepath.Join(disk, "b")
	// Full while the rows are written, and full before the first.
	for _, room := range []string{"256k", "4k"} {
		do(fmt.Sprintf("dd if=/dev/zero bs=1k 2>/dev/null > %[1]s/ballast || true\ntruncate -s -%[2]s %[1]s/ballast", disk, room))
		p.run("backup", file).ends(1).says(`cannot back up: the disk is full: .*; make room, and run it again`)
		do(fmt.Sprintf(`test "$(ls %s)" = ballast`, disk))
	}
	do("rm " + disk + "/ballast && mount -o remount,size=64m " + disk)
	p.run("backup", file).ends(0).tells("wrote " + file + " (")
	p.run("backup", file).ends(77).says(".* exists already; name another file, or remove it")
	p.run("py", "-c", "x + 1").ends(0).prints("42\n")
	p.run("restore", "--replace", file).ends(73).says(".* holds it .*")
	p.run("stop", "--kernels").ends(0)
	// A home on a disk that has no room for the restored store keeps its old one.
	p.run("restore", file).ends(77).says(".*; with --replace the backup takes its place")
	p.run("restore", "--replace", file).ends(0).tells("is kept as " + p.home.Database() + ".replaced-")
	p.run("py", "-c", "x").ends(1)
	p.run("stop", "--kernels").ends(0)
}

// A home on a full disk keeps its store when a backup is restored into it.
func TestRestoreOnAFullDisk(t *testing.T) { // I-15
	p := newPlace(t)
	do := p.elsewhere(p.small() + fmt.Sprintf("\nmkdir -m 700 %s", p.home.Dir()+".b"))
	p.run("py", "-c", "x = 41; print('a line of output\\n' * 20000)").ends(0)
	file := filepath.Join(p.home.Dir()+".b", "b")
	p.run("backup", file).ends(0)
	p.run("stop").ends(0)
	do(p.fill())
	do(fmt.Sprintf("truncate -s -270k %s", p.ballast()))
	p.run("restore", "--replace", file).ends(1).says(".*; make room, and run it again")
	do("rm " + p.ballast())
	p.run("py", "-c", "x + 1").ends(0).prints("42\n")
	p.run("stop", "--kernels").ends(0)
}

// What is no backup is not restored, and a backup in the place of a store is not run.
func TestWrongBackups(t *testing.T) { // I-15
	p := newPlace(t)
	p.run("py", "-c", "1").ends(0)
	p.run("backup", "b").ends(0)
	p.run("stop", "--kernels").ends(0)
	if err := os.WriteFile(filepath.Join(p.dir, "text"), []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("restore", "--replace", "text").ends(65).says(`cannot restore: \S+/text is no backup that soma backup has made`)
	p.run("restore", "--replace", p.home.Database()).ends(65).says(`cannot restore: \S+/soma.db is no backup but a store: soma store copy copies it`)
	whole, err := os.ReadFile(filepath.Join(p.dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "half"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("restore", "--replace", "half").ends(65).says(`cannot restore: .*damaged.*`)
	if err := os.WriteFile(p.home.Database(), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("serve").ends(73).says(`cannot use home \S+: cannot open the store \S+: it is a backup, of the home \S+ at \S+: soma restore makes a store of it`)
	p.run("restore", "--replace", "b").ends(0)
	p.run("py", "-c", "1").ends(0)
	p.run("stop", "--kernels").ends(0)
}

// tells checks a part of what was printed.
func (r result) tells(part string) {
	r.t.Helper()
	if !strings.Contains(r.out, part) {
		r.t.Errorf("%s: it printed %.2000q, and not %q", r.line, r.out, part)
	}
}

// A PostgreSQL server whose disk is full ends the daemon with one line, as the file of a home does; with room again the work
// goes on where the last commit was, and each cell has run once.
func TestFullDiskOfPostgreSQL(t *testing.T) { // N-33
	p := newPlace(t)
	server := filepath.Join(filepath.Dir(p.home.Dir()), "pg")
	// The server refuses root, which the folder's owner is in there: it runs as somebody else of a namespace below.
	const as = "unshare -U --map-user=1000 --map-group=1000"
	do := p.elsewhere(fmt.Sprintf(`mkdir -m 700 %[1]s %[1]s.wal
mount -t tmpfs -o size=64m,mode=0700 none %[1]s
%[2]s initdb -D %[1]s/data --waldir=%[1]s.wal/log -A trust -U postgres -E UTF8 --locale=C --no-sync >/dev/null
%[2]s pg_ctl -D %[1]s/data -l %[1]s.log -o "-k %[1]s -h ''" -w start >/dev/null`, server, as))
	p.env = append(p.env, "SOMA_STORE=host="+server+" user=postgres dbname=postgres sslmode=disable")
	p.write("cell.py", waiting+"open('ran', 'a').write('once ')\n")
	p.write("s.yaml", "steps:\n  - calls:\n      - python: exec(open('cell.py').read())\n      - python: print('y' * 60000)\n  - say: Done.\n")
	d := p.serve()
	work := p.begin("run", "--model", "script:s.yaml", "x")
	p.until("the cell", func() bool { return p.exists("began") })
	ballast := server + "/ballast"
	do("dd if=/dev/zero bs=64k 2>/dev/null >> " + ballast + " || true")
	p.write("go", "")
	const noRoom = `cannot use the database host=\S+ user=postgres dbname=postgres sslmode=disable: .*: No space left on device \(SQLSTATE 53100\)`
	if text := d.ends(1); !regexp.MustCompile(`\nsoma: ` + noRoom + `; mend that and start it again: what was committed is kept\n$`).MatchString(text) {
		t.Errorf("the daemon said\n%s", text)
	}
	if text := work.ends(69); !strings.Contains(text, "soma: the daemon is gone") || !regexp.MustCompile(`\nsoma: cannot start the daemon: `+noRoom+`\n$`).MatchString(text) {
		t.Errorf("the client said\n%s", text)
	}
	do("rm " + ballast)
	p.run("wait", "1").ends(0)
	if out := p.run("logs", "1").ends(0).out; strings.Count(out, "went on") != 1 || !strings.Contains(out, "Done.") {
		t.Errorf("the transcript is %.2000q", out)
	}
	if ran := p.read(filepath.Join(p.dir, "ran")); ran != "once " {
		t.Errorf("the cell ran %q", ran)
	}
	p.run("stop", "--kernels").ends(0)
	do(as + " pg_ctl -D " + server + "/data -m immediate stop >/dev/null")
}
