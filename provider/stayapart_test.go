package provider

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Bodies come from pools, and no request may see another's body.
func TestBodiesStayApart(t *testing.T) {
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		first := bytes.Clone(req.Body)
		if len(req.Body)%3 == 0 {
			return nil, web.Refuse(503, "late")
		}
		if !bytes.Equal(first, req.Body) {
			return nil, errors.New("the body changed")
		}
		return echo(ctx, req)
	}, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				body := strings.Repeat(string(rune('a'+i)), (j*977)%20000)
				if w := r.do("POST", "/function/mnist", body); len(body)%3 != 0 && w.Body.String() != body {
					t.Errorf("%d bytes came back as %d: %d", len(body), w.Body.Len(), w.Code)
				}
			}
		})
	}
	wg.Wait()
}
