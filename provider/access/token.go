package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// leeway is how far the clocks of the provider and an issuer may differ.
	leeway = 5 * time.Second
	// minSecret is the minimum size in bytes of a secret that both sides know, minRSA and maxRSA are
	// the bounds of an RSA key in bits. A larger key takes milliseconds.
	minSecret = 32
	minRSA    = 2048
	maxRSA    = 8192
)

// verifier is a key that checks tokens.
type verifier struct {
	// id is the key's name in a token, "" if it has none.
	id  string
	key any
	// methods are the algorithms that fit the key. A token cannot choose another one.
	methods []string
}

// claims are those of a token. Functions are names or patterns of functions; nil for all that the
// audience allows.
type claims struct {
	jwt.RegisteredClaims
	Functions texts `json:"functions"`
}

// checkToken is Check for tokens.
func (k *Keys) checkToken(token string, names []string, now time.Time) (Caller, *Refusal) {
	parser := jwt.NewParser(jwt.WithValidMethods(k.methods), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithIssuedAt(),
		jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithStrictDecoding())
	var c claims
	_, err := parser.ParseWithClaims(token, &c, k.fitting)
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenMalformed), errors.Is(err, jwt.ErrTokenUnverifiable):
		return Caller{}, &Refusal{Unknown, "the token in the request is not one of an issuer that the function knows"}
	case errors.Is(err, jwt.ErrTokenExpired):
		return Caller{}, &Refusal{Expired, "the token in the request has expired"}
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return Caller{}, &Refusal{Expired, "the token in the request is not valid yet"}
	case err != nil:
		return Caller{}, &Refusal{Unknown, "the token in the request must have the claim exp"}
	case k.issuer != "" && c.Issuer != k.issuer:
		return Caller{}, &Refusal{Unknown, "the token in the request is of another issuer"}
	case !slices.ContainsFunc(c.Audience, func(a string) bool { return slices.Contains(names, a) || slices.Contains(k.audience, a) }):
		return Caller{}, &Refusal{Foreign, "the token in the request is for another audience than " + names[0]}
	case c.Functions != nil && !matches(c.Functions, names):
		return Caller{}, &Refusal{Foreign, "the claim functions of the token in the request does not name " + names[0]}
	}
	return Caller{ID: idOf("subject", c.Issuer+"\x00"+c.Subject)}, nil
}

var errNoKey = errors.New("no key fits")

// fitting returns the keys that may have signed a token: those for its algorithm, and with its key ID
// if both have one.
func (k *Keys) fitting(t *jwt.Token) (any, error) {
	id, _ := t.Header["kid"].(string)
	var fit jwt.VerificationKeySet
	for _, v := range k.verifiers {
		if slices.Contains(v.methods, t.Method.Alg()) && (id == "" || v.id == "" || v.id == id) {
			fit.Keys = append(fit.Keys, v.key)
		}
	}
	if len(fit.Keys) == 0 {
		return nil, errNoKey
	}
	return fit, nil
}

// methodsOf returns the algorithms that fit a public key.
func methodsOf(key any) ([]string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSA || bits > maxRSA {
			return nil, fmt.Errorf("an RSA key must have %d to %d bits", minRSA, maxRSA)
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		case elliptic.P521():
			return []string{"ES512"}, nil
		}
		return nil, errors.New("the curve of an EC key must be P-256, P-384 or P-521")
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	}
	return nil, errors.New("a public key must be an RSA, EC or Ed25519 key")
}

// parsePEM reads public keys and certificates.
func parsePEM(text []byte) (*Keys, error) {
	k := newKeys()
	for number := 1; ; number++ {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		key, err := publicKey(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", number, err)
		}
		methods, err := methodsOf(key)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", number, err)
		}
		if k.verifiers = append(k.verifiers, verifier{key: key, methods: methods}); len(k.verifiers) > maxVerifiers {
			return nil, fmt.Errorf("it has more than %d public keys", maxVerifiers)
		}
	}
	if len(k.verifiers) == 0 {
		return nil, errors.New("it begins as PEM and cannot be read: give public keys in PEM")
	}
	return k.complete()
}

func publicKey(block *pem.Block) (any, error) {
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		return nil, fmt.Errorf("it is a %.40q: give a public key only (openssl pkey -pubout), because a private key signs tokens", block.Type)
	}
	if err != nil {
		return nil, errors.New("the public key cannot be read")
	}
	return key, nil
}

// webKey is a JSON Web Key (RFC 7517 and 7518, section 6; RFC 8037).
type webKey struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
	K         string `json:"k"`
	// D is of a private key.
	D string `json:"d"`
}

// verifier returns the key; false if it is not for signatures, or of an unknown type.
func (w *webKey) verifier() (v verifier, known bool, err error) {
	v.id = w.ID
	if w.Use != "" && w.Use != "sig" {
		return v, false, nil
	}
	if w.D != "" {
		return v, false, errors.New("it has the member d, which is private: give public keys only")
	}
	switch w.Type {
	case "RSA":
		v.key, err = w.rsa()
	case "EC":
		v.key, err = w.ec()
	case "OKP":
		if w.Curve != "Ed25519" {
			return v, false, nil
		}
		x, wrong := decode64(w.X)
		if wrong != nil || len(x) != ed25519.PublicKeySize {
			return v, false, errors.New("x must be an Ed25519 key of 32 bytes in base64url")
		}
		v.key = ed25519.PublicKey(x)
	case "oct":
		secret, wrong := decode64(w.K)
		if wrong != nil || len(secret) < minSecret {
			return v, false, fmt.Errorf("k must have at least %d bytes, in base64url", minSecret)
		}
		v.key, v.methods = secret, []string{"HS256", "HS384", "HS512"}
	default:
		return v, false, nil
	}
	if err == nil && v.methods == nil {
		v.methods, err = methodsOf(v.key)
	}
	if err != nil {
		return v, false, err
	}
	if w.Algorithm != "" {
		if !slices.Contains(v.methods, w.Algorithm) {
			return v, false, fmt.Errorf("alg is %.20q: it must be one of %s for this key, or be left out", w.Algorithm, strings.Join(v.methods, ", "))
		}
		v.methods = []string{w.Algorithm}
	}
	return v, true, nil
}

func (w *webKey) rsa() (crypto.PublicKey, error) {
	n, err := decode64(w.N)
	e, wrong := decode64(w.E)
	if err != nil || wrong != nil || len(e) == 0 || len(e) > 4 {
		return nil, errors.New("n and e must be an RSA key in base64url")
	}
	exponent := new(big.Int).SetBytes(e).Int64()
	if exponent < 3 || exponent%2 == 0 || exponent > 1<<31-1 {
		return nil, errors.New("e must be an odd number of at least 3")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent)}, nil
}

func (w *webKey) ec() (crypto.PublicKey, error) {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[w.Curve]
	if curve == nil {
		return nil, errors.New("crv must be P-256, P-384 or P-521")
	}
	x, err := decode64(w.X)
	y, wrong := decode64(w.Y)
	size := (curve.Params().BitSize + 7) / 8
	if err != nil || wrong != nil || len(x) != size || len(y) != size {
		return nil, fmt.Errorf("x and y must have %d bytes each, in base64url", size)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("x and y are no point of the curve")
	}
	return key, nil
}

func decode64(s string) ([]byte, error) {
	return base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(s, "="))
}
