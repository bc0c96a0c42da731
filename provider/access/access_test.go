package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	now    = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	mnist  = []string{"mnist.openfaas-fn", "mnist"}
	strong = strings.Repeat("k", 32)
)

// parsed parses a secret or fails the test.
func parsed(t testing.TB, text string) *Keys {
	t.Helper()
	k, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeys(t *testing.T) {
	k := parsed(t, "\n# of the shop\nshop  "+strong+"1\n\t"+strong+"2\r\n")
	for credential, want := range map[string]Reason{
		strong + "1": "", strong + "2": "", "": Missing, strong: Unknown, strong + "3": Unknown, "shop": Unknown, "#": Unknown,
		"shop " + strong + "1": Unknown, strings.Repeat("k", maxKey+1): Unknown, strings.Repeat("k", 1<<20): Unknown,
	} {
		caller, refusal := k.Check(credential, mnist, now)
		switch {
		case want == "" && (refusal != nil || caller.ID == "" || caller.Name != map[string]string{strong + "1": "shop"}[credential]):
			t.Errorf("%.40q: %+v, %+v", credential, caller, refusal)
		case want != "" && (refusal == nil || refusal.Reason != want || caller != Caller{}):
			t.Errorf("%.40q: %+v, %+v, want %s", credential, caller, refusal, want)
		case refusal != nil && strings.Contains(refusal.Why, strong):
			t.Errorf("the refusal tells a key: %s", refusal.Why)
		}
	}
	one, _ := k.Check(strong+"1", mnist, now)
	other, _ := k.Check(strong+"2", mnist, now)
	again, _ := parsed(t, strong+"1").Check(strong+"1", mnist, now)
	if one.ID == other.ID || one.ID != again.ID {
		t.Errorf("callers %s, %s and %s: another replica knows them by other IDs", one.ID, other.ID, again.ID)
	}
}

// A megabyte of key costs no hash and no copy: only the refusal is allocated.
func TestLargeKeysAreRefusedUnread(t *testing.T) {
	k, large := parsed(t, strong), strings.Repeat("k", 1<<20)
	if n := testing.AllocsPerRun(10, func() { k.Check(large, mnist, now) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestWrongSecrets(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	small := base64.RawURLEncoding.EncodeToString(make([]byte, 64))
	for text, want := range map[string]string{
		"": "it is empty", " \n\t": "it is empty", "# nobody\n\n": "only comments", "short": "line 1: an API key must have 16 to 512",
		"a b " + strong: "line 1 has 3 words", strong + "\n" + strings.Repeat("x", 1<<20): "line 2: an API key", strong + "\n" + strong + "é": "line 2: an API key",
		strings.Repeat("n", 64) + " " + strong: "line 1: a key's name", strings.Repeat(strong+"\n", maxKeys+1): "more than 10000 keys",
		"{": "no set of JSON Web Keys", `{"keys":1}`: "no set of JSON Web Keys", `{"keys":[]}`: "no public key", "{}": "no public key",
		`{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}`: "JSON Web Key 1: k must have at least 32 bytes", `{"keys":[{"kty":"RSA","n":"` + small + `","e":"AQAB"}]}`: "2048 to 8192 bits",
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQ"}]}`: "e must be an odd number", `{"keys":[{"kty":"EC","crv":"P-256","x":"` + small + `","y":"` + small + `"}]}`: "x and y must have 32 bytes",
		`{"keys":[{"kty":"EC","crv":"secp256k1"}]}`: "crv must be", `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQAB"}]}`: "32 bytes",
		`{"keys":[{"kty":"RSA","d":"AQAB"}]}`: "private",
		`{"keys":[{"kty":"oct","alg":"none","k":"` + base64.RawURLEncoding.EncodeToString([]byte(strong)) + `"}]}`:  `alg is "none"`,
		`{"keys":[{"kty":"oct","alg":"RS256","k":"` + base64.RawURLEncoding.EncodeToString([]byte(strong)) + `"}]}`: `alg is "RS256"`,
		`{"keys":[` + strings.Repeat(`{"kty":"x"},`, maxVerifiers) + `{"kty":"x"}]}`:                                "the maximum is 100", `{"keys":[{"kty":"x"}]}`: "no public key",
		"-----BEGIN PUBLIC KEY-----\nAQAB\n-----END PUBLIC KEY-----": "cannot be read", "-----BEGIN": "give public keys in PEM",
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})): "give a public key only",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), strong) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestCredential(t *testing.T) {
	for _, c := range []struct {
		header              http.Header
		credential, header2 string
	}{
		{http.Header{}, "", ""},
		{http.Header{"Authorization": {"Bearer abc"}}, "abc", "Authorization"},
		{http.Header{"Authorization": {"bEARER  abc"}}, "abc", "Authorization"},
		{http.Header{"Authorization": {"Basic abc"}}, "", ""}, {http.Header{"Authorization": {"Bearer"}}, "", ""},
		{http.Header{"Authorization": {"Bearer a", "Bearer b"}}, "", ""},
		{http.Header{"X-Api-Key": {"abc"}, "Authorization": {"Bearer other"}}, "abc", "X-Api-Key"},
	} {
		if credential, header := Credential(c.header); credential != c.credential || header != c.header2 {
			t.Errorf("%v: %q in %q", c.header, credential, header)
		}
	}
	twice, _ := Credential(http.Header{"X-Api-Key": {strong, strong}})
	if _, refusal := parsed(t, strong).Check(twice, mnist, now); refusal == nil || refusal.Reason != Unknown {
		t.Errorf("two keys: %+v", refusal)
	}
}

// signer makes tokens that one key of a secret checks.
type signer struct {
	method jwt.SigningMethod
	key    any
	web    map[string]any
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signers returns one of each type, with the public keys in PEM where there are.
func signers(t testing.TB) (all map[string]signer, inPEM map[string]string) {
	t.Helper()
	all, inPEM = map[string]signer{}, map[string]string{}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodPS512} {
		all[m.Alg()] = signer{m, r, map[string]any{"kty": "RSA", "n": encode64(r.N.Bytes()), "e": "AQAB"}}
	}
	all["EdDSA"] = signer{jwt.SigningMethodEdDSA, private, map[string]any{"kty": "OKP", "crv": "Ed25519", "x": encode64(public)}}
	all["HS256"] = signer{jwt.SigningMethodHS256, []byte(strong), map[string]any{"kty": "oct", "k": encode64([]byte(strong))}}
	for name, c := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		e, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		point, err := e.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := (len(point) - 1) / 2
		all[name] = signer{jwt.GetSigningMethod(name), e, map[string]any{"kty": "EC", "crv": c.Params().Name, "x": encode64(point[1 : 1+half]), "y": encode64(point[1+half:])}}
		inPEM[name] = publicPEM(t, &e.PublicKey)
	}
	inPEM["RS256"], inPEM["EdDSA"] = publicPEM(t, &r.PublicKey), publicPEM(t, public)
	return all, inPEM
}

func publicPEM(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// keySet returns a set with the signer's key and further members.
func (s signer) keySet(t testing.TB, member ...string) string {
	t.Helper()
	text, err := json.Marshal(s.web)
	if err != nil {
		t.Fatal(err)
	}
	return `{"keys":[` + string(text) + `]` + strings.Join(append([]string{""}, member...), ",") + `}`
}

// sign returns a token for mnist with further claims.
func (s signer) sign(t testing.TB, further map[string]any) string {
	t.Helper()
	c := jwt.MapClaims{"sub": "shop", "aud": "mnist.openfaas-fn", "exp": now.Add(time.Minute).Unix()}
	maps.Copy(c, further)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	text, err := jwt.NewWithClaims(s.method, c).SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokensOfEveryType(t *testing.T) {
	all, inPEM := signers(t)
	for name, s := range all {
		keys := map[string]*Keys{"set": parsed(t, s.keySet(t))}
		if text, ok := inPEM[name]; ok {
			keys["PEM"] = parsed(t, text)
		}
		for form, k := range keys {
			for other, o := range all {
				caller, refusal := k.Check(o.sign(t, nil), mnist, now)
				same := other == name || s.web["kty"] == "RSA" && o.web["kty"] == "RSA"
				if same && (refusal != nil || caller.ID == "" || !k.Tokens()) || !same && (refusal == nil || refusal.Reason != Unknown) {
					t.Errorf("a token of %s with the key of %s as %s: %+v, %+v", other, name, form, caller, refusal)
				}
			}
		}
	}
	// An attacker takes the public key for a secret, leaves the signature out, or changes the algorithm.
	k := parsed(t, inPEM["RS256"])
	confused := signer{jwt.SigningMethodHS256, []byte(inPEM["RS256"]), nil}.sign(t, nil)
	unsigned := signer{jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil}.sign(t, nil)
	valid := all["RS256"].sign(t, nil)
	head, rest, _ := strings.Cut(valid, ".")
	for what, token := range map[string]string{
		"the public key as secret": confused, "alg: none": unsigned, "no signature": valid[:strings.LastIndex(valid, ".")+1],
		"another alg": encode64([]byte(`{"alg":"ES256"}`)) + "." + rest, "half": head, "none at all": "..", "an API key": strong, "a megabyte": strings.Repeat("x", 1<<20),
	} {
		if caller, refusal := k.Check(token, mnist, now); refusal == nil || refusal.Reason != Unknown {
			t.Errorf("%s: %+v, %+v", what, caller, refusal)
		}
	}
	if _, refusal := k.Check("", mnist, now); refusal == nil || refusal.Reason != Missing {
		t.Errorf("without a token: %+v", refusal)
	}
}

func TestClaims(t *testing.T) {
	s := signer{jwt.SigningMethodHS256, []byte(strong), map[string]any{"kty": "oct", "k": encode64([]byte(strong)), "kid": "a"}}
	k := parsed(t, s.keySet(t, `"audience":"shop-api"`, `"issuer":"https://idp"`))
	for _, c := range []struct {
		claims map[string]any
		want   Reason
	}{
		{nil, ""}, {map[string]any{"aud": "mnist"}, ""}, {map[string]any{"aud": []string{"x", "shop-api"}}, ""}, {map[string]any{"functions": "mn*.openfaas-fn"}, ""},
		{map[string]any{"functions": []string{"other", "mnist"}}, ""}, {map[string]any{"nbf": now.Add(-time.Minute).Unix(), "iat": now.Unix()}, ""},
		{map[string]any{"exp": now.Add(-time.Minute).Unix()}, Expired}, {map[string]any{"nbf": now.Add(time.Minute).Unix()}, Expired}, {map[string]any{"exp": nil}, Unknown},
		{map[string]any{"iat": now.Add(time.Minute).Unix()}, Expired}, {map[string]any{"iat": now.Unix() + 4}, ""},
		{map[string]any{"exp": "soon"}, Unknown}, {map[string]any{"exp": now.Unix() - 4}, ""},
		{map[string]any{"aud": nil}, Foreign}, {map[string]any{"aud": "other"}, Foreign}, {map[string]any{"aud": "mnist.team-a"}, Foreign},
		{map[string]any{"functions": []string{}}, Foreign}, {map[string]any{"functions": "other"}, Foreign}, {map[string]any{"functions": "["}, Foreign},
		{map[string]any{"iss": "https://other"}, Unknown}, {map[string]any{"iss": nil}, Unknown},
	} {
		with := map[string]any{"iss": "https://idp"}
		maps.Copy(with, c.claims)
		caller, refusal := k.Check(s.sign(t, with), mnist, now)
		if got := refusal; c.want == "" && (got != nil || caller.ID == "") || c.want != "" && (got == nil || got.Reason != c.want || got.Why == "") {
			t.Errorf("%v: %+v, %+v, want %q", c.claims, caller, refusal, c.want)
		}
	}
	for kid, want := range map[string]bool{"a": true, "b": false} {
		token := jwt.NewWithClaims(s.method, jwt.MapClaims{"iss": "https://idp", "aud": "mnist", "exp": now.Add(time.Minute).Unix()})
		token.Header["kid"] = kid
		text, err := token.SignedString(s.key)
		if err != nil {
			t.Fatal(err)
		}
		if _, refusal := k.Check(text, mnist, now); (refusal == nil) != want {
			t.Errorf("the key ID %s: %+v", kid, refusal)
		}
	}
	if fresh, _ := k.Check(s.sign(t, map[string]any{"iss": "https://idp", "jti": "1"}), mnist, now); fresh != must(k.Check(s.sign(t, map[string]any{"iss": "https://idp", "jti": "2"}), mnist, now)) {
		t.Error("two tokens of one subject are two callers")
	}
}

func must(c Caller, _ *Refusal) Caller { return c }

// FuzzParse checks that a secret is refused or has a key, and that no text lets itself in.
func FuzzParse(f *testing.F) {
	all, inPEM := signers(f)
	for _, s := range all {
		f.Add(s.keySet(f), s.sign(f, nil))
	}
	for _, name := range slices.Sorted(maps.Keys(inPEM)) {
		f.Add(inPEM[name], "")
	}
	f.Add("shop "+strong, strong)
	f.Fuzz(func(t *testing.T, secret, credential string) {
		k, err := Parse([]byte(secret))
		if err != nil {
			if k != nil || err.Error() == "" {
				t.Errorf("%v, %v", k, err)
			}
			return
		}
		if len(k.callers) == 0 && len(k.verifiers) == 0 || slices.Contains(k.methods, "none") {
			t.Errorf("nobody, or anybody, may call: %+v", k)
		}
		caller, refusal := k.Check(credential, mnist, now)
		if (caller.ID == "") == (refusal == nil) {
			t.Errorf("%+v, %+v", caller, refusal)
		}
		if refusal == nil && !k.Tokens() && !slices.Contains(strings.Fields(secret), credential) {
			t.Errorf("%q is not in the secret", credential)
		}
	})
}

// FuzzToken checks that only the signer's own token passes.
func FuzzToken(f *testing.F) {
	s := signer{jwt.SigningMethodHS256, []byte(strong), map[string]any{"kty": "oct", "k": encode64([]byte(strong))}}
	k, valid := parsed(f, s.keySet(f)), s.sign(f, nil)
	f.Add(valid)
	f.Add(valid + ".")
	f.Add(fmt.Sprintf("%s.%s.", encode64([]byte(`{"alg":"none"}`)), encode64([]byte(`{"aud":"mnist","exp":9999999999}`))))
	f.Fuzz(func(t *testing.T, token string) {
		if _, refusal := k.Check(token, mnist, now); (refusal == nil) != (token == valid) {
			t.Errorf("%q: %+v", token, refusal)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	all, _ := signers(b)
	keys := map[string]*Keys{"key": parsed(b, strings.Repeat("shop "+strong+"0\n", 1000)+strong)}
	credentials := map[string]string{"key": strong}
	for _, name := range []string{"RS256", "ES256", "EdDSA"} {
		keys[name], credentials[name] = parsed(b, all[name].keySet(b)), all[name].sign(b, nil)
	}
	for name, k := range keys {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, refusal := k.Check(credentials[name], mnist, now); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}
