package provider

import (
	"regexp"
	"testing"
)

func TestRequestsGetACallID(t *testing.T) {
	r := invoker(t, echo, nil)
	seen := map[string]bool{}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 100 {
		h := r.do("POST", "/function/mnist", "x").Header()
		if id := h.Get("X-Call-Id"); !uuid.MatchString(id) || seen[id] {
			t.Fatalf("X-Call-Id is %q", id)
		}
		seen[h.Get("X-Call-Id")] = true
		if !regexp.MustCompile(`^[0-9]{19}$`).MatchString(h.Get("X-Start-Time")) {
			t.Fatalf("X-Start-Time is %q", h.Get("X-Start-Time"))
		}
	}
}
