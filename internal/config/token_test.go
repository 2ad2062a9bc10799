package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// The file is not read again while it is as it was, and whatever happens to it is seen by the next check.
func TestEveryChangeOfTheTokenIsSeen(t *testing.T) { // I-50
	one, two := strings.Repeat("ab", tokenBytes), strings.Repeat("cd", tokenBytes)
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path string){
		"replaced": func(t *testing.T, path string) {
			write(t, path+".new", two)
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
		"written in place": func(t *testing.T, path string) { write(t, path, two) },
		"written in place, with its old time": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, two)
			if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"opened to others": func(t *testing.T, path string) {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			write(t, h.TokenFile(), one)
			c := h.TokenChecker()
			c.now = func() time.Time { return time.Now().Add(time.Minute) }
			for range 2 {
				if ok, err := c.Check(one); !ok || err != nil {
					t.Fatalf("the token: %v, %v", ok, err)
				}
			}
			read := c.last.Load()
			if read == nil {
				t.Fatal("the file is read at every check")
			}
			for later := h.Dir() + "/later"; ; { // the clock of files has moved on
				write(t, later, "")
				if info, err := os.Stat(later); err != nil || changed(info).After(changed(read.info)) {
					break
				}
			}
			change(t, h.TokenFile())
			if ok, _ := c.Check(one); ok {
				t.Error("the old token is still accepted")
			}
			switch ok, err := c.Check(two); name {
			case "opened to others":
				if ok || err == nil {
					t.Errorf("a file that others may read: %v, %v", ok, err)
				}
			case "removed":
				if ok || !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("no file: %v, %v", ok, err)
				}
			default:
				if !ok || err != nil {
					t.Errorf("the new token: %v, %v", ok, err)
				}
			}
		})
	}
}

// A change may get the same time as one just before it: until that has passed every check reads the file.
func TestYoungTokenIsReadAtEveryCheck(t *testing.T) { // I-50
	h := newHome(t)
	if err := h.EnsureToken(); err != nil {
		t.Fatal(err)
	}
	token, err := h.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	c := h.TokenChecker()
	info, err := os.Stat(h.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	for age, kept := range map[time.Duration]bool{-time.Hour: false, 0: false, settled - 1: false, settled: true} {
		c.now = func() time.Time { return changed(info).Add(age) }
		c.last.Store(nil)
		if ok, err := c.Check(token.Reveal()); !ok || err != nil {
			t.Fatalf("the token: %v, %v", ok, err)
		}
		if (c.last.Load() != nil) != kept {
			t.Errorf("at an age of %v kept %v, want %v", age, !kept, kept)
		}
	}
}
