package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Database is how a PostgreSQL database is reached: a postgres:// URL or words like host=… dbname=…; empty means the SQLite
// file of the home. It may hold a password, so that every common way to print it gives the form without one.
type Database string

// Reveal returns the whole text, for the one place that connects.
func (d Database) Reveal() string { return string(d) }

func (d Database) String() string   { return d.Shown() }
func (d Database) GoString() string { return d.Shown() }

// Format lets no verb print more than Shown.
func (d Database) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(d.Shown())) }

// MarshalText gives the form without a password.
func (d Database) MarshalText() ([]byte, error) { return []byte(d.Shown()), nil }

var errStore = errors.New("a postgres:// URL or words like host=… dbname=… are expected, or nothing for the SQLite file of the home")

// plainWords are the parts of a connection string that may be shown.
var plainWords = []string{"host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "target_session_attrs"}

// parseDatabase checks the form; what else is wrong the connection says. The error shows nothing of the text.
func parseDatabase(s string) (Database, error) {
	if s == "" {
		return "", nil
	}
	if isURL(s) {
		if u, err := url.Parse(s); err != nil || u.Opaque != "" {
			return "", errors.New("the URL cannot be read: a user or password with special characters needs them as %XX")
		}
		return Database(s), nil
	}
	if words, ok := split(s); !ok || len(words) == 0 {
		return "", errStore
	}
	return Database(s), nil
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// HasPassword reports whether the text holds a password, of the server or of a key file.
func (d Database) HasPassword() bool {
	secret := func(name string) bool { return strings.Contains(strings.ToLower(name), "password") }
	if isURL(string(d)) {
		u, err := url.Parse(string(d))
		if err != nil {
			return true
		}
		if _, set := u.User.Password(); set {
			return true
		}
		for name := range u.Query() {
			if secret(name) {
				return true
			}
		}
		return false
	}
	words, ok := split(string(d))
	return !ok || slices.ContainsFunc(words, func(w [2]string) bool { return secret(w[0]) })
}

// Shown returns what may be seen: where the database is and who connects. All else is left out.
func (d Database) Shown() string {
	if d == "" {
		return ""
	}
	if isURL(string(d)) {
		u, err := url.Parse(string(d))
		if err != nil {
			return placeholder
		}
		shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		if name := u.User.Username(); name != "" {
			shown.User = url.User(name)
		}
		query := url.Values{}
		for name, values := range u.Query() {
			if slices.Contains(plainWords, name) {
				query[name] = values
			}
		}
		shown.RawQuery = query.Encode()
		return shown.String()
	}
	words, ok := split(string(d))
	if !ok {
		return placeholder
	}
	var shown []string
	for _, w := range words {
		if slices.Contains(plainWords, w[0]) {
			shown = append(shown, w[0]+"="+w[1])
		}
	}
	return strings.Join(shown, " ")
}

// split reads words like name=value, where a value may stand in single quotes with \ before what is meant as it is.
func split(s string) (words [][2]string, ok bool) {
	for s = strings.TrimLeft(s, " \t\n"); s != ""; s = strings.TrimLeft(s, " \t\n") {
		name, rest, found := strings.Cut(s, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" || strings.ContainsAny(name, " \t\n'\\:/@") {
			return nil, false
		}
		rest = strings.TrimLeft(rest, " \t\n")
		quoted := strings.HasPrefix(rest, "'")
		rest = strings.TrimPrefix(rest, "'")
		var value strings.Builder
		i := 0
		for ; i < len(rest); i++ {
			c := rest[i]
			if c == '\\' && i+1 < len(rest) {
				i++
				c = rest[i]
			} else if quoted && c == '\'' || !quoted && strings.IndexByte(" \t\n", c) >= 0 {
				break
			}
			value.WriteByte(c)
		}
		if quoted {
			if i == len(rest) {
				return nil, false
			}
			i++
		}
		words, s = append(words, [2]string{name, value.String()}), rest[i:]
	}
	return words, true
}

var errPasswordInArgs = errors.New("others can see the arguments of a program, so a password must not stand there: put it into the file that PGPASSFILE names " +
	"(~/.pgpass), or the whole text into SOMA_STORE or into store: of config.yaml with mode 0600")

// checkDatabase refuses a password where others can read it.
func (c *Config) checkDatabase() error {
	if !c.Store.HasPassword() || c.Store == "" {
		return nil
	}
	switch c.sources["store"] {
	case FromFlag:
		return &ValueError{"--store", errPasswordInArgs}
	case FromFile:
		if info, err := os.Stat(c.file); err == nil && info.Mode().Perm()&0o077 != 0 {
			return &FileError{File: c.file, Key: "store", Problem: fmt.Sprintf("it holds a password and others may read it (mode %04o): run chmod 600 %s", info.Mode().Perm(), c.file)}
		}
	}
	return nil
}

// databaseVariables may hold credentials of the database, and reach no python kernel.
var databaseVariables = []string{"SOMA_STORE", "PGPASSWORD", "PGPASSFILE"}

// parseListen checks an address to listen on: a host or IP and a port.
func parseListen(s string) error {
	if s == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" || strings.ContainsAny(host, " /") {
		return errors.New("an address such as 127.0.0.1:7621 is expected; port 0 takes a free one")
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return errors.New("the port is not a number from 0 to 65535")
	}
	return nil
}

// Address is where the daemon listens on TCP, empty for nowhere: by default a free port of the loopback where other daemons
// may share the store.
func (c *Config) Address() string {
	if c.Listen == "" && c.Store != "" {
		return "127.0.0.1:0"
	}
	return c.Listen
}

// KeyPair returns the files of the certificate that the person chose, both empty for none. Paths are counted from the folder of
// the settings. The error says that one of the two is missing.
func (c *Config) KeyPair() (cert, key string, err error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return "", "", &ValueError{"tls_cert and tls_key", errors.New("one needs the other")}
	}
	at := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(filepath.Dir(c.file), path)
	}
	return at(c.TLSCert), at(c.TLSKey), nil
}
