package stan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A line is one of a guest: a word and its arguments, separated by spaces.
type line struct {
	// word is the first word in upper case, for example PUB.
	word string
	// subject is that of a PUB or SUB. reply is the subject for the answer to a PUB, ""
	// if none is asked for. id is the guest's name for a subscription.
	subject, reply, id string
	// number is the size of a PUB's message in bytes. For an UNSUB it is the number of
	// messages after which the subscription ends, 0 for at once.
	number int
	// verbose says that a CONNECT asks for an answer to every line.
	verbose bool
}

// The errors that end a guest's connection. Clients know the texts, which are those of
// the NATS server.
var (
	errUnknown = errors.New("Unknown Protocol Operation")
	errParse   = errors.New("Parser Error")
	errTooLong = errors.New("maximum control line exceeded")
	errPayload = errors.New("Maximum Payload Violation")
	errGuests  = errors.New("maximum connections exceeded")
	errSilent  = errors.New("Authentication Timeout")
	errStale   = errors.New("Stale Connection")
)

// errSubscriptions does not end a connection.
var errSubscriptions = errors.New("maximum subscriptions exceeded")

// errForbidden says that a guest may not publish or subscribe to a subject.
func errForbidden(what, subject string) error {
	return fmt.Errorf("Permissions Violation for %s to %q", what, subject)
}

// parse reads a line without its end.
func parse(text []byte) (l line, err error) {
	word, rest, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	l.word = strings.ToUpper(string(word))
	arguments := strings.Fields(string(rest))
	switch n := len(arguments); {
	case l.word == "PING" || l.word == "PONG":
	case l.word == "CONNECT":
		var options struct{ Verbose bool }
		if json.Unmarshal(rest, &options) != nil {
			return l, errParse
		}
		l.verbose = options.Verbose
	case l.word == "SUB" && (n == 2 || n == 3): // SUB subject [queue] id
		l.subject, l.id = arguments[0], arguments[n-1]
	case l.word == "UNSUB" && (n == 1 || n == 2): // UNSUB id [number]
		l.id = arguments[0]
		if n == 2 {
			l.number, err = size(arguments[1])
		}
	case l.word == "PUB" && (n == 2 || n == 3): // PUB subject [reply] number
		if l.subject = arguments[0]; n == 3 {
			l.reply = arguments[1]
		}
		l.number, err = size(arguments[n-1])
	case l.word == "SUB" || l.word == "UNSUB" || l.word == "PUB":
		return l, errParse
	default:
		return l, errUnknown
	}
	return l, err
}

// size reads a number of bytes or messages.
func size(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errParse
	}
	return int(n), nil
}

// own reports whether a guest may subscribe to a subject: one that the gateway's library
// makes for the answers to its own messages. It ends in a random word, or in any word
// below a random one.
func own(subject string) bool {
	if rest, ok := strings.CutPrefix(subject, "_STAN.acks."); ok {
		return literal(rest)
	}
	rest, ok := strings.CutPrefix(subject, "_INBOX.")
	inbox, token, below := strings.Cut(rest, ".")
	return ok && literal(inbox) && (!below || token == "*" || literal(token))
}

// literal reports whether s is one word of a subject, without a wildcard.
func literal(s string) bool { return s != "" && !strings.ContainsAny(s, ".*>") }

// covers reports whether a subscription that own allows receives what is published on a
// subject.
func covers(subscribed, subject string) bool {
	if prefix, ok := strings.CutSuffix(subscribed, "*"); ok {
		token, below := strings.CutPrefix(subject, prefix)
		return below && literal(token)
	}
	return subscribed == subject
}
