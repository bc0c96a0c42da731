package podspec

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Error is one thing in a deployment, or in a profile that it names, that no pod
// can be made from.
type Error struct {
	// Key is the field or annotation, Value what it holds ("" if it is absent).
	Key, Value string
	// Why is what is allowed, as the end of a sentence; Example a value that would
	// be accepted, "" if none helps.
	Why, Example string
}

// Error is a sentence: key, value, what is allowed, example.
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

// HTTPStatus is 400: the deployment is at fault.
func (e *Error) HTTPStatus() int { return http.StatusBadRequest }

// shorten keeps a hostile value from filling the answer and the log.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func isSubdomain(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// escape keeps Kubernetes from replacing "$(NAME)" in a variable's value.
func escape(s string) string { return strings.ReplaceAll(s, "$(", "$$(") }
