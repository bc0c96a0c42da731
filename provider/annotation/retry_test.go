package annotation

import (
	"errors"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// A wrong retry annotation is refused at deploy, and not ignored when a queued request
// fails.
func TestParseRefusesRetries(t *testing.T) {
	for _, c := range []struct{ key, value string }{
		{"com.openfaas.retry.attempts", "often"},
		{"com.openfaas.retry.min_wait", "10"},
		{"com.openfaas.retry.codes", "503;504"},
		{"com.openfaas.retry.atempts", "3"},
	} {
		_, err := Parse(types.FunctionDeployment{Service: "f", Image: "functions/alpine", Annotations: &map[string]string{c.key: c.value}})
		if wrong := new(Error); !errors.As(err, &wrong) || wrong.Key != c.key || wrong.Value != c.value {
			t.Errorf("%s=%q: %v, want an Error that names it", c.key, c.value, err)
		}
	}
	right := map[string]string{"com.openfaas.retry.attempts": "3", "com.openfaas.retry.min_wait": "1s", "com.openfaas.retry.codes": "503,504"}
	if _, err := Parse(types.FunctionDeployment{Service: "f", Image: "functions/alpine", Annotations: &right}); err != nil {
		t.Error(err)
	}
}
