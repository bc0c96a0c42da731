// Package mutualtest issues certificates for tests, in directories as [mutual.Open] reads them.
package mutualtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// NewAuthority returns an authority that expires at a time.
func NewAuthority(tb testing.TB, until time.Time) *Authority {
	tb.Helper()
	a := &Authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.certificate = sign(tb, template, nil)
	return a
}

// Certificate says what is in a certificate. Names may be IP addresses. Its usages are both sides' if
// there are none.
type Certificate struct {
	Names  []string
	Until  time.Time
	Usages []x509.ExtKeyUsage
}

// Issue writes the files tls.crt, tls.key and ca.crt into a directory, which it makes. Each is
// replaced at once, so nobody reads half of one.
func (a *Authority) Issue(tb testing.TB, dir string, c Certificate) {
	tb.Helper()
	if c.Until.IsZero() {
		c.Until = a.certificate.NotAfter
	}
	if c.Usages == nil {
		c.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: c.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: c.Usages,
	}
	for _, name := range c.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, leaf := sign(tb, template, a)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt":  {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
		"tls.key": {Type: "PRIVATE KEY", Bytes: secret},
		"tls.crt": {Type: "CERTIFICATE", Bytes: leaf.Raw},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o644); err != nil {
			tb.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			tb.Fatal(err)
		}
	}
}

// sign makes a certificate for a new key, signed by an authority, or by itself if that is nil.
func sign(tb testing.TB, template *x509.Certificate, by *Authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return key, c
}
