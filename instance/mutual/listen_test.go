package mutual

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Refusals of the same second are one line of the log.
func TestRefusalPause(t *testing.T) {
	var log bytes.Buffer
	i := &Identity{log: zerolog.New(&log)}
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after time.Duration
		lines int
	}{{0, 1}, {refusalPause / 2, 1}, {refusalPause - 1, 1}, {refusalPause, 2}, {refusalPause + 1, 2}} {
		i.refused(start.Add(c.after), &net.TCPAddr{}, errors.New("tls: bad certificate"))
		if got := bytes.Count(log.Bytes(), []byte("\n")); got != c.lines {
			t.Errorf("after %v there are %d lines, want %d", c.after, got, c.lines)
		}
	}
}

// An expired certificate is in the log, once a minute.
func TestExpiredCertificateIsLogged(t *testing.T) {
	var log bytes.Buffer
	expires := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	i := &Identity{dir: "d", log: zerolog.New(&log)}
	i.now.Store(&material{pair: tls.Certificate{Leaf: &x509.Certificate{NotAfter: expires}}})
	if !i.Expires().Equal(expires) {
		t.Errorf("it expires at %v", i.Expires())
	}
	for _, c := range []struct {
		after time.Duration
		lines int
	}{{-time.Hour, 0}, {0, 0}, {1, 1}, {expiryPause, 1}, {expiryPause + 1, 2}} {
		i.warnExpired(expires.Add(c.after))
		if got := bytes.Count(log.Bytes(), []byte("\n")); got != c.lines {
			t.Errorf("after %v there are %d lines, want %d", c.after, got, c.lines)
		}
	}
	if given := Given(nil, i.log); !given.Expires().IsZero() {
		t.Error("a given certificate expires")
	}
}
