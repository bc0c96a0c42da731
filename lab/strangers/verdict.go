package strangers

import "regexp"

// The kinds of results of a model.
const (
	right = "right"
	// wrong answers 200 with another content than ONNX Runtime's.
	wrong = "wrong"
	// crashed ends an instance or the provider, or says so in an answer.
	crashed = "crashed"
	// refused is a refusal at deploy or of a request, whose text says what to do.
	refused = "refused"
	// refusedWithoutWay is a refusal that does not.
	refusedWithoutWay = "refused without a way out"
	// unanswered gets no answer within the patience, only 503 or none.
	unanswered = "unanswered"
)

// faultKinds are the kinds but right, from the worst one.
var faultKinds = []string{wrong, crashed, refusedWithoutWay, unanswered, refused}

// wayOut matches a text that says what to do: an annotation, a command, or an imperative after
// a pause.
var wayOut = regexp.MustCompile(`com\.openfaas\.|faas-infer (model|profile|up)\b|(?i)(^|[:;,.(] ?|\band |\bor )` +
	`(set|use|give|export|convert|raise|lower|remove|write|send|deploy|install|make|change|split|leave|put|try|ask) `)

// hasWay reports whether a refusal names a way out.
func hasWay(said string) bool { return wayOut.MatchString(said) }

// death matches what the provider says of a process that ended. The last line of a dump of
// registers is one, too.
var death = regexp.MustCompile(signals + `|signal: |core dumped|panic: |fatal error:|exited (with|before|soon)|instances? exit|` +
	`exit status \d|crash|\bdied\b|runtime error|\b(gs|rip) +0x`)

// signals are those that end a process that misbehaves.
const signals = `\bSIG(SEGV|ABRT|BUS|ILL|FPE|KILL|TRAP)\b`

// verdictOf is the kind of a refusal by its status and text.
func verdictOf(status int, said string) string {
	switch {
	case death.MatchString(said) || status == 502:
		return crashed
	case status == 503 || status == 429:
		return unanswered
	case hasWay(said):
		return refused
	default:
		return refusedWithoutWay
	}
}
