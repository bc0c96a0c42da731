package testcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is the lifetime of certificates, longer than any test.
const lifetime = 7 * 24 * time.Hour

// Authority signs certificates. Its own and the signed certificates are files of one
// directory.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes an authority and writes ca.crt and ca.key to dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "faas-infer test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(text)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	a := &Authority{dir: dir, certificate: certificate, key: key}
	return a, a.write("ca", text, key)
}

// File returns the path of one of the authority's files, such as "ca.crt".
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Issue makes name.crt and name.key: for a server at hosts (names and IP addresses), and for
// a client that is user and in groups.
func (a *Authority) Issue(name, user string, groups, hosts []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	text, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	return a.write(name, text, key)
}

// KeyPair makes name.key and name.pub, a key without a certificate.
func (a *Authority) KeyPair(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("write the key %s: %w", name, err)
	}
	if err := a.block(name+".pub", "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return a.private(name, key)
}

func (a *Authority) write(name string, certificate []byte, key *ecdsa.PrivateKey) error {
	if err := a.block(name+".crt", "CERTIFICATE", certificate, 0o644); err != nil {
		return err
	}
	return a.private(name, key)
}

func (a *Authority) private(name string, key *ecdsa.PrivateKey) error {
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("write the key %s: %w", name, err)
	}
	return a.block(name+".key", "EC PRIVATE KEY", text, 0o600)
}

func (a *Authority) block(name, kind string, text []byte, mode os.FileMode) error {
	if err := os.WriteFile(a.File(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}), mode); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
