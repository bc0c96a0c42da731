package queue

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Login says how the broker proves to an external server who it is, and how it checks the
// server. Each directory has the files of a Kubernetes Secret. They are read at each
// connection, so changed ones hold from the next one on. Only the nkey is read once, since the
// client takes its public key once: a changed one holds from the next start on.
type Login struct {
	// Credentials is a directory with the files username and password, or one of token,
	// nkey (a user's seed) and user.creds (a user's JWT and seed). "" leaves them to the URL.
	Credentials string
	// TLS is a directory with ca.crt (the authorities of the server's certificate), with
	// tls.crt and tls.key (the client's certificate), or with all three. "" trusts the
	// system's authorities where the URL begins with tls:// or the server demands TLS.
	TLS string
}

// The files of [Login].
const (
	usernameFile  = "username"
	passwordFile  = "password"
	tokenFile     = "token"
	nkeyFile      = "nkey"
	credsFile     = "user.creds"
	authorityFile = "ca.crt"
	certFile      = "tls.crt"
	keyFile       = "tls.key"
)

// options returns the options of a connection. The error names the flag and what its
// directory lacks.
func (l Login) options() (all []nats.Option, err error) {
	if l.Credentials != "" {
		o, err := credentials(l.Credentials)
		if err != nil {
			return nil, fmt.Errorf("--nats-credentials %s: %w", l.Credentials, err)
		}
		all = append(all, o)
	}
	if l.TLS != "" {
		o, err := certificates(l.TLS)
		if err != nil {
			return nil, fmt.Errorf("--nats-tls %s: %w", l.TLS, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// credentials returns the option for a directory with one kind of credentials.
func credentials(dir string) (nats.Option, error) {
	kinds := map[string]func(file string) (nats.Option, error){
		usernameFile: func(string) (nats.Option, error) {
			if _, err := word(dir, passwordFile); err != nil {
				return nil, err
			}
			return nats.UserInfoHandler(func() (user, password string) {
				// A file that cannot be read now gives no access; the client tries again.
				user, _ = word(dir, usernameFile)
				password, _ = word(dir, passwordFile)
				return user, password
			}), nil
		},
		tokenFile: func(string) (nats.Option, error) {
			return nats.TokenHandler(func() string {
				token, _ := word(dir, tokenFile)
				return token
			}), nil
		},
		nkeyFile:  func(string) (nats.Option, error) { return nkey(dir) },
		credsFile: func(file string) (nats.Option, error) { return nats.UserCredentials(file), nil },
	}
	var found []string
	for name := range kinds {
		_, err := word(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, name)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it must have the files username and password, or one of token, nkey and user.creds; it has %d of these", len(found))
	}
	return kinds[found[0]](filepath.Join(dir, found[0]))
}

// nkey returns the option for a user's seed. Signatures with a seed that is read again would not fit
// the public key of the start.
func nkey(dir string) (nats.Option, error) {
	seed, err := word(dir, nkeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedNKey([]byte(seed))
	if err != nil {
		return nil, fmt.Errorf("the file %s is no seed: %w", nkeyFile, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("the file %s: %w", nkeyFile, err)
	}
	if !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("the file %s is not the seed of a user, which begins with SU", nkeyFile)
	}
	return nats.Nkey(public, pair.Sign), nil
}

// word reads a file without the newline at its end. An empty file is an error.
func word(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("read the credentials: %w", err)
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return "", fmt.Errorf("the file %s is empty", name)
	}
	return trimmed, nil
}

// certificates returns the option for a directory of TLS.
func certificates(dir string) (nats.Option, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	var authorities nats.RootCAsHandler
	if has(authorityFile) {
		authorities = func() (*x509.CertPool, error) {
			text, err := os.ReadFile(filepath.Join(dir, authorityFile))
			if err != nil {
				return nil, fmt.Errorf("read the authorities: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(text) {
				return nil, fmt.Errorf("%s has no certificate in PEM", authorityFile)
			}
			return pool, nil
		}
	}
	var certificate nats.TLSCertHandler
	switch {
	case has(certFile) && has(keyFile):
		certificate = func() (tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
			if err != nil {
				err = fmt.Errorf("read the client's certificate: %w", err)
			}
			return pair, err
		}
	case has(certFile) || has(keyFile):
		return nil, errors.New("it must have both tls.crt and tls.key, or neither")
	case authorities == nil:
		return nil, errors.New("it must have ca.crt, or tls.crt and tls.key")
	}
	// The handlers are tried at once; the error of a wrong file is then theirs.
	if authorities != nil {
		if _, err := authorities(); err != nil {
			return nil, err
		}
	}
	if certificate != nil {
		if _, err := certificate(); err != nil {
			return nil, err
		}
	}
	return nats.ClientTLSConfig(certificate, authorities), nil
}

// distrusts reports whether a connection failed because client and server do not accept
// each other's certificates.
func distrusts(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "))
}

// hangsUp reports whether the server has ended a connection without a word. With TLS 1.3 a client
// seldom reads why its certificate was refused.
func hangsUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
