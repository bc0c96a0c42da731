package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// away is an API server that refuses connections for a number of tries.
type away struct{ left, tried int }

func (a *away) RoundTrip(*http.Request) (*http.Response, error) {
	a.tried++
	if a.left--; a.left >= 0 {
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	return &http.Response{StatusCode: 200}, nil
}

func askRetried(ctx context.Context, a *away, method, url string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	_, err = RetryTransport(a).RoundTrip(r)
	return err
}

func TestInformersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, url := range []string{"http://a/api/v1/pods?watch=1", "http://a/api/v1/pods?resourceVersion=0"} {
			if err := askRetried(t.Context(), &away{left: 60}, "GET", url); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("waited for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := askRetried(ctx, &away{left: 1000}, "GET", "http://a/api/v1/pods?watch=1"); err == nil {
			t.Error("it waits longer than its context")
		}
	})
}

func TestOthersDoNot(t *testing.T) {
	for _, of := range [][2]string{{"GET", "http://a/api/v1/pods/x"}, {"POST", "http://a/api/v1/pods"}, {"DELETE", "http://a/api/v1/pods?resourceVersion=1"}} {
		a := &away{left: 1}
		if err := askRetried(t.Context(), a, of[0], of[1]); err == nil || a.tried != 1 {
			t.Errorf("%v: %v after %d tries", of, err, a.tried)
		}
	}
}
