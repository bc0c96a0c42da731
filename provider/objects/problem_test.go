package objects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/faas-infer/faas-infer/provider/web"
)

func TestOf(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	for _, c := range []struct {
		err    error
		status int
		again  bool
		word   string
	}{
		{apierrors.NewForbidden(resource, "x", errors.New("cannot create")), 403, false, "cannot create"},
		{apierrors.NewBadRequest("no"), 400, false, "no"},
		{apierrors.NewConflict(resource, "x", errors.New("modified")), 409, true, "modified"},
		{apierrors.NewServiceUnavailable("starting"), 503, true, "cannot answer now"},
		{fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), 503, true, "refused"},
		{context.DeadlineExceeded, 503, true, "deadline"},
		{errors.New("odd"), 500, false, "odd"},
	} {
		var e *web.Error
		if err := problemFrom(c.err, "secret %s was not kept", "x"); !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
		if e.HTTPStatus() != c.status || (e.RetryAfter() > 0) != c.again || !strings.HasPrefix(e.Error(), "secret x was not kept: ") ||
			!strings.Contains(e.Error(), c.word) || !errors.Is(e, c.err) {
			t.Errorf("%v: %d %v %q", c.err, e.HTTPStatus(), e.RetryAfter(), e)
		}
	}
	if problemFrom(nil, "x") != nil {
		t.Error("nothing is an error")
	}
}
