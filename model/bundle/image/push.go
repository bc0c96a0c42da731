package image

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push sends an image to its registry, except the layers that the registry has, and
// returns its name with its digest. A nil keychain means the keychain of Docker's
// config. The error wraps [ErrReference] or [ErrDenied] for these causes.
func Push(ctx context.Context, ref string, image v1.Image, keychain authn.Keychain, options ...Option) (string, error) {
	return send(ctx, ref, image, keychain, options, func(to name.Reference, with ...remote.Option) error {
		return remote.Write(to, image, with...)
	})
}

// PushIndex is [Push] for images of one content for several platforms: their index gets the name.
func PushIndex(ctx context.Context, ref string, images []v1.Image, keychain authn.Keychain,
	options ...Option) (string, error) {
	index, err := Index(images...)
	if err != nil {
		return "", err
	}
	return send(ctx, ref, index, keychain, options, func(to name.Reference, with ...remote.Option) error {
		return remote.WriteIndex(to, index, with...)
	})
}

// send writes an image or an index to its registry, and returns its name with its digest.
func send(ctx context.Context, ref string, what interface{ Digest() (v1.Hash, error) }, keychain authn.Keychain,
	options []Option, write func(to name.Reference, with ...remote.Option) error) (string, error) {
	s := newSettings(options)
	parsed, err := s.parse(ref)
	if err != nil {
		return "", err
	}
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}

	err = write(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain), remote.WithTransport(s.transport))
	if err != nil {
		return "", explain(ref, err)
	}
	digest, err := what.Digest()
	if err != nil {
		return "", err
	}
	return parsed.Context().Digest(digest.String()).Name(), nil
}

// Fetch is an image in a registry. It reads layers only when they are used. Its
// errors are those of [Resolve].
func Fetch(ctx context.Context, ref string, keychain authn.Keychain, options ...Option) (v1.Image, error) {
	r, err := Resolve(ctx, ref, keychain, options...)
	if err != nil {
		return nil, err
	}
	return r.image, nil
}

// Publish fetches a base image, makes an image from it with on, and pushes that to
// the name to. It returns the name with its digest.
func Publish(ctx context.Context, base, to string, on func(base v1.Image) (v1.Image, error), keychain authn.Keychain, options ...Option) (string, error) {
	below, err := Fetch(ctx, base, keychain, options...)
	if err != nil {
		return "", fmt.Errorf("base image: %w", err)
	}
	made, err := on(below)
	if err != nil {
		return "", err
	}
	return Push(ctx, to, made, keychain, options...)
}
