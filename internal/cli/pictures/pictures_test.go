package pictures

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a terminal can is read from its environment, and nothing is sent where another program stands between.
func TestOf(t *testing.T) {
	for vars, want := range map[string]Protocol{
		"": None, "TERM=xterm-256color": None, "TERM=xterm-kitty": Kitty, "TERM=xterm-256color KITTY_WINDOW_ID=3": Kitty,
		"TERM_PROGRAM=iTerm.app TERM=xterm-256color": ITerm, "TERM_PROGRAM=WezTerm": ITerm, "TERM_PROGRAM=ghostty": Kitty,
		"TERM_PROGRAM=Apple_Terminal": None, "TERM=dumb KITTY_WINDOW_ID=1": None, "TERM=screen-256color TERM_PROGRAM=iTerm.app": None,
		"TMUX=/tmp/tmux KITTY_WINDOW_ID=1": None, "TERM=tmux-256color KITTY_WINDOW_ID=1": None,
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(vars) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		if got := Of(func(name string) (string, bool) { v, ok := env[name]; return v, ok }); got != want {
			t.Errorf("%q: %d, want %d", vars, got, want)
		}
	}
}

func picture(t *testing.T, encode func(*bytes.Buffer, image.Image) error) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 64, 64))
	noise := rand.New(rand.NewSource(1))
	for i := range 64 * 64 {
		m.Set(i%64, i/64, color.RGBA{uint8(noise.Intn(256)), uint8(noise.Intn(256)), 3, 255})
	}
	var b bytes.Buffer
	if err := encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The bytes come out whole on the other side, in pieces that a terminal takes.
func TestInline(t *testing.T) {
	asPNG := picture(t, func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) })
	asJPEG := picture(t, func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) })
	text, ok := Inline(ITerm, "image/webp", []byte("RIFF"))
	if want := "\x1b]1337;File=inline=1;preserveAspectRatio=1;size=4:UklGRg==\a"; !ok || text != want {
		t.Errorf("%q", text)
	}
	for media, content := range map[string][]byte{"image/png": asPNG, "image/jpeg": asJPEG} {
		text, ok := Inline(Kitty, media, content)
		if !ok {
			t.Fatalf("%s is not shown", media)
		}
		var all strings.Builder
		parts := strings.Split(strings.TrimSuffix(text, "\x1b\\"), "\x1b\\")
		for i, part := range parts {
			head, data, _ := strings.Cut(strings.TrimPrefix(part, "\x1b_G"), ";")
			want := "m=1"
			if i == len(parts)-1 {
				want = "m=0"
			}
			if i == 0 {
				want = "f=100,a=T,q=2," + want
			}
			if head != want || len(data) > kittyChunk {
				t.Fatalf("piece %d of %d: %q with %d bytes", i, len(parts), head, len(data))
			}
			all.WriteString(data)
		}
		got, err := base64.StdEncoding.DecodeString(all.String())
		if err != nil || len(parts) < 2 {
			t.Fatalf("%d pieces, %v", len(parts), err)
		}
		if _, err := png.Decode(bytes.NewReader(got)); err != nil || media == "image/png" && !bytes.Equal(got, asPNG) {
			t.Errorf("%s came out as another: %v", media, err)
		}
	}
	for media, content := range map[string]string{"image/webp": "RIFF", "image/jpeg": "no image", "text/html": "<b>"} {
		if _, ok := Inline(Kitty, media, []byte(content)); ok {
			t.Errorf("%s %q is shown", media, content)
		}
	}
	if _, ok := Inline(None, "image/png", asPNG); ok {
		t.Error("a terminal that cannot is sent an image")
	}
}

// A file is the person's alone, is written once, and goes after two weeks.
func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	now := time.Now()
	path, err := Save(dir, "c-1", "image/png", []byte("one"), now)
	if err != nil || path != filepath.Join(dir, "c-1.png") {
		t.Fatal(path, err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := Save(dir, "c-1", "image/png", []byte("two"), now); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "one" {
		t.Errorf("it was written again: %q", text)
	}
	if _, err := Save(dir, "c-2", "image/webp", nil, now.Add(keptFor+time.Hour)); err != nil {
		t.Error(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "c-2.webp" {
		t.Errorf("there are %v", entries)
	}
}
