package origin

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/source"
)

// The ends of the names of secrets that have credentials for models: the secret model-s3, or one such as
// team-a-model-s3.
const (
	// S3Secret has AWS' credentials file: aws_access_key_id and aws_secret_access_key, and perhaps aws_session_token,
	// region and endpoint_url, each on a line.
	S3Secret = "model-s3"
	// TokenSecret has a bearer token, for https and hf.
	TokenSecret = "model-token"
	// RegistrySecret has the config.json of docker login.
	RegistrySecret = "model-registry"
)

// Credentials are what servers of models ask for. The zero value is anonymous.
type Credentials struct {
	// Key, Secret and Session are those of S3, Region and Endpoint its defaults where the URI says nothing.
	Key, Secret, Session, Region, Endpoint string
	// Token is a bearer token.
	Token string
	// logins are those of registries, "name:password" by host.
	logins map[string]string
}

// Text identifies the credentials.
func (w Credentials) Text() string {
	var b strings.Builder
	for _, s := range []string{w.Key, w.Secret, w.Session, w.Region, w.Endpoint, w.Token} {
		b.WriteString(s + "\x00")
	}
	for _, host := range slices.Sorted(maps.Keys(w.logins)) {
		b.WriteString(host + "\x00" + w.logins[host] + "\x00")
	}
	return b.String()
}

// SecretCounts reports whether a secret of this name has credentials for models.
func SecretCounts(name string) bool { return endOf(name) != "" }

// endOf returns which of the ends a secret's name has, "" for none.
func endOf(name string) string {
	for _, end := range []string{S3Secret, TokenSecret, RegistrySecret} {
		if name == end || strings.HasSuffix(name, "-"+end) {
			return end
		}
	}
	return ""
}

// ReadCredentials reads the values of a function's secrets by their names. Others than those of [SecretCounts] are
// ignored. The error names the secret, and has nothing of its value.
func ReadCredentials(secrets map[string][]byte) (w Credentials, err error) {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := bytes.TrimSpace(secrets[name])
		switch endOf(name) {
		case S3Secret:
			err = w.readS3(value)
		case TokenSecret:
			if w.Token = string(value); w.Token == "" || strings.ContainsFunc(w.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
				err = fmt.Errorf("it must be a token in one line")
			}
		case RegistrySecret:
			err = w.readRegistry(value)
		}
		if err != nil {
			return Credentials{}, fmt.Errorf("the secret %s: %w", name, err)
		}
	}
	return w, nil
}

// readS3 reads lines KEY = VALUE. Sections and comments are skipped: a secret has one profile.
func (w *Credentials) readS3(value []byte) error {
	into := map[string]*string{"aws_access_key_id": &w.Key, "aws_secret_access_key": &w.Secret, "aws_session_token": &w.Session,
		"region": &w.Region, "endpoint_url": &w.Endpoint}
	for lines := bufio.NewScanner(bytes.NewReader(value)); lines.Scan(); {
		key, text, is := strings.Cut(lines.Text(), "=")
		if field := into[strings.ToLower(strings.TrimSpace(key))]; is && field != nil {
			*field = strings.TrimSpace(text)
		}
	}
	if w.Key == "" || w.Secret == "" {
		return fmt.Errorf("it must have the lines aws_access_key_id=… and aws_secret_access_key=…, as " +
			"AWS' credentials file")
	}
	if w.Endpoint == "" {
		return nil
	}
	var err error
	if w.Endpoint, err = source.ParseEndpoint(w.Endpoint); err != nil {
		return fmt.Errorf("endpoint_url: %w", err)
	}
	return nil
}

// readRegistry reads docker's config.json.
func (w *Credentials) readRegistry(value []byte) error {
	var config struct {
		Auths map[string]struct{ Auth, Username, Password string }
	}
	if json.Unmarshal(value, &config) != nil || len(config.Auths) == 0 {
		return fmt.Errorf("it must be the config.json of docker login, with auths")
	}
	if w.logins == nil {
		w.logins = map[string]string{}
	}
	for host, auth := range config.Auths {
		if _, rest, is := strings.Cut(host, "://"); is {
			host = rest
		}
		host, _, _ = strings.Cut(host, "/")
		login := auth.Username + ":" + auth.Password
		if auth.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(auth.Auth)
			if err != nil {
				return fmt.Errorf("auth of %s is no base64", host)
			}
			login = string(plain)
		}
		w.logins[registryName(host)] = login
	}
	return nil
}
