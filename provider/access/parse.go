package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Parse reads what a secret says about who may call: a set of JSON Web Keys if it begins with "{",
// public keys or certificates in PEM if it begins with "-----BEGIN", and otherwise API keys, one a
// line, as KEY or as NAME KEY. Blank lines and lines that begin with "#" do not count. The error is a
// sentence that contains no key.
func Parse(content []byte) (*Keys, error) {
	text := bytes.TrimSpace(content)
	switch {
	case len(text) == 0:
		return nil, errors.New("it is empty, so nobody could call the function: write one API key a line, or a set of JSON Web Keys")
	case text[0] == '{':
		return parseSet(text)
	case bytes.HasPrefix(text, []byte("-----BEGIN")):
		return parsePEM(text)
	}
	return parseLines(string(text))
}

// parseLines reads API keys.
func parseLines(text string) (*Keys, error) {
	k, n, number := newKeys(), 0, 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) > 2 {
			return nil, fmt.Errorf("line %d has %d words: it must be KEY or NAME KEY", number, len(fields))
		}
		name, key := "", fields[len(fields)-1]
		if len(fields) == 2 {
			name = fields[0]
		}
		if len(name) > maxName || !isVisible(name) {
			return nil, fmt.Errorf("line %d: a key's name must have at most %d visible ASCII characters", number, maxName)
		}
		if len(key) < minKey || len(key) > maxKey || !isVisible(key) {
			return nil, fmt.Errorf("line %d: an API key must have %d to %d visible ASCII characters; openssl rand -hex 32 makes one", number, minKey, maxKey)
		}
		if n++; n > maxKeys {
			return nil, fmt.Errorf("it has more than %d keys: use tokens with a set of JSON Web Keys instead", maxKeys)
		}
		k.add(name, key)
	}
	if n == 0 {
		return nil, errors.New("it has no API key, only comments, so nobody could call the function: write one API key a line")
	}
	return k, nil
}

func isVisible(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// texts is a JSON string, or an array of some.
type texts []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// set is a set of JSON Web Keys (RFC 7517, section 5) with two members of ours.
type set struct {
	Keys []webKey `json:"keys"`
	// Audience are audiences that tokens may have beside the function's name. Issuer is the issuer
	// that they must have, "" for any.
	Audience texts  `json:"audience"`
	Issuer   string `json:"issuer"`
}

// parseSet reads JSON Web Keys. Keys for encryption and of unknown types are left out, as RFC 7517
// says.
func parseSet(text []byte) (*Keys, error) {
	var s set
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errors.New(`it begins with "{" and is no set of JSON Web Keys: it must be {"keys": [...]}`)
	}
	if len(s.Keys) > maxVerifiers {
		return nil, fmt.Errorf("it has %d JSON Web Keys, the maximum is %d", len(s.Keys), maxVerifiers)
	}
	k := newKeys()
	k.audience, k.issuer = s.Audience, s.Issuer
	for i := range s.Keys {
		v, known, err := s.Keys[i].verifier()
		if err != nil {
			return nil, fmt.Errorf("JSON Web Key %d: %w", i+1, err)
		}
		if known {
			k.verifiers = append(k.verifiers, v)
		}
	}
	return k.complete()
}

// complete collects the algorithms. Without a public key nobody could call.
func (k *Keys) complete() (*Keys, error) {
	if len(k.verifiers) == 0 {
		return nil, errors.New("it has no public key with which a token could be checked, so nobody could call the function: give an RSA, EC, Ed25519 or oct key for signatures")
	}
	for _, v := range k.verifiers {
		k.methods = append(k.methods, v.methods...)
	}
	return k, nil
}
