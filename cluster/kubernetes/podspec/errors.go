package podspec

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Error names a field of a deployment, or of a profile that it names, from which no pod
// can be made.
type Error struct {
	// Key is the field or annotation, Value its value ("" if it is absent).
	Key, Value string
	// Why says what is allowed, as the end of a sentence. Example is a valid value, ""
	// if none helps.
	Why, Example string
}

// Error returns a sentence: key, value, what is allowed, example.
func (e *Error) Error() string {
	text := e.Key + " is not set: " + e.Why
	if e.Value != "" {
		text = fmt.Sprintf("%s is %q: %s", e.Key, shorten(e.Value), e.Why)
	}
	if e.Example != "" {
		text += fmt.Sprintf(", for example %q", e.Example)
	}
	return text
}

// HTTPStatus returns 400, because the deployment is at fault.
func (e *Error) HTTPStatus() int { return http.StatusBadRequest }

// shorten limits a value to maxValue bytes, so a hostile one cannot fill the answer and
// the log.
func shorten(s string) string {
	const maxValue = 120
	if len(s) <= maxValue {
		return s
	}
	return strings.ToValidUTF8(s[:maxValue], "") + "…"
}

func isSubdomain(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// escape keeps Kubernetes from replacing "$(NAME)" in a variable's value.
func escape(s string) string { return strings.ReplaceAll(s, "$(", "$$(") }
