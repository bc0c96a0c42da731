package kubernetes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPasses(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("connection refused"), true},
		{context.DeadlineExceeded, true},
		{context.Canceled, false},
		{apierrors.NewTooManyRequests("later", 1), true},
		{apierrors.NewInternalError(errors.New("x")), true},
		{apierrors.NewServiceUnavailable("x"), true},
		{apierrors.NewNotFound(pods, "p"), false},
		{apierrors.NewForbidden(pods, "p", nil), false},
		{apierrors.NewAlreadyExists(pods, "p"), false},
	} {
		if got := isTransient(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		err := attempt(t.Context(), func(context.Context) error {
			if calls++; calls < 4 {
				return errors.New("not there")
			}
			return nil
		})
		if err != nil || calls != 4 || time.Since(began) != 350*time.Millisecond {
			t.Errorf("%v after %d calls and %v", err, calls, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		last := errors.New("still not there")
		if err := attempt(ctx, func(context.Context) error { return last }); !errors.Is(err, last) {
			t.Errorf("%v", err)
		}
		refused := apierrors.NewForbidden(schema.GroupResource{}, "p", nil)
		if err := attempt(t.Context(), func(context.Context) error { return refused }); !apierrors.IsForbidden(err) {
			t.Errorf("%v", err)
		}
	})
}
