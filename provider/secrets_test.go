package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/store"
)

func TestSecrets(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Logger = zerolog.New(&log)
	})
	const value = "hunter2hunter2"
	in64 := base64.StdEncoding.EncodeToString([]byte(value))
	for i, c := range []struct {
		method, target, body string
		status               int
		words                string
	}{
		{"GET", "/system/secrets", "", 200, `[]`},
		{"PUT", "/system/secrets", `{"name":"key","value":"` + value + `"}`, 404, `"key"`},
		{"POST", "/system/secrets", `{"name":"key","value":"` + value + `"}`, 202, ""},
		{"POST", "/system/secrets", `{"name":"key","value":"` + value + `"}`, 409, "exists already"},
		{"POST", "/system/secrets", `{"name":"key","namespace":"team-a","rawValue":"` + in64 + `"}`, 202, ""},
		{"POST", "/system/secrets?namespace=team-a", `{"name":"b.key","rawValue":"` + in64 + `"}`, 202, ""},
		{"POST", "/system/secrets?namespace=team-a", `{"name":"key","namespace":"openfaas-fn","value":"x"}`, 400, "two namespaces"},
		{"PUT", "/system/secrets", `{"name":"key","value":"` + value + `2"}`, 202, ""},
		{"POST", "/system/secrets", `{"name":"empty","value":"","rawValue":""}`, 400, `"value"`},
		{"PUT", "/system/secrets", `{"name":"key"}`, 400, `"rawValue"`},
		{"POST", "/system/secrets", `{"value":"` + value + `"}`, 400, `name is ""`},
		{"POST", "/system/secrets", `{"name":"../key","value":"` + value + `"}`, 400, `name is "../key"`},
		{"POST", "/system/secrets", `{"name":"Key","value":"` + value + `"}`, 400, "lower-case"},
		{"POST", "/system/secrets", `{"name":"key","namespace":"../x","value":"` + value + `"}`, 400, "namespace"},
		{"POST", "/system/secrets", `{"name":"bad","rawValue":"` + value + `!"}`, 400, "base64"},
		{"POST", "/system/secrets", `{"name":"bad","value":12345678}`, 400, `"value" is not a string`},
		{"POST", "/system/secrets", `{"name":"bad","value":"` + value, 400, "JSON"},
		{"POST", "/system/secrets", `["` + value + `"]`, 400, "object"},
		{"POST", "/system/secrets", ``, 400, "empty"},
		{"POST", "/system/secrets", strings.Repeat(" ", maxSecretBody+1), 413, "8388608"},
		{"POST", "/system/secrets", `{"name":"big","value":"` + strings.Repeat("x", store.MaxSecret+1) + `"}`, 413, "1048576"},
		{"POST", "/system/secrets", `{"name":"big","value":"` + strings.Repeat(`\u0001`, store.MaxSecret) + `"}`, 202, ""},
		{"DELETE", "/system/secrets", `{"name":"big"}`, 202, ""},
		{"GET", "/system/secrets", "", 200, `[{"name":"key","namespace":"openfaas-fn"}]`},
		{"GET", "/system/secrets?namespace=team-a", "", 200, `[{"name":"b.key","namespace":"team-a"},{"name":"key","namespace":"team-a"}]`},
		{"DELETE", "/system/secrets", `{"name":"b.key","namespace":"team-a"}`, 202, ""},
		{"DELETE", "/system/secrets", `{"name":"b.key","namespace":"team-a"}`, 404, `"team-a"`},
		{"DELETE", "/system/secrets", `{}`, 400, "name"},
		{"PATCH", "/system/secrets", `{}`, 405, "DELETE, GET, POST, PUT"},
	} {
		w := r.do(c.method, c.target, c.body)
		if w.Code >= 400 {
			wantSentence(t, w, c.status, c.words)
		} else if w.Code != c.status || w.Code == 200 && strings.TrimSpace(w.Body.String()) != c.words {
			t.Errorf("%d: %s: %d %s, want %d %s", i, c.method, w.Code, w.Body, c.status, c.words)
		}
		if text := w.Body.String(); strings.Contains(text, "hunter") || strings.Contains(text, in64) || strings.Contains(text, "1234") {
			t.Errorf("the answer tells a value: %s", text)
		}
	}
	if text := log.String(); strings.Contains(text, "hunter") || strings.Contains(text, in64) {
		t.Errorf("the log tells a value: %s", text)
	}
	file, err := r.secrets.(*store.Secrets).File("openfaas-fn", "key")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != value+"2" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// faas-cli sends a file as text and as bytes; text cannot hold all bytes.
func TestBytesComeBeforeText(t *testing.T) {
	of, err := parseSecret([]byte(`{"name":"x","value":"text","rawValue":"AP8="}`))
	if err != nil || !bytes.Equal(of.RawValue, []byte{0, 0xff}) || of.Value != "" {
		t.Errorf("parseSecret = %+v, %v", of, err)
	}
}

func TestNoSecrets(t *testing.T) {
	r := newRig(t, nil)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		wantSentence(t, r.do(method, "/system/secrets", "{}"), 501, "keeps no secrets")
	}
}

func TestSecretsWithOpenFaaSClient(t *testing.T) {
	r := newRig(t, func(o *Options) {
		withSecrets(t)(o)
		o.Credentials = credentials
	})
	c, ctx := client(t, r), context.Background()
	of := types.Secret{Name: "api-key", Namespace: "openfaas-fn", RawValue: []byte{0, 1, 2}}
	if code, err := c.UpdateSecret(ctx, of); code != 404 || err == nil {
		t.Errorf("update of an absent one: %d, %v", code, err)
	}
	if code, err := c.CreateSecret(ctx, of); err != nil {
		t.Errorf("create: %d, %v", code, err)
	}
	if code, _ := c.CreateSecret(ctx, of); code != 409 {
		t.Errorf("create again: %d", code)
	}
	of.RawValue, of.Value = nil, "text"
	if code, err := c.UpdateSecret(ctx, of); err != nil {
		t.Errorf("update: %d, %v", code, err)
	}
	if all, err := c.GetSecrets(ctx, "openfaas-fn"); err != nil || len(all) != 1 || all[0].Name != "api-key" || all[0].Value != "" || all[0].RawValue != nil {
		t.Errorf("list: %+v, %v", all, err)
	}
	if err := c.DeleteSecret(ctx, "api-key", "openfaas-fn"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteSecret(ctx, "api-key", "openfaas-fn"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("delete again: %v", err)
	}
}
