package peer

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// speaking is a dispatcher that answers in two parts. It receives from step before the second one.
type speaking struct {
	provider.Dispatcher
	step chan struct{}
	fail error
}

func (s *speaking) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	if req.Parts == nil {
		return &frame.Response{Status: http.StatusOK, Header: http.Header{}, Body: []byte("whole")}, nil
	}
	_ = req.Parts([]byte("one"))
	select {
	case <-s.step:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	_ = req.Parts([]byte("two"))
	return &frame.Response{Status: http.StatusOK, Header: http.Header{}, Late: true}, s.fail
}

// Each part of the owner's answer comes through another replica at once, and then its end.
func TestPartsComeThroughAnotherReplica(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	for _, fail := range []error{nil, web.Refuse(http.StatusBadGateway, "it died")} {
		s := &speaking{step: make(chan struct{}), fail: fail}
		owner.Group.own.Store(name, s)
		if got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}}); err != nil || string(got.Body) != "whole" {
			t.Errorf("as a whole: %+v, %v", got, err)
		}
		var parts []string
		got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func(part []byte) error {
			if parts = append(parts, string(part)); len(parts) == 1 {
				close(s.step)
			}
			return nil
		}})
		if err != nil || !slices.Equal(parts, []string{"one", "two"}) {
			t.Fatalf("%q, %v", parts, err)
		}
		if fail == nil && (got.Status != http.StatusOK || !got.Late || len(got.Body) > 0) || fail != nil && (got.Status != http.StatusBadGateway || !strings.Contains(string(got.Body), "it died")) {
			t.Errorf("%v: the end is %+v %s", fail, got, got.Body)
		}
	}
}

// A request with a part of its answer does not run again when the owner dies.
func TestPartsAreNotRepeatedElsewhere(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	owner.Group.own.Store(name, &speaking{step: make(chan struct{})})
	// A client that leaves ends the owner's run, and says nothing about the owner.
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	_, err := other.shared.Invoke(ctx, &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func([]byte) error {
		leave()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n := 0
	_, err = other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func([]byte) error {
		if n++; n == 1 {
			owner.server.CloseClientConnections()
		}
		return nil
	}})
	if !errors.Is(err, errDied) || n != 1 || other.own.requests.Load() > 0 {
		t.Errorf("%v, %d parts, %d requests run again", err, n, other.own.requests.Load())
	}
}
