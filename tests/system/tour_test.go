//go:build crash

package system_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"soma/internal/config"
)

// nobody is who runs the tour where the test itself is root: root would be let into every folder.
const nobody = 65534

// count is what a folder holds, counted without the program.
type count struct {
	files, lines, bytes int64
	closed              int    // folders and files that may not be read
	largest             string // as it is shown
	kinds               map[string]kind
}

type kind struct{ files, lines, bytes int64 }

// countTree counts the regular files of a folder, without links, .git and what is closed (folders of mode 0).
func countTree(root string) (count, error) {
	c := count{kinds: map[string]kind{}, largest: "none"}
	var most int64 = -1
	var at string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() == 0 {
			c.closed++
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		lines, size := int64(bytes.Count(text, []byte("\n"))), int64(len(text))
		c.files, c.lines, c.bytes = c.files+1, c.lines+lines, c.bytes+size
		name := kindOf(d.Name())
		k := c.kinds[name]
		c.kinds[name] = kind{k.files + 1, k.lines + lines, k.bytes + size}
		if size > most || size == most && rel < at {
			most, at, c.largest = size, rel, shown(rel)
		}
		return nil
	})
	return c, err
}

// kindOf is the end of a name after its last dot, where there is something before the dot and at most twelve bytes after it.
func kindOf(name string) string {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || i == len(name)-1 || len(name)-i-1 > 12 {
		return "(no suffix)"
	}
	return "." + shown(strings.ToLower(name[i+1:]))
}

// shown is a name as the tour prints it: what is no text or not to be seen is escaped.
func shown(name string) string {
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, name[0])
		case r == '\n':
			b.WriteString(`\n`)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
		name = name[n:]
	}
	return b.String()
}

var (
	oddNames = []string{"new\nline.txt", `quo"te's.py`, "inv\xff\xfealid.txt", "späße.md", " leading space", "-dash.sh", ".hidden", "tab\there",
		"two.dots.tar", "no suffix.", "UPPER.TXT", "long.abcdefghijklmnop", "{braces}%s.json", "$(echo).txt", "\\back.txt", "bell\a.md"}
	oddFolders = []string{"plain", "deep er", "new\nline", "inv\xffalid", "quo\"te", "ümlaut", ".dot"}
	suffixes   = []string{".txt", ".py", ".md", ".json", ".sh", ""}
)

// plant makes a tree by chance, with all that is odd in it.
func plant(t *testing.T, root string, chance *rand.Rand) {
	t.Helper()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{root}
	for range 12 {
		f := filepath.Join(folders[chance.IntN(len(folders))], oddFolders[chance.IntN(len(oddFolders))])
		do(os.MkdirAll(f, 0o755))
		folders = append(folders, f)
	}
	fill := func(path string) {
		t.Helper()
		text := make([]byte, chance.IntN(3)*chance.IntN(5000))
		for i := range text {
			text[i] = "abc \n\x00\xff"[chance.IntN(7)]
		}
		do(os.WriteFile(path, text, 0o644))
	}
	for i := range 150 {
		name := fmt.Sprintf("file%d%s", i, suffixes[chance.IntN(len(suffixes))])
		if i < 2*len(oddNames) {
			name = oddNames[i/2]
		}
		fill(filepath.Join(folders[chance.IntN(len(folders))], name))
	}
	do(os.Symlink(".", filepath.Join(root, "loop")))
	do(os.Symlink("../..", filepath.Join(folders[3], "up")))
	do(os.Symlink("nowhere", filepath.Join(root, "broken.txt")))
	do(os.Symlink("/etc/passwd", filepath.Join(root, "outside.txt")))
	do(unix.Mkfifo(filepath.Join(root, "pipe.txt"), 0o644))
	for _, repo := range []string{root, folders[5]} {
		do(os.MkdirAll(filepath.Join(repo, ".git", "objects"), 0o755))
		fill(filepath.Join(repo, ".git", "objects", "big.py"))
	}
	closed := filepath.Join(root, "closed")
	do(os.MkdirAll(closed, 0o755))
	fill(filepath.Join(closed, "secret.txt"))
	fill(filepath.Join(root, "locked.txt"))
	if os.Geteuid() == 0 {
		do(filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, nobody, nobody)
		}))
	}
	do(os.Chmod(filepath.Join(root, "locked.txt"), 0))
	do(os.Chmod(closed, 0))
	t.Cleanup(func() { do(os.Chmod(closed, 0o700)) })
}

// The built-in tour, at full speed, in a tree made by chance: its numbers are those of an independent count, it changes
// nothing, and it comes to the same end when its daemon dies twice on the way and the client starts it again.
// I-16
func TestTourTellsTheTruth(t *testing.T) {
	bin := build(t)
	for name, env := range map[string][]string{"calm": nil, "with two deaths": {"SOMA_CRASH=done.read:4"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			dir := t.TempDir()
			for _, d := range []string{filepath.Dir(filepath.Dir(bin)), filepath.Dir(bin), filepath.Dir(dir), dir} {
				if err := os.Chmod(d, 0o711); err != nil { // who runs the tour may not be who runs the test
					t.Fatal(err)
				}
			}
			tree, at := filepath.Join(dir, "tree"), filepath.Join(dir, "home")
			for _, d := range []string{tree, at} {
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			plant(t, tree, rand.New(rand.NewPCG(seed, 1)))
			want, err := countTree(tree)
			if err != nil {
				t.Fatal(err)
			}
			home, err := config.HomeAt(at)
			if err != nil {
				t.Fatal(err)
			}
			endAll(t, dir)
			text, err := os.ReadFile("../../internal/agent/model/script/builtin/tour.yaml")
			if err != nil {
				t.Fatal(err)
			}
			fast := filepath.Join(dir, "tour.yaml")
			if err := os.WriteFile(fast, append([]byte("speed: 0\n"), text...), 0o644); err != nil {
				t.Fatal(err)
			}
			var who *syscall.Credential
			if os.Geteuid() == 0 {
				who = &syscall.Credential{Uid: nobody, Gid: nobody}
				if err := os.Chown(at, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			all := append(environ(home), env...)
			p, err := run(ctx, bin, tree, all, who, "run", "--model", "script:"+fast, "study this folder")
			if err != nil {
				t.Fatal(err)
			}
			said, err := p.end()
			if err != nil {
				t.Fatalf("%v:\n%s", err, said)
			}
			end := fmt.Sprintf("files %d, lines %d, bytes %d, largest %s\n", want.files, want.lines, want.bytes, want.largest)
			if !strings.Contains(said, end) {
				t.Errorf("the tour does not say %q:\n%s", end, said)
			}
			if closed := fmt.Sprintf("%d files or folders I could not read", want.closed); !strings.Contains(said, closed) {
				t.Errorf("the tour does not say %q:\n%s", closed, said)
			}
			if got := tableOf(said); !equalKinds(got, want.kinds) {
				t.Errorf("the tour's table is %v, want %v:\n%s", got, want.kinds, said)
			}
			if n := strings.Count(said, "is started again"); n != 2*len(env) {
				t.Errorf("the daemon was started again %d times:\n%s", n, said)
			}
			if after, err := countTree(tree); err != nil || fmt.Sprint(after) != fmt.Sprint(want) {
				t.Errorf("the tree was changed (%v): %v, before %v", err, after, want)
			}
			endAndLook(ctx, t, bin, dir, environ(home), who)
		})
	}
}

var tableHead = regexp.MustCompile(`(?m)^ +kind +files +lines +bytes\n`)

// tableOf reads the table of kinds out of what the tour has said.
func tableOf(said string) map[string]kind {
	kinds := map[string]kind{}
	head := tableHead.FindStringIndex(said)
	if head == nil {
		return kinds
	}
	for line := range strings.Lines(said[head[1]:]) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			break
		}
		var n [3]int64
		for i, f := range fields[len(fields)-3:] {
			v, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return kinds
			}
			n[i] = v
		}
		name := strings.Join(fields[:len(fields)-3], " ")
		kinds[name] = kind{n[0], n[1], n[2]}
	}
	return kinds
}

func equalKinds(a, b map[string]kind) bool {
	names := func(m map[string]kind) (all []string) {
		for name, k := range m {
			all = append(all, fmt.Sprint(name, k))
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(names(a), names(b))
}
