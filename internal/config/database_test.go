package config

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// N-36, I-54: a password of the database is taken from the environment and from a file of one's own, refused in the arguments
// and in a file that others may read, and printed nowhere.
func TestPasswordOfTheDatabase(t *testing.T) {
	for _, dsn := range []string{
		"postgres://me:sesame@db.example:5433/soma?sslmode=require", "postgresql://me@db.example/soma?password=sesame&sslmode=disable",
		"host=db.example user=me password=sesame dbname=soma", "host=db.example user = me  password = 'a sesame\\' b' dbname=soma",
		"host=db.example dbname=soma sslpassword=sesame", "postgres://me@db.example/soma?sslpassword=sesame",
	} {
		c, err := load(t, "", env("SOMA_STORE", dsn), nil)
		if err != nil {
			t.Fatalf("%q in the environment: %v", dsn, err)
		}
		if !c.Store.HasPassword() || c.Store.Reveal() != dsn {
			t.Errorf("%q is read as %q", dsn, c.Store.Reveal())
		}
		rows, err := json.Marshal(c.Rows())
		if err != nil {
			t.Fatal(err)
		}
		stored, _ := json.Marshal(c.Store)
		for _, text := range []string{string(rows), string(stored), c.Store.Shown(), fmt.Sprintf("%v %+v %#v %s %q", c.Store, *c, c.Store, c.Store, c.Store)} {
			if strings.Contains(text, "sesame") {
				t.Errorf("%q: the password is printed: %s", dsn, text)
			}
		}
		if !strings.Contains(c.Store.Shown(), "db.example") || !strings.Contains(c.Store.Shown(), "soma") {
			t.Errorf("%q is shown as %q", dsn, c.Store.Shown())
		}
		_, err = load(t, "", env(), map[string]string{"store": dsn})
		var value *ValueError
		if !errors.As(err, &value) || !strings.Contains(err.Error(), "PGPASSFILE") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q in the arguments: %v", dsn, err)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		text, _ := json.Marshal(dsn)
		for mode, ok := range map[os.FileMode]bool{0o600: true, 0o640: false, 0o604: false} {
			if err := errors.Join(os.WriteFile(file, append([]byte("store: "), text...), 0o600), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file, env(), nil)
			if (err == nil) != ok || err != nil && (strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), "chmod 600")) {
				t.Errorf("%q in a file of mode %o: %v", dsn, mode, err)
			}
		}
	}
	for _, dsn := range []string{"postgres://me@db.example/soma", "host=/run/pg dbname=soma user=me", ""} {
		c, err := load(t, "", env(), map[string]string{"store": dsn})
		if err != nil || c.Store.HasPassword() || c.Store.Shown() != dsn {
			t.Errorf("%q: %q, %v", dsn, c.Store.Shown(), err)
		}
	}
	for _, dsn := range []string{"soma.db", "mysql://me:sesame@x/y", "host", "host='sesame", "postgres://me:se%same@[/x"} {
		if _, err := load(t, "", env("SOMA_STORE", dsn), nil); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}

// I-53
func TestDatabaseCredentialsReachNoKernel(t *testing.T) {
	for _, name := range databaseVariables {
		if _, err := load(t, "", env(), map[string]string{"kernel_env": name}); err == nil {
			t.Errorf("%s may be handed to python kernels", name)
		}
	}
}

// I-50
func TestListenAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:7621": true, "localhost:80": true, ":7621": true, "": true,
		"127.0.0.1": false, "127.0.0.1:": false, "127.0.0.1:99999": false, "http://127.0.0.1:1": false, "a b:1": false,
	} {
		if _, err := load(t, "", env(), map[string]string{"listen": address}); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	for store, want := range map[string]string{"": "", "postgres://x/y": "127.0.0.1:0"} {
		if c, err := load(t, "", env("SOMA_STORE", store), nil); err != nil || c.Address() != want {
			t.Errorf("with store %q it listens on %q (%v)", store, c.Address(), err)
		}
	}
}

// M-12, I-50: a home is the same node with the same certificate for ever, in files of its own.
func TestNodeAndCertificateOfAHome(t *testing.T) {
	home, err := HomeAt(filepath.Join(t.TempDir(), "home"))
	if err == nil {
		err = home.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id, err := home.EnsureNode()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := home.EnsureCertificate([]string{"192.0.2.7", "node.example"}, now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := home.EnsureNode()
	same, cerr := home.EnsureCertificate(nil, now.Add(time.Hour))
	if err != nil || cerr != nil || again != id || sha256.Sum256(same.Certificate[0]) != sha256.Sum256(cert.Certificate[0]) {
		t.Errorf("the second time: %q, %v, %v", again, err, cerr)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "192.0.2.7", "node.example"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{home.NodeFile(), home.Certificate(), home.CertificateKey()} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := home.EnsureNode(); err == nil {
		t.Error("a node file that others may read is taken")
	}
	if _, err := home.EnsureCertificate(nil, now); err == nil {
		t.Error("a key that others may read is taken")
	}
	if err := os.WriteFile(home.NodeFile(), []byte("local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home.NodeFile(), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := home.EnsureNode(); err == nil {
		t.Errorf("%q is taken for the id of a node", id)
	}
}
