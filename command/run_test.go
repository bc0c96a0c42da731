package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
)

func TestOnlyCanceled(t *testing.T) {
	lost := errors.New("an instance is still there")
	for _, c := range []struct {
		err  error
		only bool
	}{
		{context.Canceled, true},
		{fmt.Errorf("deploy: %w", &url.Error{Op: "Put", URL: "/", Err: context.Canceled}), true},
		{errors.Join(context.Canceled, nil), true},
		{fmt.Errorf("%w; %w", context.Canceled, context.Canceled), true},
		{context.DeadlineExceeded, false},
		{errors.Join(context.Canceled, lost), false},
		{fmt.Errorf("up: %w", errors.Join(lost, context.Canceled)), false},
	} {
		if got := onlyCanceled(c.err); got != c.only {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
