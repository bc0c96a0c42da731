package command

import (
	"context"
	"net"
	"net/http"
	"testing"
)

func TestRedirect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- redirect(ctx, l, "http://example.com/a?b=c") }()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := http.NewRequest(method, "http://"+l.Addr().String()+"/any", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != "http://example.com/a?b=c" {
			t.Errorf("%s: %s to %q", method, answer.Status, answer.Header.Get("Location"))
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRedirectNeedsItsEnvironment(t *testing.T) {
	for _, env := range [][2]string{{"", "http://x"}, {"3000", ""}, {"many", "http://x"}} {
		t.Setenv("PORT", env[0])
		t.Setenv("destination", env[1])
		c := newRedirectCommand()
		c.SetArgs(nil)
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%v was taken", env)
		}
	}
}
