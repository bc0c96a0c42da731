// Package content carries the files of a model from one machine to another: from a provider that has them to an
// instance elsewhere that serves the model. A content has a name that follows from all bytes of its files, and nobody
// sees a file before its hash was compared. So the receiver need not trust the sender, and a content that is there
// need not be sent. A transfer goes on where it broke off. The package does not decide who gets a content, and
// downloads none: see the package model/source/fetch.
//
// Begin reading at [Send], which the provider calls, and [Receiver], which an instance serves.
package content

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// maxFiles and maxIndex bound an index: the number of its files, and its size in bytes.
	maxFiles = 10_000
	maxIndex = 4 << 20
)

// File is one file of a content.
type File struct {
	// Path is below the content's directory, with slashes.
	Path string `json:"path"`
	// Size is in bytes, and Sum the SHA-256 in hexadecimal digits.
	Size int64  `json:"size"`
	Sum  string `json:"sum"`
}

// Index lists the files of a content, in the order of their paths.
type Index struct {
	Files []File `json:"files"`
}

// IndexOf reads all files of a directory. Their modes do not count, and links are refused.
func IndexOf(dir string) (i Index, err error) {
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !e.Type().IsRegular() {
			return fmt.Errorf("%s is no regular file", file)
		}
		below, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		size, sum, err := sumOf(file)
		i.Files = append(i.Files, File{Path: filepath.ToSlash(below), Size: size, Sum: sum})
		return err
	})
	if err == nil {
		err = i.validate()
	}
	return i, err
}

// sumOf returns the size and the SHA-256 of a file.
func sumOf(file string) (size int64, sum string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, f)
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// text is the index as it is sent and hashed.
func (i Index) text() []byte {
	text, _ := json.Marshal(i) // Strings and numbers cannot fail to marshal.
	return text
}

// Name identifies the content: the SHA-256 of its index in hexadecimal digits.
func (i Index) Name() string {
	sum := sha256.Sum256(i.text())
	return hex.EncodeToString(sum[:])
}

// Bytes is the size of all files together.
func (i Index) Bytes() (all int64) {
	for _, f := range i.Files {
		all += f.Size
	}
	return all
}

// IsName reports whether a text may be the name of a content.
func IsName(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 2*sha256.Size && text == strings.ToLower(text)
}

// parseIndex reads the index of a content with a name.
func parseIndex(text []byte, name string) (i Index, err error) {
	if err := json.Unmarshal(text, &i); err != nil {
		return i, fmt.Errorf("the index: %w", err)
	}
	if i.Name() != name {
		return i, fmt.Errorf("the index is that of the content %s, not of %s", i.Name(), name)
	}
	return i, i.validate()
}

// validate refuses an index whose files would leave the directory or be one another.
func (i Index) validate() error {
	if len(i.Files) == 0 || len(i.Files) > maxFiles || len(i.text()) > maxIndex {
		return fmt.Errorf("a content must have from 1 to %d files; this one has %d", maxFiles, len(i.Files))
	}
	before := ""
	for _, f := range i.Files {
		switch {
		case f.Path == "" || !filepath.IsLocal(f.Path) || filepath.ToSlash(filepath.Clean(f.Path)) != f.Path:
			return fmt.Errorf("the path %q leads out of the content", f.Path)
		case f.Path == before:
			return fmt.Errorf("the path %q is there twice", f.Path)
		case f.Size < 0 || !IsName(f.Sum):
			return fmt.Errorf("the file %q has no size and SHA-256", f.Path)
		}
		before = f.Path
	}
	if i.Bytes() < 0 {
		return errors.New("the sizes of the content's files exceed what a number holds")
	}
	return nil
}
