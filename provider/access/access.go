// Package access decides who may call a function, and how often. It reads a list of API keys or
// public keys ([Parse]), compares the credentials of a request with them ([Keys.Check]), and counts
// requests against a rate ([Limiter]). It has no clock and reads no files: package provider fetches
// the secrets and answers the requests. Begin reading at Keys.Check.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	// maxCredential is the maximum size of a credential in bytes. A longer one is refused unread.
	maxCredential = 8 << 10
	// minKey and maxKey are the bounds of an API key in bytes. A shorter one could be guessed.
	minKey = 16
	maxKey = 512
	// maxKeys is the maximum number of API keys in a secret, and maxVerifiers that of public keys.
	maxKeys      = 10000
	maxVerifiers = 100
	// maxName is the maximum size of a key's name in bytes.
	maxName = 63
)

// Reason is why a request is refused. It is a label of a metric.
type Reason string

// The reasons. Missing: the request has no credential. Unknown: nobody knows its credential.
// Expired: its token is not valid now. Foreign: its token is for other functions. Exceeded: its
// caller has sent more than the rate. Closed: the keys cannot be read.
const (
	Missing  Reason = "missing"
	Unknown  Reason = "unknown"
	Expired  Reason = "expired"
	Foreign  Reason = "foreign"
	Exceeded Reason = "exceeded"
	Closed   Reason = "closed"
)

// Reasons lists all reasons.
func Reasons() []Reason { return []Reason{Missing, Unknown, Expired, Foreign, Exceeded, Closed} }

// Refusal is why a credential is not enough. Why is a sentence for the client, without the credential.
type Refusal struct {
	Reason Reason
	Why    string
}

// Caller is who has sent a request.
type Caller struct {
	// ID tells callers apart. It is equal at all replicas of the provider, and tells nothing of the
	// key. Equal subjects of tokens have equal IDs.
	ID string
	// Name is the name of an API key, "" if it has none.
	Name string
}

// Keys say who may call. They do not change.
type Keys struct {
	// salt keeps a client from knowing the hash of what it sends.
	salt [16]byte
	// callers has API keys by the first bytes of their salted hash.
	callers map[[8]byte][]apiKey
	// verifiers are the public keys of tokens, methods the algorithms that fit one of them.
	verifiers []verifier
	methods   []string
	// audience are further audiences than a function's names, and issuer is whose tokens count; ""
	// for any.
	audience []string
	issuer   string
}

// apiKey is an API key by its salted hash.
type apiKey struct {
	hash   [sha256.Size]byte
	caller Caller
}

// Credential returns what a request shows to be let in, and the header that has it: X-API-Key, or
// otherwise Authorization with the scheme Bearer. Both are "" if it shows nothing. The names in the
// header are in their canonical form.
func Credential(header map[string][]string) (credential, name string) {
	if values := header["X-Api-Key"]; len(values) > 0 {
		if len(values) > 1 { // A proxy may have checked the other one.
			return strings.Repeat("x", maxCredential+1), "X-Api-Key"
		}
		return values[0], "X-Api-Key"
	}
	const scheme = "bearer "
	values := header["Authorization"]
	if len(values) != 1 || len(values[0]) < len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return "", ""
	}
	return strings.TrimLeft(values[0][len(scheme):], " "), "Authorization"
}

// Check returns whose credential it is, or why its owner may not call the function now. names are the
// names of the function, the full one "name.namespace" first.
func (k *Keys) Check(credential string, names []string, now time.Time) (Caller, *Refusal) {
	switch {
	case credential == "":
		return Caller{}, &Refusal{Missing, "the function wants to know its caller: send a key as Authorization: Bearer KEY or as X-API-Key"}
	case len(credential) > maxCredential:
		return Caller{}, &Refusal{Unknown, "the request must have one key of at most 8 KiB"}
	case len(k.verifiers) > 0:
		return k.checkToken(credential, names, now)
	}
	if len(credential) <= maxKey {
		hash := k.hash(credential)
		// What is compared depends on a hash that the client cannot know, so its time tells nothing.
		for _, known := range k.callers[[8]byte(hash[:])] {
			if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
				return known.caller, nil
			}
		}
	}
	return Caller{}, &Refusal{Unknown, "the key in the request is not one of the function's keys"}
}

func (k *Keys) hash(credential string) [sha256.Size]byte {
	return sha256.Sum256(append(k.salt[:], credential...))
}

// Tokens reports whether callers show tokens instead of API keys.
func (k *Keys) Tokens() bool { return len(k.verifiers) > 0 }

// newKeys returns keys that let nobody in.
func newKeys() *Keys {
	k := &Keys{callers: map[[8]byte][]apiKey{}}
	_, _ = rand.Read(k.salt[:]) // It never fails.
	return k
}

// add adds an API key.
func (k *Keys) add(name, key string) {
	hash := k.hash(key)
	first := [8]byte(hash[:])
	k.callers[first] = append(k.callers[first], apiKey{hash, Caller{ID: idOf("key", key), Name: name}})
}

// idOf returns the ID of a caller with a key or a subject.
func idOf(kind, text string) string {
	sum := sha256.Sum256([]byte("faas-infer caller " + kind + "\x00" + text))
	return hex.EncodeToString(sum[:16])
}

// matches reports whether one of the patterns of [path.Match] fits one of the names.
func matches(patterns, names []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			fits, err := path.Match(pattern, name)
			return err == nil && fits
		})
	})
}
