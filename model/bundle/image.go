package bundle

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Path is the directory of an image relative to the root. Its parts are the
// registry host, the parts of the name between slashes, and the tag, "latest" by
// default. Docker Hub's names are shortened as in Docker: docker.io/library/mnist
// is mnist. The error wraps [ErrImage].
func Path(image string) (string, error) {
	name, tag := familiar(image), "latest"
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, tag = name[:at], name[at+1:]
	}
	if strings.ContainsRune(image, '@') {
		return "", fmt.Errorf("%w %q: a bundle has no digest; name it by a tag", ErrImage, image)
	}
	for _, part := range append(strings.Split(name, "/"), tag) {
		if !validPart(part) {
			return "", fmt.Errorf("%w %q: %q must consist of letters, digits, '.', '_' and '-', and begin with a letter, digit or '_'", ErrImage, image, part)
		}
	}
	path := filepath.Join(filepath.FromSlash(name), tag)
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("%w %q: it leads out of the directory of bundles", ErrImage, image)
	}
	return path, nil
}

func validPart(part string) bool {
	for i, r := range part {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
		// A registry's host may have a port.
		if !letter && (i == 0 || r != '.' && r != '-' && r != ':') {
			return false
		}
	}
	return part != "" && len(part) <= 255
}

// familiar drops Docker Hub's host, and the library/ of its official images.
func familiar(image string) string {
	for _, host := range []string{"docker.io/", "index.docker.io/"} {
		name, ok := strings.CutPrefix(image, host)
		if !ok {
			continue
		}
		if official, ok := strings.CutPrefix(name, "library/"); ok && !strings.Contains(official, "/") {
			return official
		}
		return name
	}
	return image
}
