package config

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Secret is a value that must not be seen: every common way to print it gives a placeholder. Reveal is the one door.
type Secret string

const placeholder = "[secret]"

// Reveal returns the value itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string               { return placeholder }
func (s Secret) GoString() string             { return placeholder }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, placeholder) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(placeholder), nil }

// tokenBytes is the length of a token before its text form of twice as many hexadecimal digits.
const tokenBytes = 32

// errNoToken says that a token file holds something else.
var errNoToken = errors.New("it holds no token: the next start of the daemon writes a new one")

// EnsureToken makes the token file if there is none, or none with a token in it. The caller holds the home's lock.
func (h Home) EnsureToken() error {
	_, _, err := openToken(h.TokenFile())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoToken) {
		return h.RotateToken()
	}
	return nil // one that others may read is refused at each request, and the refusal says what to do
}

// RotateToken replaces the token by a new one (32 random bytes, mode 0600), atomically. From then on each request with
// the old one is refused; streams that it has opened bring nothing after 15 s more, and end
// at the heartbeat that follows.
func (h Home) RotateToken() error {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails, by its documentation
	if err := writeSecret(h.dir, h.TokenFile(), hex.EncodeToString(secret)+"\n"); err != nil {
		return &HomeError{h.dir, fmt.Errorf("cannot write the token: %w", err)}
	}
	return nil
}

func writeSecret(dir, path, text string) error {
	f, err := os.CreateTemp(dir, ".token-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // in vain after the rename
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// ReadToken returns the token. Errors: fs.ErrNotExist if no daemon has made one yet; a file that others may read, or that
// holds no token, is refused.
func (h Home) ReadToken() (Secret, error) {
	token, _, err := openToken(h.TokenFile())
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	return token, nil
}

// openToken returns the token of a file, and what the file was before it was read.
func openToken(path string) (Secret, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return "", nil, fmt.Errorf("%s is open to others (mode %04o): run chmod 600 %s", path, mode.Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4*tokenBytes))
	if err != nil {
		return "", nil, err
	}
	token := strings.TrimSpace(string(text))
	if raw, err := hex.DecodeString(token); err != nil || len(raw) != tokenBytes {
		return "", nil, fmt.Errorf("%s: %w", path, errNoToken)
	}
	return Secret(token), info, nil
}

// TokenChecker compares what clients present with the token of a home. It is safe for concurrent use.
type TokenChecker struct {
	file string
	now  func() time.Time
	last atomic.Pointer[readToken]
}

// TokenChecker returns a checker that has read nothing yet.
func (h Home) TokenChecker() *TokenChecker { return &TokenChecker{file: h.TokenFile(), now: time.Now} }

// readToken is a token with its file as that was when it was read.
type readToken struct {
	token Secret
	info  fs.FileInfo
}

// settled is how old the last change of a file must be at a read for the next change to be sure to get another time: file
// systems keep times by coarse clocks.
const settled = 3 * time.Second

// Check reports whether presented is the token of the home at this moment: every call looks at the file, so that a rotation
// works at once, and reads it anew unless nothing of it has changed. The comparison takes the same time wherever the texts
// differ. An error means that there is no valid token file, and nothing is accepted.
func (c *TokenChecker) Check(presented string) (bool, error) {
	token, err := c.token()
	if err != nil {
		return false, fmt.Errorf("cannot read the token: %w", err)
	}
	return subtle.ConstantTimeCompare([]byte(presented), []byte(token)) == 1, nil
}

func (c *TokenChecker) token() (Secret, error) {
	if last := c.last.Load(); last != nil {
		if info, err := os.Stat(c.file); err == nil && unchanged(info, last.info) {
			return last.token, nil
		}
	}
	began := c.now()
	token, info, err := openToken(c.file)
	if err != nil || began.Sub(changed(info)) < settled {
		c.last.Store(nil)
		return token, err
	}
	c.last.Store(&readToken{token, info})
	return token, nil
}

// unchanged reports whether both describe one file in one version. The time of change, unlike that of modification, can be
// set by nobody, and moves with the mode, too.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && changed(a).Equal(changed(b))
}

// changed returns when a file or what is known of it last changed.
func changed(info fs.FileInfo) time.Time { return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix()) }
