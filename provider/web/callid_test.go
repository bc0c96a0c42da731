package web_test

import (
	"net/http"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

func TestNames(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	now := time.Unix(1_700_000_000, 42)
	seen := map[string]bool{}
	for range 1000 {
		answer, request := http.Header{}, http.Header{}
		web.IdentifyCall(answer, request, now)
		id := request.Get("X-Call-Id")
		if !uuid.MatchString(id) || seen[id] || request.Get("X-Start-Time") != "1700000000000000042" {
			t.Fatalf("%v", request)
		}
		if !reflect.DeepEqual(answer, request) {
			t.Fatalf("the answer has %v, the request %v", answer, request)
		}
		seen[id] = true
	}
}

// Each of the gateway's two headers is kept if the request has it.
func TestTheGatewaysNamesStay(t *testing.T) {
	for _, given := range []http.Header{
		{"X-Call-Id": {"a"}, "X-Start-Time": {"1"}},
		{"X-Call-Id": {"a"}},
		{"X-Start-Time": {"1"}},
		{"X-Call-Id": {"a", "b"}, "X-Start-Time": {""}},
	} {
		answer, request := http.Header{"X-Call-Id": {"the function's own"}}, given.Clone()
		web.IdentifyCall(answer, request, time.Unix(2, 0))
		for key, values := range given {
			if !reflect.DeepEqual(request[key], values) {
				t.Errorf("%v became %v", given, request)
			}
		}
		for _, key := range []string{"X-Call-Id", "X-Start-Time"} {
			if len(request[key]) == 0 || !reflect.DeepEqual(answer[key], request[key]) {
				t.Errorf("%v: the answer has %v, the request %v", given, answer, request)
			}
		}
	}
}

func BenchmarkIdentify(b *testing.B) {
	for b.Loop() {
		web.IdentifyCall(http.Header{}, http.Header{}, time.Unix(1, 0))
	}
}
