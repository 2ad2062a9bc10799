package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"regexp"
	"strings"
	"time"
)

// nodeForm is what a node's id looks like.
var nodeForm = regexp.MustCompile(`^n[0-9a-f]{16}$`)

// EnsureNode returns the id of the node that this home is, and makes it at the first call. The caller holds the home's lock.
// A copy of a home must not keep the file: two nodes of one id end each other's lives.
func (h Home) EnsureNode() (string, error) {
	text, err := readPrivate(h.NodeFile(), 64)
	if errors.Is(err, fs.ErrNotExist) {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails, by its documentation
		text = "n" + hex.EncodeToString(b[:])
		err = writeSecret(h.dir, h.NodeFile(), text+"\n")
	}
	id := strings.TrimSpace(text)
	if err == nil && !nodeForm.MatchString(id) {
		err = fmt.Errorf("%s holds no id of a node: remove it, and the next start makes a new one", h.NodeFile())
	}
	if err != nil {
		return "", &HomeError{h.dir, fmt.Errorf("cannot tell which node it is: %w", err)}
	}
	return id, nil
}

// readPrivate reads a small file that must not be open to others.
func readPrivate(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is open to others (mode %04o): run chmod 600 %s", path, mode.Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	return string(text), err
}

// certificateLife is long: who connects goes by the fingerprint, which stands in the database, and by nothing else.
const certificateLife = 100 * 365 * 24 * time.Hour

// EnsureCertificate returns the home's own certificate for TCP and makes it at the first call, valid for the loopback and
// the names given then. The caller holds the home's lock.
func (h Home) EnsureCertificate(names []string, now time.Time) (tls.Certificate, error) {
	cert, err := h.certificate()
	if errors.Is(err, fs.ErrNotExist) {
		if err = h.makeCertificate(names, now); err == nil {
			cert, err = h.certificate()
		}
	}
	if err != nil {
		return cert, &HomeError{h.dir, fmt.Errorf("cannot use the certificate: %w", err)}
	}
	return cert, nil
}

func (h Home) certificate() (tls.Certificate, error) {
	key, err := readPrivate(h.CertificateKey(), 64<<10)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := readPrivate(h.Certificate(), 64<<10)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair([]byte(cert), []byte(key))
}

func (h Home) makeCertificate(names []string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	form := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "soma"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, // so that a program can be given it as the one authority that it trusts
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			form.IPAddresses = append(form.IPAddresses, ip)
		} else if name != "" {
			form.DNSNames = append(form.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	// The key comes last: a certificate without one is made anew.
	if err := writeSecret(h.dir, h.Certificate(), encode("CERTIFICATE", der)); err != nil {
		return err
	}
	return writeSecret(h.dir, h.CertificateKey(), encode("PRIVATE KEY", raw))
}
