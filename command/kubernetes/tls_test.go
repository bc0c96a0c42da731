package kubernetes

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// The instances' certificate needs the provider's, and must fit it.
func TestInstanceTLS(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	dir, own, both := t.TempDir(), t.TempDir(), t.TempDir()
	a.Issue(t, own, mutualtest.Certificate{Names: []string{mutual.ProviderName}})
	a.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
	a.Issue(t, both, mutualtest.Certificate{Names: []string{mutual.InstanceName, mutual.ProviderName}})
	identity, err := mutual.Open(own, mutual.ProviderName, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		identity *mutual.Identity
		dir      string
		says     string
	}{
		"none":                            {identity, "", ""},
		"both":                            {identity, dir, ""},
		"without the provider's":          {nil, dir, "--instance-tls needs --tls"},
		"an empty directory":              {identity, t.TempDir(), "the file tls.crt is missing"},
		"one that is also the provider's": {identity, both, "pass for the provider"},
	} {
		p := &platform{flags: &providerFlags{instances: instanceFlags{tls: c.dir}}, base: command.Base{Identity: c.identity}}
		files, err := p.certificate()
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		case c.says == "" && (err != nil || (files == nil) != (c.dir == "")):
			t.Errorf("%s: %v", name, err)
		case files != nil && len(files()["tls.key"]) == 0:
			t.Errorf("%s: the files are %v", name, files())
		}
		args := strings.Join(p.flags.instanceArguments(cluster.InstanceSpec{Function: "f.n"}), " ")
		if strings.Contains(args, "--tls /var/run/faas-infer/tls") != (c.dir != "") {
			t.Errorf("%s: the instance is started with %s", name, args)
		}
	}
}

// An image whose program may not know --tls is refused by name. One with another server is not.
func TestSecured(t *testing.T) {
	ours := []string{"watchdog", "--bundle", "/bundle"}
	for _, c := range []struct {
		image image.Resolved
		says  string
	}{
		{image.Resolved{Watchdog: ours, TLS: true}, ""},
		{image.Resolved{Watchdog: ours}, `image "r/f": the label ` + image.TLSLabel},
		{image.Resolved{}, ""},
	} {
		got, err := secured("r/f", &c.image)
		if c.says == "" && (err != nil || !slices.Equal(got, c.image.Watchdog)) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %q, %v", c.image, got, err)
		}
	}
}

// A replica hands requests only to a server that is the provider.
func TestSecurePeers(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	open := func(name string) *mutual.Identity {
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
		i, err := mutual.Open(dir, name, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	own, other := open(mutual.ProviderName), open(mutual.InstanceName)
	if (&platform{}).secure() != nil {
		t.Error("replicas without --tls speak TLS")
	}
	secure := (&platform{base: command.Base{Identity: own}}).secure()
	for server, want := range map[*mutual.Identity]string{own: "", other: "provider.faas-infer"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if c, err := server.Listen(l).Accept(); err == nil {
				_, _ = c.Read(make([]byte, 1)) // The handshake.
				_ = c.Close()
			}
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		made, err := secure(ctx, conn)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if made != nil {
			_ = made.Close()
		}
		cancel()
		_ = l.Close()
		<-ended
	}
}
